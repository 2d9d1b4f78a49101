package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

// ElectorBackend is one leader key under test.
type ElectorBackend struct {
	// New returns a replica's elector for the key. Epoch may be nil: then the adapter counts epochs itself, or uses
	// a source of its own.
	New func(t *testing.T, identity string, epoch service.EpochSource) service.Elector
	// ForceLose ends the elector's term as a revocation would (the session destroyed behind its back).
	ForceLose func(t *testing.T, e service.Elector)
	// Alone says that electors do not compete: each leads by itself.
	Alone bool
	// Within bounds what may take time (5 s): noticing a revocation, taking over after a release.
	Within time.Duration
	// Rounds is how many changes of leader the long tests make (30).
	Rounds int
}

// ElectorFactory makes a free leader key; it registers its own clean-up.
type ElectorFactory func(t *testing.T) ElectorBackend

// Elector runs the suite of the Elector port.
func Elector(t *testing.T, factory ElectorFactory) {
	t.Helper()
	for _, test := range []struct {
		invariant string
		competing bool
		run       func(*testing.T, ElectorBackend)
	}{
		{"nobody leads before acquiring", false, nobodyLeadsBeforeAcquiring},
		{"a leader knows its term", false, aLeaderKnowsItsTerm},
		{"acquiring twice is one term", false, acquiringTwiceIsOneTerm},
		{"release is safe when not leading", false, releaseIsSafeWhenNotLeading},
		{"release works with a cancelled context", false, releaseWorksWithACancelledContext},
		{"every term has its own session and a larger epoch", false, everyTermHasItsOwnSessionAndALargerEpoch},
		{"renew reports the truth", false, renewReportsTheTruth},
		{"a revoked term is lost", false, aRevokedTermIsLost},
		{"leadership is not reported without an epoch", false, leadershipIsNotReportedWithoutAnEpoch},
		{"run tries again after an epoch failed", false, runTriesAgainAfterAnEpochFailed},
		{"listeners hear edges only", false, listenersHearEdgesOnly},
		{"listeners are called in registration order", false, listenersAreCalledInRegistrationOrder},
		{"a panicking listener harms nobody", false, aPanickingListenerHarmsNobody},
		{"a slow listener delays no election", false, aSlowListenerDelaysNoElection},
		{"a removed listener hears nothing", false, aRemovedListenerHearsNothing},
		{"an attempt with a cancelled context does not lead", false, anAttemptWithACancelledContextDoesNotLead},
		{"run leads until its context ends", false, runLeadsUntilItsContextEnds},
		{"an elector is ready", false, anElectorIsReady},
		{"the first wins, the others get false", true, theFirstWins},
		{"only one of many leads", true, onlyOneOfManyLeads},
		{"the next leader takes over after a release", true, theNextLeaderTakesOverAfterARelease},
		{"never two leaders, epochs strictly grow", true, neverTwoLeaders},
	} {
		t.Run(test.invariant, func(t *testing.T) {
			backend := factory(t)
			backend.Within = within(backend.Within)
			if backend.Rounds == 0 {
				backend.Rounds = 30
			}
			if test.competing && backend.Alone {
				eachLeadsAlone(t, backend)
				return
			}
			test.run(t, backend)
		})
	}
}

func acquire(t *testing.T, e service.Elector) service.Fence {
	t.Helper()
	leads, err := e.TryAcquire(t.Context(), 0)
	if err != nil || !leads {
		t.Fatalf("%s: acquire: %t, %v", e.Identity(), leads, err)
	}
	fence, leading := e.Fence()
	if !leading {
		t.Fatalf("%s leads without a fence", e.Identity())
	}
	return fence
}

func release(t *testing.T, e service.Elector) {
	t.Helper()
	if err := e.Release(t.Context()); err != nil {
		t.Fatalf("%s: release: %v", e.Identity(), err)
	}
}

func wantNotLeading(t *testing.T, e service.Elector) {
	t.Helper()
	if fence, leading := e.Fence(); e.IsLeader() || leading || e.CurrentLeader() == e.Identity() {
		t.Fatalf("%s leads (%t, %+v), current leader %q", e.Identity(), e.IsLeader(), fence, e.CurrentLeader())
	}
}

