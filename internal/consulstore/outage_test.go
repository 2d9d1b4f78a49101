//go:build integration

package consulstore

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/test/engine"
)

func TestASilentConsulHoldsNobodyAndIsNoticed(t *testing.T) {
	const timeout = time.Second
	way := engine.NewProxy(t, shared(t).Addr(1))
	s := start(t, Options{Client: clientOf(t, way.Addr(), ""), Timeout: timeout})
	begin := mustCommit(t, s, put("k", "before"))
	changes, ended := watching(t, s, begin)
	reach(t, mustCommit(t, s, put("k", "seen")), changes, ended)
	way.Cut()
	paused := time.Now()
	eventually(t, 2500*time.Millisecond, "health tells though nobody commits", func() bool { return !s.Health().Ready })
	if h := s.Health(); !strings.Contains(h.Reason, "no answer") || h.Since.Before(paused) {
		t.Errorf("health is %+v", h)
	}
	within := func(what string, limit time.Duration, want error, call func(context.Context) error) {
		t.Helper()
		began := time.Now()
		err := call(t.Context())
		if took := time.Since(began); !errors.Is(err, want) || took > limit {
			t.Errorf("%s: %v after %v, want %v within %v", what, err, took, want, limit)
		}
	}
	const slack = 500 * time.Millisecond
	within("get", timeout+slack, service.ErrUnavailable, func(ctx context.Context) error {
		_, err := s.Get(ctx, "k")
		return err
	})
	within("commit", timeout+slack, service.ErrUnavailable, func(ctx context.Context) error {
		_, err := s.Commit(ctx, put("k", "lost"))
		return err
	})
	within("get with a deadline", slack, context.DeadlineExceeded, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, slack/5)
		defer cancel()
		_, err := s.Get(ctx, "k")
		return err
	})
	// More commits than may be in flight: none waits for its turn longer than for its answer.
	var wg sync.WaitGroup
	for range 3 * s.options.MaxInFlight {
		wg.Go(func() {
			within("one of many commits", 2*timeout+slack, service.ErrUnavailable, func(ctx context.Context) error {
				_, err := s.Commit(ctx, put("k", "lost"))
				return err
			})
		})
	}
	wg.Wait()
	way.Restore()
	eventually(t, 3*time.Second, "health recovers by itself", func() bool { return s.Health().Ready })
	reach(t, mustCommit(t, s, put("k", "after")), changes, ended)
}

func TestAnAbsentConsulIsNamed(t *testing.T) {
	way := engine.NewProxy(t, shared(t).Addr(1))
	s := start(t, Options{Client: clientOf(t, way.Addr(), "")})
	mustCommit(t, s, put("k", "1"))
	way.Refuse()
	_, err := s.Commit(t.Context(), put("k", "2"))
	wantError(t, err, service.ErrUnavailable)
	if !strings.Contains(err.Error(), way.Addr()) {
		t.Errorf("%v does not name %s", err, way.Addr())
	}
	if h := s.Health(); h.Ready || !strings.Contains(h.Reason, "cannot be reached") {
		t.Errorf("health is %+v", h)
	}
}

