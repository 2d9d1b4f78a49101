//go:build e2e

package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The main story: a worker leaves, exactly one survivor takes its work over, and everybody who asked is told.
func TestAWorkerLeavesAndASurvivorTakesOver(t *testing.T) {
	t.Parallel()
	s, hook := serve(t, t.TempDir()), newReceiver(t)
	hook.register(s, "orphan.*", "peer.*")
	live := s.openStream("/v1/events")

	var took atomic.Bool
	s.keepBeating("survivor", func() object {
		if took.Load() {
			return object{"subscriptions": []string{"a", "b"}}
		}
		return object{"subscriptions": []string{"b"}}
	})
	stopLeaver := s.keepBeating("leaver", always(object{"subscriptions": []string{"a", "b"}, "in_flight_count": 3}))
	require.Equal(t, "healthy", s.status("leaver"))

	reply := s.call(http.StatusAccepted, http.MethodPost, "/v1/shutdowns", object{
		"instance_id": "leaver", "intent": "preemption", "drain_timeout_seconds": 1, "metadata": object{"node": "n7"},
	})
	assert.Equal(t, "draining", reply["status"])
	assert.Equal(t, "draining", s.status("leaver"))
	peer := s.get("/v1/peers/leaver")
	assert.InDelta(t, 1, peer["time_remaining_seconds"], 1)

	// What the survivor serves already is covered; the rest is an orphan that one may claim.
	assert.Equal(t, object{"leaver": []any{"a", "b"}}, s.get("/v1/orphaned-subscriptions"))
	open := items(t, s.get("/v1/orphans?state=open"))
	require.Len(t, open, 1)
	assert.Equal(t, "a", open[0]["subscription"])
	claim := s.call(http.StatusCreated, http.MethodPost, "/v1/claims", object{"instance_id": "survivor", "subscription": "a"})
	assert.Equal(t, false, claim["ready"], "the old owner is still at work")
	assert.NotNil(t, claim["not_before"])
	refused := s.call(http.StatusConflict, http.MethodPost, "/v1/claims", object{"instance_id": "other", "subscription": "a"})
	assert.Contains(t, []any{"survivor", nil}, refused["holder"])

	eventually(t, 3*time.Second, "the drain's deadline passes", func() bool { return s.status("leaver") == "terminated" })
	stopLeaver()
	claimID, _ := claim["id"].(string)
	eventually(t, 6*time.Second, "the claim turns ready", func() bool {
		ready, _ := s.get("/v1/claims/" + claimID)["ready"].(bool)
		return ready
	})
	took.Store(true)
	eventually(t, 3*time.Second, "the survivor reports what it claimed", func() bool { return s.get("/v1/claims/" + claimID)["state"] == "done" })
	assert.Empty(t, items(t, s.get("/v1/orphans?state=open")))

	// The stream told it, in order, and the webhook told it, signed.
	for _, eventType := range []string{"peer.draining", "orphan.detected", "orphan.claimed", "peer.terminated", "orphan.resolved"} {
		data := live.awaitEvent(t, eventType)
		var e event
		require.NoError(t, json.Unmarshal([]byte(data), &e))
		assert.Equal(t, "leaver", e.Data.InstanceID, eventType)
	}
	eventually(t, 5*time.Second, "the webhook hears of the end", func() bool { return len(hook.deliveries("orphan.resolved")) > 0 })
	detected := hook.deliveries("orphan.detected")
	require.Len(t, detected, 1)
	assert.Equal(t, "draining", detected[0].event.Data.Cause)
	assert.Equal(t, []string{"a", "b"}, detected[0].event.Data.Subscriptions)
	assert.Len(t, hook.deliveries("orphan.claimed"), 1)
	assert.Equal(t, "survivor", hook.deliveries("orphan.claimed")[0].event.Data.Claimant)
	assert.Equal(t, "taken_over", hook.deliveries("orphan.resolved")[0].event.Data.Resolution)
	assertTold(t, hook.deliveries("*"))

	code, needed := s.terminate()
	assert.Zero(t, code, s.logged())
	assert.Less(t, needed, 10*time.Second)
	assert.NotContains(t, s.logged(), `"level":"ERROR"`)
}

