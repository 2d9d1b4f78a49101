//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// defaultKills keeps the ordinary run short; `make crash` sets COORDSVC_KILLS to 200.
const defaultKills = 25

// fact is something that the service promised by its answer, and how to see that it is still so.
type fact struct {
	what  string
	holds func(s *service) error
	// told is the peer whose peer.draining must reach the webhook.
	told string
}

// load is what is done to the service while it is killed, and all that it acknowledged.
type load struct {
	t      *testing.T
	random *rand.Rand
	n      atomic.Int64

	mu    sync.Mutex
	facts []fact
	// fresh are the peers of this round that are known by a heartbeat alone, and since when; known those that were there
	// after an earlier kill: nothing may take them away any more.
	fresh map[string]time.Time
	known map[string]bool
}

// Killed at random instants under load, the service forgets nothing that it acknowledged as durable, no peer that it
// has known for a second, and no webhook event; what is told twice has the same id.
func TestKillAtRandomInstantsLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	kills := defaultKills
	if text := os.Getenv("COORDSVC_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, "COORDSVC_KILLS")
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d kills", seed, kills)
	random := rand.New(rand.NewPCG(seed, 0))
	l := &load{t: t, random: random, known: map[string]bool{}}
	dir, hook := t.TempDir(), newReceiver(t)
	s := serve(t, dir, "--heartbeat-timeout", "10s")
	hook.register(s, "peer.draining")
	var epoch float64
	for round := range kills {
		began := len(l.facts)
		l.fresh = map[string]time.Time{}
		l.rush(s, rushTime(random, round))
		killed := time.Now()
		s = serve(t, dir, "--heartbeat-timeout", "10s")
		next, _ := s.get("/v1/leader")["epoch"].(float64)
		require.Greater(t, next, epoch, "round %d: the epoch grows", round)
		epoch = next
		l.verify(s, l.facts[began:])
		l.verifyPeers(s, killed)
		if t.Failed() {
			t.Logf("round %d of seed %d\n%s", round, seed, s.logged())
			return
		}
	}
	l.verify(s, l.facts)
	t.Logf("%d facts acknowledged, %d peers known", len(l.facts), len(l.known))
	require.Greater(t, len(l.facts), 5*kills, "the load was a load")
	l.verifyTold(s, hook)
	code, _ := s.terminate()
	assert.Zero(t, code)
}

// rushTime is how long a round lasts. Every sixth lasts long enough for heartbeats to be flushed before the kill.
func rushTime(random *rand.Rand, round int) time.Duration {
	d := time.Duration(20+random.IntN(230)) * time.Millisecond
	if round%6 == 2 {
		d += 1100 * time.Millisecond
	}
	return d
}

// rush loads the service from several sides, kills it after d, and waits until everybody has noticed.
func (l *load) rush(s *service, d time.Duration) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var all sync.WaitGroup
	for worker := range 3 {
		random := rand.New(rand.NewPCG(l.random.Uint64(), uint64(worker)))
		all.Go(func() {
			for ctx.Err() == nil {
				l.act(s, random.IntN(8))
			}
		})
	}
	all.Go(func() {
		ticker := time.NewTicker(4 * time.Millisecond) // few enough for many rounds to end soon
		defer ticker.Stop()
		for ctx.Err() == nil {
			l.introduce(s)
			<-ticker.C
		}
	})
	timer := time.NewTimer(d)
	<-timer.C
	s.kill()
	cancel()
	all.Wait()
}

func (l *load) name(kind string) string { return fmt.Sprintf("%s-%d", kind, l.n.Add(1)) }

func (l *load) remember(f fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts = append(l.facts, f)
}

// act makes one durable call, or two; a fact is remembered only when its answer arrived.
func (l *load) act(s *service, kind int) {
	switch kind {
	case 0:
		l.claim(s)
	case 1:
		l.assign(s)
	case 2:
		l.cancel(s)
	case 3:
		l.remove(s)
	case 4:
		l.dismiss(s)
	default:
		l.drain(s)
	}
}

// acknowledged makes a call and reports whether it got the answer wanted. While the service dies there is none; any other
// answer is a failure.
func (l *load) acknowledged(s *service, want int, method, path string, body object) (object, bool) {
	status, answer, err := s.try(method, path, body)
	if err != nil {
		return nil, false
	}
	assert.Equal(l.t, want, status, "%s %s: %v", method, path, answer)
	return answer, status == want
}

// introduce makes a peer known by a heartbeat, which promises less.
func (l *load) introduce(s *service) {
	id := l.name("peer")
	if _, ok := l.acknowledged(s, http.StatusOK, http.MethodPost, "/v1/heartbeats", object{"instance_id": id, "subscriptions": []string{id}}); ok {
		l.mu.Lock()
		l.fresh[id] = time.Now()
		l.mu.Unlock()
	}
}

func (l *load) drain(s *service) (id string, ok bool) {
	id = l.name("drain")
	_, ok = l.acknowledged(s, http.StatusAccepted, http.MethodPost, "/v1/shutdowns", object{
		"instance_id": id, "intent": "graceful", "drain_timeout_seconds": 3600, "subscriptions": []string{"s-" + id},
	})
	if ok {
		l.remember(fact{"drain of " + id, field("/v1/peers/"+id, "status", "draining", "terminated", "healthy", "unknown"), id})
	}
	return id, ok
}