func eachLeadsAlone(t *testing.T, b ElectorBackend) {
	for i := range 3 {
		e := b.New(t, fmt.Sprintf("replica-%d", i), nil)
		acquire(t, e)
		t.Cleanup(func() { _ = e.Release(context.WithoutCancel(t.Context())) })
	}
}

func nobodyLeadsBeforeAcquiring(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	wantNotLeading(t, e)
	if e.Identity() != "replica-a" || e.CurrentLeader() != "" {
		t.Errorf("identity %q, current leader %q", e.Identity(), e.CurrentLeader())
	}
}

func aLeaderKnowsItsTerm(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	fence := acquire(t, e)
	if !e.IsLeader() || e.CurrentLeader() != "replica-a" {
		t.Errorf("leading is %t, current leader %q", e.IsLeader(), e.CurrentLeader())
	}
	if fence.Session == "" || fence.Epoch == 0 || e.Epoch() != fence.Epoch {
		t.Errorf("fence %+v, epoch %d", fence, e.Epoch())
	}
	release(t, e)
	wantNotLeading(t, e)
	if e.Epoch() != fence.Epoch {
		t.Errorf("after the term the newest known epoch is %d, want %d", e.Epoch(), fence.Epoch)
	}
}

func acquiringTwiceIsOneTerm(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	if first, second := acquire(t, e), acquire(t, e); first != second {
		t.Errorf("the second acquire changed the term from %+v to %+v", first, second)
	}
	release(t, e)
}

func releaseIsSafeWhenNotLeading(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	release(t, e)
	acquire(t, e)
	release(t, e)
	release(t, e)
	wantNotLeading(t, e)
	if b.Alone {
		return
	}
	other := b.New(t, "replica-b", nil)
	acquire(t, other)
	release(t, e)
	if !other.IsLeader() {
		t.Error("a release by somebody who does not lead ended another's term")
	}
	release(t, other)
}