func TestACrashIsNoticedAndTold(t *testing.T) {
	t.Parallel()
	s, hook := serve(t, t.TempDir(), "--heartbeat-timeout", "1s"), newReceiver(t)
	hook.register(s, "*")
	stop := s.keepBeating("w1", always(object{"subscriptions": []string{"a"}}))
	stop()
	last := time.Now()
	eventually(t, 5*time.Second, "the crash is told", func() bool { return len(hook.deliveries("orphan.detected")) > 0 })
	assert.Greater(t, time.Since(last), 500*time.Millisecond)
	assert.Equal(t, "stale", s.status("w1"))
	assert.Equal(t, "stale", hook.deliveries("orphan.detected")[0].event.Data.Cause)
	s.beat("w1", object{"subscriptions": []string{"a"}})
	eventually(t, 5*time.Second, "the return is told", func() bool { return len(hook.deliveries("orphan.resolved")) > 0 })
	assert.Equal(t, "recovered", hook.deliveries("orphan.resolved")[0].event.Data.Resolution)
	assert.Len(t, hook.deliveries("peer.stale"), 1)
}

func TestManySurvivorsOneClaim(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	s.beat("leaver", object{"subscriptions": []string{"a"}})
	s.call(http.StatusAccepted, http.MethodPost, "/v1/shutdowns", object{"instance_id": "leaver", "intent": "graceful", "drain_timeout_seconds": 0})
	const survivors = 20
	ids := make([]string, survivors)
	for i := range ids {
		ids[i] = "survivor-" + string(rune('a'+i))
		s.beat(ids[i], nil)
	}
	type result struct {
		status int
		token  any
	}
	results := make(chan result, survivors)
	for _, id := range ids {
		go func() {
			status, answer, err := s.try(http.MethodPost, "/v1/claims", object{"instance_id": id, "subscription": "a"})
			assert.NoError(t, err)
			results <- result{status, answer["fencing_token"]}
		}()
	}
	won := 0
	for range ids {
		r := <-results
		if r.status == http.StatusCreated {
			won++
			continue
		}
		assert.Equal(t, http.StatusConflict, r.status)
	}
	assert.Equal(t, 1, won)
}

func TestScriptsCanSpeakToIt(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	script := func(args ...string) (string, int) {
		cmd := command(t.Context(), append(args, "--server", s.url)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			assert.NotNil(t, cmd.ProcessState, "%v", err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := script("heartbeat", "--instance-id", "cron", "--group", "default", "--subscription", "a", "--in-flight-count", "2")
	require.Zero(t, code, out)
	assert.Contains(t, out, `"status": "healthy"`)
	out, code = script("heartbeat", "--instance-id", strings.Repeat("x", 300))
	assert.Equal(t, 3, code)
	assert.Contains(t, out, "/instance_id")

	// The preStop hook returns when the worker has finished, long before the window is over.
	stop := s.keepBeating("hooked", always(object{"subscriptions": []string{"b"}, "in_flight_count": 1}))
	began := time.Now()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		out, code := script("shutdown", "--instance-id", "hooked", "--drain-timeout", "60s", "--wait", "--quiet")
		assert.Zero(t, code, out)
	}()
	eventually(t, 5*time.Second, "the announcement", func() bool { return s.status("hooked") == "draining" })
	stop()
	s.beat("hooked", object{"subscriptions": []string{}, "in_flight_count": 0})
	<-finished
	assert.Less(t, time.Since(began), 30*time.Second)

	health := command(t.Context(), "healthcheck", "--url", s.url, "--ready")
	assert.NoError(t, health.Run())
	s.kill()
	assert.Error(t, command(t.Context(), "healthcheck", "--url", s.url).Run())
}
