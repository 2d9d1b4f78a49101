package standalone

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

func TestAnElectorAloneAlwaysWins(t *testing.T) {
	a, b := newTestElector(t, ElectorOptions{Identity: "a"}), newTestElector(t, ElectorOptions{Identity: "b"})
	for _, e := range []*Elector{a, b, a, b} {
		if leads, err := e.TryAcquire(t.Context(), 0); err != nil || !leads {
			t.Fatalf("%s: %t, %v", e.Identity(), leads, err)
		}
	}
	a.ForceLoseLeadership()
	if a.IsLeader() || !b.IsLeader() {
		t.Errorf("after a was revoked: a leads %t, b leads %t", a.IsLeader(), b.IsLeader())
	}
}

func TestHoldsKnowsTheSessionInForceOnly(t *testing.T) {
	shared := NewSharedLeaderState()
	var during []bool
	var e, other *Elector
	e = newTestElector(t, ElectorOptions{Identity: "a", Shared: shared, Epoch: func(_ context.Context, _ string, f service.Fence) (uint64, error) {
		during = append(during, e.Holds(f), other.Holds(f), e.Holds(service.Fence{Session: f.Session, Epoch: 7}))
		return 7, nil
	}})
	other = newTestElector(t, ElectorOptions{Identity: "b", Shared: shared})
	if _, err := e.TryAcquire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if len(during) != 3 || !during[0] || !during[1] || during[2] {
		t.Errorf("while the epoch is taken: %v, want the session held, and not under an epoch not taken yet", during)
	}
	fence, _ := e.Fence()
	for _, test := range []struct {
		fence service.Fence
		want  bool
	}{
		{fence, true},
		{service.Fence{Session: fence.Session}, true},
		{service.Fence{Session: fence.Session, Epoch: 6}, false},
		{service.Fence{Session: "x", Epoch: 7}, false},
		{service.Fence{}, false},
	} {
		if got := other.Holds(test.fence); got != test.want {
			t.Errorf("holds %+v is %t", test.fence, got)
		}
	}
	if err := e.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Holds(fence) || e.Holds(service.Fence{}) {
		t.Error("a released term is held")
	}
}

func TestAnEpochThatDoesNotGrowIsRefused(t *testing.T) {
	epochs := []uint64{5, 5, 4, 6}
	e := newTestElector(t, ElectorOptions{Identity: "a", Epoch: func(context.Context, string, service.Fence) (uint64, error) {
		next := epochs[0]
		epochs = epochs[1:]
		return next, nil
	}})
	for _, want := range []bool{true, false, false, true} {
		leads, err := e.TryAcquire(t.Context(), 0)
		if leads != want || (err == nil) != want {
			t.Fatalf("got %t (%v), want %t", leads, err, want)
		}
		if h := e.Health(); h.Ready != want || strings.Contains(h.Reason, "epoch") == want {
			t.Errorf("health is %+v", h)
		}
		e.ForceLoseLeadership()
	}
	if e.Epoch() != 6 {
		t.Errorf("epoch %d, want 6", e.Epoch())
	}
}

func TestATermThatEndsWhileItsEpochIsTakenNeverLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *Elector
		heard := 0
		e = newTestElector(t, ElectorOptions{Identity: "a", Epoch: func(context.Context, string, service.Fence) (uint64, error) {
			e.ForceLoseLeadership()
			return 1, nil
		}})
		e.OnLeaderChange(func(service.LeaderChange) { heard++ })
		if leads, err := e.TryAcquire(t.Context(), 0); leads || err != nil || e.IsLeader() {
			t.Errorf("leads %t (%v)", leads, err)
		}
		synctest.Wait()
		if heard != 0 {
			t.Errorf("%d edges were told", heard)
		}
	})
}

func TestAcquiringIsBoundedByItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTestElector(t, ElectorOptions{Identity: "a", Epoch: func(ctx context.Context, _ string, _ service.Fence) (uint64, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}})
		for timeout, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: time.Minute} {
			begin := time.Now()
			leads, err := e.TryAcquire(t.Context(), timeout)
			if leads || !errors.Is(err, service.ErrUnavailable) || time.Since(begin) != want {
				t.Errorf("timeout %v: %t (%v) after %v", timeout, leads, err, time.Since(begin))
			}
		}
	})
}

// runAll runs electors in a bubble until the returned function is called.
func runAll(t *testing.T, electors ...*Elector) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	for _, e := range electors {
		go func() { _ = e.Run(ctx) }()
	}
	synctest.Wait()
	return func() {
		cancel()
		synctest.Wait()
	}
}

func TestAHandoffGoesToSomebodyElseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := NewSharedLeaderState()
		a := newTestElector(t, ElectorOptions{Identity: "a", Shared: shared})
		b := newTestElector(t, ElectorOptions{Identity: "b", Shared: shared})
		stopA := runAll(t, a)
		stopB := runAll(t, b)
		begin := time.Now()
		for _, turn := range []struct{ from, to *Elector }{{a, b}, {b, a}, {a, b}} {
			if !turn.from.IsLeader() {
				t.Fatalf("%s does not lead", turn.from.Identity())
			}
			if err := turn.from.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !turn.to.IsLeader() {
				t.Fatalf("after %s released, %q leads", turn.from.Identity(), a.CurrentLeader())
			}
		}
		stopB()
		if !a.IsLeader() || time.Since(begin) != 0 {
			t.Errorf("after b stopped, %q leads; %v have passed", a.CurrentLeader(), time.Since(begin))
		}
		stopA()
		if a.CurrentLeader() != "" {
			t.Errorf("after all stopped, %q leads", a.CurrentLeader())
		}
	})
}

func TestAReleasedElectorStandsBackWhenNobodyElseWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTestElector(t, ElectorOptions{Identity: "a", Shared: NewSharedLeaderState()})
		stop := runAll(t, e)
		defer stop()
		if err := e.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			wait time.Duration
			want bool
		}{{0, false}, {5*time.Second - 1, false}, {1, true}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if e.IsLeader() != step.want {
				t.Errorf("%v later it leads: %t", step.wait, e.IsLeader())
			}
		}
		e.ForceLoseLeadership()
		synctest.Wait()
		if !e.IsLeader() {
			t.Error("after a revocation it stands back")
		}
	})
}

func TestAnElectorAloneLeadsAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTestElector(t, ElectorOptions{Identity: "a"})
		defer runAll(t, e)()
		before, _ := e.Fence()
		if err := e.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if after, leads := e.Fence(); !leads || after.Session == before.Session || after.Epoch <= before.Epoch {
			t.Errorf("the term after %+v is %+v (leads: %t)", before, after, leads)
		}
	})
}

func TestRunBacksOffWhileEpochsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		e := newTestElector(t, ElectorOptions{Identity: "a", RetryMax: 300 * time.Millisecond, Epoch: func(context.Context, string, service.Fence) (uint64, error) {
			at = append(at, time.Since(begin)/time.Millisecond)
			return 0, service.ErrUnavailable
		}})
		stop := runAll(t, e)
		time.Sleep(time.Second)
		stop()
		want := []time.Duration{0, 100, 300, 600, 900}
		if len(at) != len(want) {
			t.Fatalf("attempts at %v ms, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("attempt %d at %v ms, want %v", i, at[i], want[i])
			}
		}
	})
}

func TestElectorOptionsAreValidated(t *testing.T) {
	for name, options := range map[string]ElectorOptions{
		"Identity": {},
		"Abstain":  {Identity: "a", Abstain: -1},
		"RetryMin": {Identity: "a", RetryMin: -1},
		"RetryMax": {Identity: "a", RetryMin: 2, RetryMax: 1},
	} {
		if _, err := NewElector(options); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want an error naming %s", options, err, name)
		}
	}
}