func releaseWorksWithACancelledContext(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	acquire(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Release(ctx); err != nil {
		t.Fatalf("release: %v", err)
	}
	wantNotLeading(t, e)
	other := b.New(t, "replica-b", nil)
	eventually(t, b.Within, "another replica leads after a release with a cancelled context", func() bool {
		leads, err := other.TryAcquire(t.Context(), 0)
		return err == nil && leads
	})
	release(t, other)
}

func everyTermHasItsOwnSessionAndALargerEpoch(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	sessions := map[string]bool{}
	var last uint64
	for range 5 {
		var fence service.Fence
		eventually(t, b.Within, "the next term", func() bool {
			leads, err := e.TryAcquire(t.Context(), 0)
			fence, _ = e.Fence()
			return err == nil && leads
		})
		if sessions[fence.Session] || fence.Epoch <= last {
			t.Fatalf("term %+v after epoch %d (session seen before: %t)", fence, last, sessions[fence.Session])
		}
		sessions[fence.Session], last = true, fence.Epoch
		release(t, e)
	}
}

func renewReportsTheTruth(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	for _, step := range []struct {
		what   string
		change func()
		want   bool
	}{
		{"before acquiring", func() {}, false},
		{"while leading", func() { acquire(t, e) }, true},
		{"after the release", func() { release(t, e) }, false},
	} {
		step.change()
		if leads, err := e.Renew(t.Context()); err != nil || leads != step.want {
			t.Errorf("%s: renew says %t (%v), want %t", step.what, leads, err, step.want)
		}
	}
}

func aRevokedTermIsLost(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	changes := make(chan service.LeaderChange, 10)
	e.OnLeaderChange(func(c service.LeaderChange) { changes <- c })
	fence := acquire(t, e)
	b.ForceLose(t, e)
	eventually(t, b.Within, "the revocation is noticed", func() bool {
		leads, err := e.Renew(t.Context())
		return err == nil && !leads
	})
	wantNotLeading(t, e)
	for _, want := range []service.LeaderChange{{Leading: true, Fence: fence}, {Leading: false, Fence: fence}} {
		if got := receive(t, b.Within, "a leader change", changes); got != want {
			t.Errorf("heard %+v, want %+v", got, want)
		}
	}
}

func leadershipIsNotReportedWithoutAnEpoch(t *testing.T, b ElectorBackend) {
	unavailable := errors.New("the store is away")
	asked := make(chan service.Fence, 10)
	var broken atomic.Bool
	broken.Store(true)
	var e service.Elector
	e = b.New(t, "replica-a", func(_ context.Context, identity string, fence service.Fence) (uint64, error) {
		if e.IsLeader() {
			t.Error("leadership was reported before the epoch was taken")
		}
		if identity != "replica-a" || fence.Epoch != 0 || fence.Session == "" {
			t.Errorf("the epoch source was asked by %q with %+v", identity, fence)
		}
		asked <- fence
		if broken.Load() {
			return 0, unavailable
		}
		return 41, nil
	})
	heard := make(chan service.LeaderChange, 10)
	e.OnLeaderChange(func(c service.LeaderChange) { heard <- c })
	leads, err := e.TryAcquire(t.Context(), 0)
	if leads || !errors.Is(err, unavailable) {
		t.Fatalf("acquire without an epoch: %t, %v", leads, err)
	}
	wantNotLeading(t, e)
	receive(t, b.Within, "the epoch source's call", asked)

	broken.Store(false)
	eventually(t, b.Within, "leading once the epoch can be taken", func() bool {
		leads, err := e.TryAcquire(t.Context(), 0)
		return err == nil && leads
	})
	fence, _ := e.Fence()
	if change := receive(t, b.Within, "the first edge", heard); !change.Leading || change.Fence != fence || fence.Epoch != 41 {
		t.Errorf("the first edge is %+v, the fence %+v; want leading at epoch 41", change, fence)
	}
	if session := receive(t, b.Within, "the epoch source's second call", asked).Session; session != fence.Session {
		t.Errorf("the epoch was taken by session %q, the term has %q", session, fence.Session)
	}
	release(t, e)
}

func runTriesAgainAfterAnEpochFailed(t *testing.T, b ElectorBackend) {
	var attempts atomic.Uint64
	e := b.New(t, "replica-a", func(context.Context, string, service.Fence) (uint64, error) {
		if n := attempts.Add(1); n > 2 {
			return n, nil
		}
		return 0, errors.New("the store is away")
	})
	background(t, func(ctx context.Context) { _ = e.Run(ctx) })
	eventually(t, b.Within, "leading at the third attempt", e.IsLeader)
	if e.Epoch() != 3 {
		t.Errorf("epoch %d, want 3", e.Epoch())
	}
}

// record returns a listener and what it hears.
func record(e service.Elector) <-chan service.LeaderChange {
	heard := make(chan service.LeaderChange, 1000)
	e.OnLeaderChange(func(c service.LeaderChange) { heard <- c })
	return heard
}

func listenersHearEdgesOnly(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	heard := record(e)
	release(t, e)
	first := acquire(t, e)
	acquire(t, e)
	if _, err := e.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, e)
	release(t, e)
	var second service.Fence
	eventually(t, b.Within, "a second term", func() bool {
		leads, err := e.TryAcquire(t.Context(), 0)
		second, _ = e.Fence()
		return err == nil && leads
	})
	for _, want := range []service.LeaderChange{{Leading: true, Fence: first}, {Fence: first}, {Leading: true, Fence: second}} {
		if got := receive(t, b.Within, "an edge", heard); got != want {
			t.Errorf("heard %+v, want %+v", got, want)
		}
	}
	release(t, e)
}

func listenersAreCalledInRegistrationOrder(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	const listeners, terms = 5, 3
	heard := make(chan int, 2*listeners*terms)
	for i := range listeners {
		e.OnLeaderChange(func(service.LeaderChange) { heard <- i })
	}
	for range terms {
		eventually(t, b.Within, "a term", func() bool {
			leads, err := e.TryAcquire(t.Context(), 0)
			return err == nil && leads
		})
		release(t, e)
	}
	for n := range 2 * listeners * terms {
		if got := receive(t, b.Within, "a call", heard); got != n%listeners {
			t.Fatalf("call %d went to listener %d, want %d", n, got, n%listeners)
		}
	}
}

func aPanickingListenerHarmsNobody(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	e.OnLeaderChange(func(service.LeaderChange) { panic("a listener's bug") })
	heard := record(e)
	fence := acquire(t, e)
	release(t, e)
	for _, want := range []service.LeaderChange{{Leading: true, Fence: fence}, {Fence: fence}} {
		if got := receive(t, b.Within, "an edge behind a panicking listener", heard); got != want {
			t.Errorf("heard %+v, want %+v", got, want)
		}
	}
}