// Writers append to lists of their own by compare-and-set while the server that leads is killed. What was acknowledged is there, once; what was not may be there, once.
func TestNoAcknowledgedWriteIsLostWithConsulsLeader(t *testing.T) {
	const nodes, writers = 3, 4
	c := engine.StartConsul(t, nodes)
	doomed := c.Leader()
	survivor := doomed%nodes + 1
	s := start(t, Options{Client: clientOf(t, c.Addr(survivor), ""), Timeout: 2 * time.Second})
	begin := mustCommit(t, s, put("start", ""))
	changes, ended := watching(t, s, begin)

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	outcomes := make([]map[string]uint64, writers)
	for w := range writers {
		outcomes[w] = map[string]uint64{}
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("%d/%06d", w, n)
				revision, err := s.Commit(context.WithoutCancel(ctx), service.Txn{
					Checks: []service.Check{{Key: key}}, Puts: []service.Put{{Key: key, Value: []byte(key)}},
				})
				switch {
				case err == nil:
					outcomes[w][key] = revision
				case errors.Is(err, service.ErrUnavailable):
					wait(ctx, 10*time.Millisecond)
				default:
					t.Errorf("%s: %v", key, err)
					return
				}
			}
		})
	}
	progress := func(what string) {
		t.Helper()
		_, before, err := s.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, what, func() bool {
			_, now, err := s.List(t.Context(), "")
			return err == nil && now > before+100
		})
	}
	progress("the writers write")
	c.Kill(doomed)
	killed := time.Now()
	eventually(t, 20*time.Second, "a commit succeeds under the next leader", func() bool {
		_, err := s.Commit(t.Context(), put("probe", "x"))
		return err == nil
	})
	t.Logf("first commit %v after the leader's death", time.Since(killed).Round(time.Millisecond))
	progress("the writers write on")
	stop()
	wg.Wait()

	records, revision, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	stored := make(map[string]uint64, len(records))
	for _, r := range records {
		stored[r.Key] = r.Revision
	}
	delivered := map[string]int{}
	for seen := begin; seen < revision; {
		change := next(t, changes, ended)
		if change.Revision <= seen {
			t.Fatalf("revision %d after %d", change.Revision, seen)
		}
		seen = change.Revision
		for _, p := range change.Puts {
			delivered[p.Key]++
		}
	}
	acknowledged := 0
	for _, w := range outcomes {
		for key, revision := range w {
			acknowledged++
			if stored[key] != revision {
				t.Errorf("%s was acknowledged at %d and is at %d", key, revision, stored[key])
			}
		}
	}
	for key, times := range delivered {
		if times != 1 && key != "probe" {
			t.Errorf("%s was written %d times", key, times)
		}
	}
	for key := range stored {
		if key != "start" && delivered[key] == 0 {
			t.Errorf("%s was never delivered", key)
		}
	}
	t.Logf("%d commits acknowledged, %d stored", acknowledged, len(stored)-2)
}

// A mass event: 10,000 peers' records in batches from many writers, while a session is renewed through the same agent as
// an elector does it.
func TestAMassEventStarvesNoSession(t *testing.T) {
	// The elector's defaults: every renewal must be through before the window closes on the one before it.
	const peers, window, every = 10_000, time.Second, 250 * time.Millisecond
	s := start(t, Options{})
	elector := clientOf(t, shared(t).Addr(1), "")
	fence := lead(t, elector, s.options.LeaderKey)

	ctx, stop := context.WithCancel(t.Context())
	var latencies []time.Duration
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		ticker := time.NewTicker(every / 10)
		defer ticker.Stop()
		for ctx.Err() == nil {
			began := time.Now()
			if entry, _, err := elector.Session().Renew(fence.Session, nil); err != nil || entry == nil {
				t.Errorf("renewal failed: %v", err)
			}
			latencies = append(latencies, time.Since(began))
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}()
	value := strings.Repeat("x", 700)
	batches := make(chan service.Txn, peers)
	for first := 0; first < peers; first += s.MaxOperations() {
		txn := service.Txn{Fence: &fence}
		for n := first; n < min(peers, first+s.MaxOperations()); n++ {
			txn.Puts = append(txn.Puts, service.Put{Key: "peer/default/worker-" + strconv.Itoa(n), Value: []byte(value)})
		}
		batches <- txn
	}
	close(batches)
	began := time.Now()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for txn := range batches {
				if _, err := s.Commit(t.Context(), txn); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	stop()
	<-renewing
	if records, _, err := s.List(t.Context(), "peer/"); err != nil || len(records) != peers {
		t.Errorf("%d of %d peers are there (%v)", len(records), peers, err)
	}
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	worst := latencies[len(latencies)-1]
	t.Logf("%d peers in %v; %d renewals, slowest %v", peers, took.Round(time.Millisecond), len(latencies), worst)
	if worst+every > window {
		t.Errorf("a renewal took %v: with one every %v the window of %v is missed", worst, every, window)
	}
}