func (l *load) claim(s *service) {
	id := l.name("claimant")
	if _, ok := l.acknowledged(s, http.StatusOK, http.MethodPost, "/v1/heartbeats", object{"instance_id": id}); !ok {
		return
	}
	c, ok := l.acknowledged(s, http.StatusCreated, http.MethodPost, "/v1/claims", object{"instance_id": id, "subscription": "sub-" + id})
	if !ok {
		return
	}
	claimID, _ := c["id"].(string)
	l.remember(fact{"claim " + claimID, field("/v1/claims/"+claimID, "fencing_token", c["fencing_token"]), ""})
}

func (l *load) assign(s *service) {
	a, ok := l.acknowledged(s, http.StatusCreated, http.MethodPost, "/v1/assignments", object{"target_instance_id": l.name("target"), "subscriptions": []string{"x"}})
	if ok {
		id, _ := a["id"].(string)
		l.remember(fact{"assignment " + id, field("/v1/assignments/"+id, "id", id), ""})
	}
}

func (l *load) cancel(s *service) {
	id, ok := l.drain(s)
	if !ok {
		return
	}
	if _, ok := l.acknowledged(s, http.StatusOK, http.MethodDelete, "/v1/peers/"+id+"/shutdown", nil); ok {
		l.remember(fact{"cancelled drain of " + id, field("/v1/peers/"+id, "shutdown", nil), ""})
	}
}

func (l *load) remove(s *service) {
	id := l.name("removed")
	if _, ok := l.acknowledged(s, http.StatusAccepted, http.MethodPost, "/v1/shutdowns", object{"instance_id": id, "intent": "graceful"}); !ok {
		return
	}
	if _, ok := l.acknowledged(s, http.StatusNoContent, http.MethodDelete, "/v1/peers/"+id, nil); ok {
		l.remember(fact{"removal of " + id, func(s *service) error {
			status, answer, err := s.try(http.MethodGet, "/v1/peers/"+id, nil)
			if err == nil && status != http.StatusNotFound {
				err = fmt.Errorf("%d %v", status, answer)
			}
			return err
		}, id})
	}
}

func (l *load) dismiss(s *service) {
	id, ok := l.drain(s)
	if !ok {
		return
	}
	status, list, err := s.try(http.MethodGet, "/v1/orphans?instance_id="+id, nil)
	if err != nil {
		return
	}
	found := list["items"]
	orphans, _ := found.([]any)
	if !assert.Equal(l.t, http.StatusOK, status) || !assert.Len(l.t, orphans, 1, "an acknowledged drain has its orphan") {
		return
	}
	orphan, _ := orphans[0].(object)
	orphanID, _ := orphan["id"].(string)
	if _, ok := l.acknowledged(s, http.StatusOK, http.MethodPost, "/v1/orphans/"+orphanID+"/dismiss", object{"reason": "test"}); ok {
		l.remember(fact{"dismissal of " + orphanID, field("/v1/orphans/"+orphanID, "resolution", "dismissed"), ""})
	}
}

// field looks whether a resource is there and has one of the values.
func field(path, name string, values ...any) func(s *service) error {
	return func(s *service) error {
		status, answer, err := s.try(http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		if status != http.StatusOK {
			return fmt.Errorf("GET %s: %d %v", path, status, answer)
		}
		for _, v := range values {
			if answer[name] == v {
				return nil
			}
		}
		return fmt.Errorf("GET %s: %s is %v, want one of %v", path, name, answer[name], values)
	}
}

func (l *load) verify(s *service, facts []fact) {
	l.t.Helper()
	for _, f := range facts {
		if err := f.holds(s); err != nil {
			assert.Fail(l.t, "acknowledged and lost: "+f.what, err.Error())
		}
	}
}

// verifyPeers looks for the peers that had been known for more than a second when the service was killed.
func (l *load) verifyPeers(s *service, killed time.Time) {
	l.t.Helper()
	there := map[string]bool{}
	for cursor := ""; ; {
		page := s.get("/v1/peers?limit=1000&q=peer-&cursor=" + url.QueryEscape(cursor))
		for _, p := range items(l.t, page) {
			if id, ok := p["instance_id"].(string); ok {
				there[id] = true
			}
		}
		next, more := page["next_cursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	for id, since := range l.fresh {
		if killed.Sub(since) > time.Second {
			l.known[id] = true
		}
	}
	for id := range l.known {
		assert.True(l.t, there[id], "forgotten: %s, fresh since %s", id, l.fresh[id])
	}
	l.known = there
}

// verifyTold waits for the webhook to have heard of every acknowledged drain.
func (l *load) verifyTold(s *service, hook *receiver) {
	l.t.Helper()
	missing := func() []string {
		heard := map[string]bool{}
		for _, d := range hook.deliveries("peer.draining") {
			heard[d.event.Data.InstanceID] = true
		}
		var names []string
		for _, f := range l.facts {
			if f.told != "" && !heard[f.told] {
				names = append(names, f.told)
			}
		}
		return names
	}
	assert.Eventually(l.t, func() bool { return len(missing()) == 0 }, 20*time.Second, 50*time.Millisecond, "an acknowledged drain is never told")
	for _, id := range missing() {
		_, peer, err := s.try(http.MethodGet, "/v1/peers/"+id, nil)
		assert.Fail(l.t, "acknowledged and never told", "%s\npeer: %v %v\nevents: %v", id, peer, err, s.get("/v1/events?instance_id="+id))
	}
	assertTold(l.t, hook.deliveries("*"))
	events := map[string]string{}
	for _, d := range hook.deliveries("peer.draining") {
		if id, seen := events[d.event.Data.InstanceID]; seen {
			assert.Equal(l.t, id, d.event.ID, "%s began to drain twice", d.event.Data.InstanceID)
		}
		events[d.event.Data.InstanceID] = d.event.ID
	}
}