func aSlowListenerDelaysNoElection(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	e.OnLeaderChange(func(service.LeaderChange) {
		entered <- struct{}{}
		<-leave
	})
	acquire(t, e)
	receive(t, b.Within, "the slow listener's call", entered)
	finished := make(chan error, 1)
	go func() {
		err := e.Release(t.Context())
		leads, acquireErr := b.New(t, "replica-b", nil).TryAcquire(t.Context(), 0)
		if !leads {
			acquireErr = errors.Join(acquireErr, errors.New("replica-b did not lead"))
		}
		finished <- errors.Join(err, acquireErr)
	}()
	if err := receive(t, b.Within, "release and takeover beside a slow listener", finished); err != nil {
		t.Error(err)
	}
	close(leave)
	receive(t, b.Within, "the slow listener's second call", entered)
}

func aRemovedListenerHearsNothing(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	var calls atomic.Int64
	handle := e.OnLeaderChange(func(service.LeaderChange) { calls.Add(1) })
	heard := record(e)
	e.RemoveLeaderChangeCallback(handle)
	e.RemoveLeaderChangeCallback(handle)
	e.RemoveLeaderChangeCallback(handle + 1000)
	if other := e.OnLeaderChange(func(service.LeaderChange) {}); other == handle {
		t.Errorf("handle %d was given again", handle)
	}
	acquire(t, e)
	release(t, e)
	receive(t, b.Within, "the kept listener's first edge", heard)
	receive(t, b.Within, "the kept listener's second edge", heard)
	if n := calls.Load(); n != 0 {
		t.Errorf("the removed listener was called %d times", n)
	}
}

func anAttemptWithACancelledContextDoesNotLead(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	leads, err := e.TryAcquire(ctx, 0)
	if leads || !errors.Is(err, context.Canceled) {
		t.Errorf("acquire with a cancelled context: %t, %v", leads, err)
	}
	wantNotLeading(t, e)
}

func runLeadsUntilItsContextEnds(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	heard := record(e)
	stop := background(t, func(ctx context.Context) {
		if err := e.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	if change := receive(t, b.Within, "leadership by Run", heard); !change.Leading {
		t.Fatalf("the first edge is %+v", change)
	}
	b.ForceLose(t, e)
	if change := receive(t, b.Within, "the loss", heard); change.Leading {
		t.Fatalf("the second edge is %+v", change)
	}
	if change := receive(t, b.Within, "Run's next term", heard); !change.Leading {
		t.Fatalf("the third edge is %+v", change)
	}
	stop()
	wantNotLeading(t, e)
	if change := receive(t, b.Within, "the release at the end", heard); change.Leading {
		t.Fatalf("the last edge is %+v", change)
	}
}

func anElectorIsReady(t *testing.T, b ElectorBackend) {
	e := b.New(t, "replica-a", nil)
	acquire(t, e)
	if h := e.Health(); h.Name != "elector" || h.Kind == "" || !h.Ready || h.Reason != "" || h.Since.IsZero() {
		t.Errorf("health is %+v", h)
	}
	release(t, e)
}

func theFirstWins(t *testing.T, b ElectorBackend) {
	first, second := b.New(t, "replica-a", nil), b.New(t, "replica-b", nil)
	fence := acquire(t, first)
	leads, err := second.TryAcquire(t.Context(), 0)
	if leads || err != nil {
		t.Fatalf("the second acquire: %t, %v; want false without an error", leads, err)
	}
	wantNotLeading(t, second)
	eventually(t, b.Within, "the follower knows who leads", func() bool {
		return second.CurrentLeader() == "replica-a" && second.Epoch() == fence.Epoch
	})
	if !first.IsLeader() {
		t.Error("the leader lost by another's attempt")
	}
	release(t, first)
}

// replicas makes n electors.
func replicas(t *testing.T, b ElectorBackend, n int) []service.Elector {
	t.Helper()
	electors := make([]service.Elector, n)
	for i := range electors {
		electors[i] = b.New(t, fmt.Sprintf("replica-%d", i), nil)
	}
	return electors
}

func onlyOneOfManyLeads(t *testing.T, b ElectorBackend) {
	electors := replicas(t, b, 8)
	won := make([]bool, len(electors))
	errs := race(len(electors), func(i int) error {
		var err error
		won[i], err = electors[i].TryAcquire(t.Context(), 0)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	leaders := 0
	for i, e := range electors {
		if won[i] != e.IsLeader() {
			t.Errorf("%s was told %t and says %t", e.Identity(), won[i], e.IsLeader())
		}
		if won[i] {
			leaders++
		}
	}
	if leaders != 1 {
		t.Fatalf("%d of %d lead", leaders, len(electors))
	}
	release(t, electors[slices.Index(won, true)])
}

func theNextLeaderTakesOverAfterARelease(t *testing.T, b ElectorBackend) {
	electors := replicas(t, b, 3)
	for _, e := range electors {
		background(t, func(ctx context.Context) { _ = e.Run(ctx) })
	}
	last := ""
	for range 4 {
		var leader service.Elector
		eventually(t, b.Within, "somebody else leads", func() bool {
			for _, e := range electors {
				if e.IsLeader() && e.Identity() != last {
					leader = e
					return true
				}
			}
			return false
		})
		last = leader.Identity()
		release(t, leader)
	}
}

// neverTwoLeaders looks at all electors while leadership keeps changing hands. To see a second leader beside a
// first, the first is asked before and after: a term never resumes, so that the same term twice was held in between.
func neverTwoLeaders(t *testing.T, b ElectorBackend) {
	electors := replicas(t, b, 4)
	var mu sync.Mutex
	var terms []service.Fence
	var heard []<-chan service.LeaderChange
	for _, e := range electors {
		e.OnLeaderChange(func(c service.LeaderChange) {
			if c.Leading {
				mu.Lock()
				defer mu.Unlock()
				terms = append(terms, c.Fence)
			}
		})
		heard = append(heard, record(e))
	}
	var stops []func()
	for _, e := range electors {
		stops = append(stops, background(t, func(ctx context.Context) { _ = e.Run(ctx) }))
	}
	stops = append(stops, background(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			if pair := twoLeaders(electors); pair != "" {
				t.Errorf("two leaders at once: %s", pair)
				return
			}
		}
	}))
	changeHands(t, b, electors)
	for _, stop := range stops {
		stop()
	}
	checkEdges(t, b, heard)
	mu.Lock()
	defer mu.Unlock()
	checkTerms(t, terms, b.Rounds)
}

func twoLeaders(electors []service.Elector) string {
	for i, e := range electors {
		first, leading := e.Fence()
		if !leading {
			continue
		}
		for j, other := range electors {
			if i == j {
				continue
			}
			second, otherLeads := other.Fence()
			if again, still := e.Fence(); otherLeads && still && again == first {
				return fmt.Sprintf("%s %+v and %s %+v", e.Identity(), first, other.Identity(), second)
			}
		}
	}
	return ""
}

func changeHands(t *testing.T, b ElectorBackend, electors []service.Elector) {
	t.Helper()
	for round := range b.Rounds {
		var leader service.Elector
		eventually(t, b.Within, "somebody leads", func() bool {
			i := slices.IndexFunc(electors, service.Elector.IsLeader)
			if i >= 0 {
				leader = electors[i]
			}
			return i >= 0
		})
		if round%2 == 0 {
			release(t, leader)
		} else {
			b.ForceLose(t, leader)
		}
	}
}

// checkEdges demands that each elector's edges alternate and pair up by term.
func checkEdges(t *testing.T, b ElectorBackend, heard []<-chan service.LeaderChange) {
	t.Helper()
	for i, changes := range heard {
		for len(changes) > 0 {
			gained := receive(t, b.Within, "an edge", changes)
			lost := receive(t, b.Within, "the loss of a term", changes)
			if !gained.Leading || lost.Leading || gained.Fence != lost.Fence {
				t.Fatalf("replica %d heard %+v and then %+v", i, gained, lost)
			}
		}
	}
}

func checkTerms(t *testing.T, terms []service.Fence, atLeast int) {
	t.Helper()
	if len(terms) < atLeast {
		t.Errorf("%d terms for %d changes", len(terms), atLeast)
	}
	epochs, sessions := map[uint64]bool{}, map[string]bool{}
	for _, f := range terms {
		if epochs[f.Epoch] || sessions[f.Session] {
			t.Fatalf("term %+v repeats an epoch or a session", f)
		}
		epochs[f.Epoch], sessions[f.Session] = true, true
	}
}
