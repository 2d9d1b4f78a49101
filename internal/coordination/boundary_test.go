package coordination

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// Every rule about a deadline is looked at one nanosecond before it, at it and one nanosecond after it.

const edge = 12 * time.Second // the heartbeat timeout in these tests

var edgeStart = time.Date(2026, 7, 27, 12, 0, 0, 0, time.UTC)

// world is a leading core with one group, told in times since edgeStart.
type world struct {
	t        *testing.T
	core     *Core
	revision uint64
	events   []Event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Default.HeartbeatTimeout = edge
	cfg.PeerRetention = time.Minute
	w := &world{t: t, core: New(cfg)}
	w.core.SetLeading(edgeStart, true, 1)
	return w
}

func peerKey(id string) PeerKey { return PeerKey{DefaultGroup, id} }

func (w *world) take(out *Output) { w.events = append(w.events, out.Events...) }

// heartbeat is a beat with both keys, stamped by a right clock.
func heartbeat(at time.Duration, id string, inFlight int64, subs ...string) *Heartbeat {
	return &Heartbeat{
		Group: DefaultGroup, InstanceID: id, Timestamp: edgeStart.Add(at), Subscriptions: subs, HasSubscriptions: true,
		InFlightCount: inFlight, HasInFlight: true,
	}
}

func (w *world) beat(at time.Duration, id string, inFlight int64, subs ...string) HeartbeatResult {
	w.t.Helper()
	return w.send(at, heartbeat(at, id, inFlight, subs...), Arrival{Entrance: EntranceHTTP})
}

func (w *world) send(at time.Duration, h *Heartbeat, a Arrival) HeartbeatResult {
	w.t.Helper()
	out, res, err := w.core.Heartbeat(edgeStart.Add(at), h, a)
	if err != nil {
		w.t.Fatal(err)
	}
	w.take(out)
	return res
}

func (w *world) tick(at time.Duration) { w.take(w.core.Tick(edgeStart.Add(at))) }

func (w *world) shutdown(at time.Duration, n Shutdown) ShutdownPlan {
	w.t.Helper()
	n.Group, n.Intent = DefaultGroup, IntentGraceful
	w.tick(at)
	plan, err := w.core.PlanShutdown(edgeStart.Add(at), &n, EntranceHTTP)
	if err != nil {
		w.t.Fatal(err)
	}
	if plan.Record != nil {
		w.revision++
		plan.Record.Revision = w.revision
		w.take(w.core.ApplyShutdown(edgeStart.Add(at), plan.Record))
	}
	return plan
}

// drain announces a shutdown at `at` that ends after d.
func (w *world) drain(at time.Duration, id string, d time.Duration) {
	w.t.Helper()
	w.shutdown(at, Shutdown{InstanceID: id, InitiatedAt: edgeStart.Add(at), DrainTimeout: d, HasDrainTimeout: true})
}

func (w *world) status(id string) Status { return w.core.StatusOf(peerKey(id)) }

func (w *world) known(id string) bool {
	_, known := w.core.Peer(peerKey(id))
	return known
}

// count is how many events of a type were raised about a peer, or about anybody.
func (w *world) count(t EventType, id string) int {
	n := 0
	for i := range w.events {
		if w.events[i].Type == t && (id == "" || w.events[i].Data.InstanceID == id) {
			n++
		}
	}
	return n
}

// around runs a case at −1 ns, 0 and +1 ns of a deadline, with what it should find.
func around[T comparable](t *testing.T, deadline time.Duration, want [3]T, find func(t *testing.T, at time.Duration) T) {
	t.Helper()
	for i, offset := range []time.Duration{-1, 0, 1} {
		t.Run(fmt.Sprintf("%+dns", offset), func(t *testing.T) {
			if got := find(t, deadline+offset); got != want[i] {
				t.Errorf("got %v, want %v", got, want[i])
			}
		})
	}
}

func TestStaleIsStrictlyOlderThanTheTimeout(t *testing.T) {
	around(t, edge, [3]Status{StatusHealthy, StatusHealthy, StatusStale}, func(t *testing.T, at time.Duration) Status {
		w := newWorld(t)
		w.beat(0, "a", 0, "s")
		w.tick(at)
		if stale := w.status("a") == StatusStale; stale != (w.count(EventPeerStale, "a") == 1) {
			t.Errorf("stale %t, but %d events", stale, w.count(EventPeerStale, "a"))
		}
		return w.status("a")
	})
}

func TestDrainEndsAtItsDeadline(t *testing.T) {
	around(t, 5*time.Second, [3]Status{StatusDraining, StatusTerminated, StatusTerminated}, func(t *testing.T, at time.Duration) Status {
		w := newWorld(t)
		w.beat(0, "a", 1, "s")
		w.drain(0, "a", 5*time.Second)
		w.tick(at)
		return w.status("a")
	})
}

func TestDrainOfNoTimeEndsAtOnce(t *testing.T) {
	around(t, 1, [3]Status{StatusTerminated, StatusDraining, StatusDraining}, func(t *testing.T, drain time.Duration) Status {
		w := newWorld(t)
		w.drain(time.Second, "a", drain)
		return w.status("a")
	})
}

// fourPeers has a, b, c and d beat at their times; what follows is a's and b's death.
func fourPeers(w *world, joined, dead time.Duration) {
	w.beat(0, "a", 0)
	w.beat(0, "b", 0)
	w.beat(joined, "c", 0)
	w.beat(joined, "d", 0)
	w.beat(dead, "c", 0)
	w.beat(dead, "d", 0)
	w.tick(edge + 1)
}

func TestMassCountsThoseHealthyOneTimeoutEarlier(t *testing.T) {
	// a and b turn stale at edge + 1: who joined by 1 ns was healthy one timeout earlier.
	around(t, 1, [3]int{1, 1, 0}, func(t *testing.T, joined time.Duration) int {
		w := newWorld(t)
		fourPeers(w, joined, edge)
		return w.count(EventGroupMassStaleness, "")
	})
}

func TestMassStalenessIsWithinOneTimeout(t *testing.T) {
	// a turns stale at edge + 1, b at `second`: one timeout later a was not healthy one timeout before.
	first := edge + 1
	around(t, first+edge, [3]int{1, 0, 0}, func(t *testing.T, second time.Duration) int {
		w := newWorld(t)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.beat(0, id, 0)
		}
		for _, at := range []time.Duration{time.Second, second - edge - 1} {
			w.beat(at, "b", 0)
			w.beat(at, "c", 0)
			w.beat(at, "d", 0)
		}
		w.tick(first)
		if w.status("a") != StatusStale || w.status("b") != StatusHealthy {
			t.Fatalf("a is %s, b %s", w.status("a"), w.status("b"))
		}
		w.beat(second-1, "c", 0)
		w.beat(second-1, "d", 0)
		w.tick(second)
		if w.status("b") != StatusStale {
			t.Fatalf("b is %s", w.status("b"))
		}
		return w.count(EventGroupMassStaleness, "")
	})
}

func TestHoldEndsOneTimeoutAfterItBegan(t *testing.T) {
	around(t, 2*edge+1, [3]int{0, 4, 4}, func(t *testing.T, at time.Duration) int {
		w := newWorld(t)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.beat(0, id, 0, "of-"+id)
		}
		w.tick(edge + 1)
		if w.count(EventGroupMassStaleness, "") != 1 || w.count(EventOrphanDetected, "") != 0 {
			t.Fatalf("%d mass events, %d orphan events", w.count(EventGroupMassStaleness, ""), w.count(EventOrphanDetected, ""))
		}
		w.tick(at)
		if ended := w.count(EventGroupMassStalenessEnded, "") == 1; ended != (w.count(EventOrphanDetected, "") > 0) {
			t.Errorf("ended %t with %d orphan events", ended, w.count(EventOrphanDetected, ""))
		}
		return w.count(EventOrphanDetected, "")
	})
}

func TestConflictLastsLongerThanOneTimeout(t *testing.T) {
	around(t, edge, [3]int{0, 0, 1}, func(t *testing.T, at time.Duration) int {
		w := newWorld(t)
		w.beat(0, "a", 0, "s")
		w.beat(0, "b", 0, "s")
		w.beat(time.Second, "a", 0, "s")
		w.beat(time.Second, "b", 0, "s")
		w.tick(at)
		return w.count(EventSubscriptionConflict, "")
	})
}

func TestRetentionIsStrictlyLonger(t *testing.T) {
	staleAt := edge + 1
	around(t, staleAt+time.Minute, [3]bool{true, true, false}, func(t *testing.T, at time.Duration) bool {
		w := newWorld(t)
		w.beat(0, "a", 0)
		w.tick(staleAt)
		w.tick(at)
		return w.known("a")
	})
	t.Run("with an open orphan", func(t *testing.T) {
		w := newWorld(t)
		w.beat(0, "a", 0, "s")
		w.tick(staleAt)
		w.tick(staleAt + time.Hour)
		if !w.known("a") {
			t.Error("forgotten with an open orphan")
		}
	})
}

func TestRejoinTakesAThirdOfATimeout(t *testing.T) {
	ended := time.Second
	t.Run("after the first idle beat", func(t *testing.T) {
		first := 2 * time.Second
		around(t, first+edge/3, [3]Status{StatusTerminated, StatusHealthy, StatusHealthy}, func(t *testing.T, at time.Duration) Status {
			w := newWorld(t)
			w.beat(0, "a", 1, "s")
			w.drain(0, "a", ended)
			w.beat(first, "a", 0, "s")
			return w.beat(at, "a", 0, "s").Status
		})
	})
	t.Run("after the last overdue beat", func(t *testing.T) {
		busy := 3 * time.Second
		around(t, busy+edge/3, [3]Status{StatusTerminated, StatusTerminated, StatusTerminated}, func(t *testing.T, at time.Duration) Status {
			w := newWorld(t)
			w.beat(0, "a", 1, "s")
			w.drain(0, "a", ended)
			w.beat(busy, "a", 1, "s")
			return w.beat(at, "a", 0, "s").Status // the first idle one
		})
	})
}

func TestIDConflictTakesBothWithinOneTimeout(t *testing.T) {
	named := func(at time.Duration, incarnation string) *Heartbeat {
		h := heartbeat(at, "a", 0)
		h.Incarnation = incarnation
		return h
	}
	direct := Arrival{Entrance: EntranceHTTP}
	t.Run("begins", func(t *testing.T) {
		around(t, edge, [3]int{1, 1, 0}, func(t *testing.T, at time.Duration) int {
			w := newWorld(t)
			w.send(0, named(0, "one"), direct)
			w.send(0, named(0, "two"), direct)
			if res := w.send(at, named(at, "one"), direct); res.Outcome != OutcomeIgnoredStale {
				t.Errorf("outcome %s", res.Outcome)
			}
			return w.count(EventPeerIDConflict, "a")
		})
	})
	t.Run("ends", func(t *testing.T) {
		// The superseded one is silent from 1 s on; only after more than one timeout is its next beat a new conflict.
		around(t, time.Second+edge, [3]int{1, 1, 2}, func(t *testing.T, at time.Duration) int {
			w := newWorld(t)
			w.send(0, named(0, "one"), direct)
			w.send(0, named(0, "two"), direct)
			w.send(time.Second, named(time.Second, "one"), direct)
			w.send(10*time.Second, named(10*time.Second, "two"), direct)
			w.send(at, named(at, "one"), direct)
			return w.count(EventPeerIDConflict, "a")
		})
	})
}

func (w *world) claim(at time.Duration, subscription, id string) (ClaimRecord, error) {
	w.t.Helper()
	k := SubscriptionKey{DefaultGroup, subscription}
	plan, err := w.core.PlanClaim(edgeStart.Add(at), k, id)
	if err != nil {
		return ClaimRecord{}, err
	}
	w.revision++
	plan.Record.Revision = w.revision
	w.take(w.core.ApplyClaim(edgeStart.Add(at), *plan.Record))
	rec, _ := w.core.ClaimRecord(k)
	return rec, nil
}

func TestClaimOfAHolderNeverHeardEndsAfterOneTimeout(t *testing.T) {
	claimed := time.Second
	around(t, claimed+edge, [3]ClaimState{ClaimActive, ClaimActive, ClaimExpired}, func(t *testing.T, at time.Duration) ClaimState {
		w := newWorld(t)
		if _, err := w.claim(claimed, "s", "nobody"); err != nil {
			t.Fatal(err)
		}
		w.tick(at)
		rec, _ := w.core.ClaimRecord(SubscriptionKey{DefaultGroup, "s"})
		return rec.State
	})
}

func TestClaimOfAHolderThatFallsSilentEndsWhenItIsStale(t *testing.T) {
	around(t, edge, [3]ClaimState{ClaimActive, ClaimActive, ClaimExpired}, func(t *testing.T, at time.Duration) ClaimState {
		w := newWorld(t)
		w.beat(0, "a", 0)
		if _, err := w.claim(time.Second, "s", "a"); err != nil {
			t.Fatal(err)
		}
		w.tick(at)
		rec, _ := w.core.ClaimRecord(SubscriptionKey{DefaultGroup, "s"})
		return rec.State
	})
}

func TestClaimIsReadyOneTimeoutAfterTheDeadline(t *testing.T) {
	deadline := 5 * time.Second
	around(t, deadline+edge, [3]bool{false, true, true}, func(t *testing.T, at time.Duration) bool {
		w := newWorld(t)
		w.beat(0, "old", 1, "s")
		w.beat(0, "new", 0)
		w.drain(0, "old", deadline)
		rec, err := w.claim(time.Second, "s", "new")
		if err != nil {
			t.Fatal(err)
		}
		if rec.Ready || !rec.NotBefore.Equal(edgeStart.Add(deadline)) {
			t.Errorf("ready %t, not before %s", rec.Ready, rec.NotBefore)
		}
		w.beat(10*time.Second, "new", 0)
		w.tick(at)
		rec, _ = w.core.ClaimRecord(SubscriptionKey{DefaultGroup, "s"})
		return rec.Ready
	})
}

func TestClaimIsReadyOneTimeoutAfterTheLastOverdueBeat(t *testing.T) {
	busy := 8 * time.Second
	around(t, busy+edge, [3]bool{false, true, true}, func(t *testing.T, at time.Duration) bool {
		w := newWorld(t)
		w.beat(0, "old", 1, "s")
		w.beat(0, "new", 0)
		w.drain(0, "old", time.Second)
		if _, err := w.claim(time.Second, "s", "new"); err != nil {
			t.Fatal(err)
		}
		w.beat(busy, "old", 1, "s")
		w.beat(10*time.Second, "new", 0)
		w.tick(at)
		rec, _ := w.core.ClaimRecord(SubscriptionKey{DefaultGroup, "s"})
		return rec.Ready
	})
}

func TestHeldOrphansCanBeClaimedFromTheEndOfTheHold(t *testing.T) {
	around(t, 2*edge+1, [3]bool{false, true, true}, func(t *testing.T, at time.Duration) bool {
		w := newWorld(t)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.beat(0, id, 0, "of-"+id)
		}
		w.tick(edge + 1)
		w.beat(2*edge, "new", 0)
		_, err := w.claim(at, "of-a", "new")
		if err != nil && !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
}

func TestSkewMovesADeadlineFromTwoSecondsOn(t *testing.T) {
	completion := 10 * time.Second
	for _, name := range []string{"ahead", "behind"} {
		t.Run(name, func(t *testing.T) {
			around(t, 2*time.Second, [3]bool{false, false, true}, func(t *testing.T, skew time.Duration) bool {
				if name == "behind" {
					skew = -skew
				}
				w := newWorld(t)
				h := heartbeat(0, "a", 1, "s")
				h.Timestamp = edgeStart.Add(skew)
				w.send(0, h, Arrival{Entrance: EntranceHTTP})
				plan := w.shutdown(0, Shutdown{
					InstanceID: "a", InitiatedAt: edgeStart.Add(skew), ExpectedCompletionAt: edgeStart.Add(completion + skew),
				})
				// Moved, the window lasts as long here as there.
				return plan.Record.Deadline.Equal(edgeStart.Add(completion))
			})
		})
	}
	t.Run("by initiated_at alone", func(t *testing.T) {
		around(t, 2*time.Second, [3]bool{false, false, true}, func(t *testing.T, skew time.Duration) bool {
			w := newWorld(t)
			plan := w.shutdown(0, Shutdown{InstanceID: "a", InitiatedAt: edgeStart.Add(skew), ExpectedCompletionAt: edgeStart.Add(completion + skew)})
			return plan.Record.Deadline.Equal(edgeStart.Add(completion))
		})
	})
	t.Run("by initiated_at of a clock that is behind never", func(t *testing.T) {
		w := newWorld(t)
		plan := w.shutdown(0, Shutdown{InstanceID: "a", InitiatedAt: edgeStart.Add(-time.Hour), ExpectedCompletionAt: edgeStart.Add(completion)})
		if !plan.Record.Deadline.Equal(edgeStart.Add(completion)) {
			t.Errorf("deadline %s", plan.Record.Deadline)
		}
	})
}

func TestAWindowThatEndedMoreThanOneTimeoutBeforeTheLatestStampIsPast(t *testing.T) {
	stamp := time.Minute
	around(t, stamp-edge, [3]Outcome{OutcomeIgnoredStale, OutcomeAccepted, OutcomeAccepted}, func(t *testing.T, end time.Duration) Outcome {
		w := newWorld(t)
		w.beat(stamp, "a", 1, "s")
		return w.shutdown(stamp, Shutdown{InstanceID: "a", InitiatedAt: edgeStart, ExpectedCompletionAt: edgeStart.Add(end)}).Outcome
	})
}

func TestARelayedBeatOlderThanOneTimeoutIsDropped(t *testing.T) {
	around(t, edge, [3]Outcome{OutcomeAccepted, OutcomeAccepted, OutcomeIgnoredStale}, func(t *testing.T, age time.Duration) Outcome {
		w := newWorld(t)
		return w.send(time.Minute, heartbeat(0, "a", 0), Arrival{Entrance: EntranceBus, Relayed: true, Age: age}).Outcome
	})
}

func TestAnOlderBeatRefreshesLivenessOnly(t *testing.T) {
	around(t, 5*time.Second, [3]Outcome{OutcomeIgnoredOlder, OutcomeAccepted, OutcomeAccepted}, func(t *testing.T, stamp time.Duration) Outcome {
		w := newWorld(t)
		w.beat(5*time.Second, "a", 0, "new")
		res := w.send(6*time.Second, heartbeat(stamp, "a", 0, "old"), Arrival{Entrance: EntranceHTTP})
		v, _ := w.core.Peer(peerKey("a"))
		want := "new"
		if res.Outcome == OutcomeAccepted {
			want = "old"
		}
		if !slices.Equal(v.Subs, []string{want}) || !v.LastSeen.Equal(edgeStart.Add(6*time.Second)) {
			t.Errorf("%s: subscriptions %v, last seen %s", res.Outcome, v.Subs, v.LastSeen)
		}
		return res.Outcome
	})
}

// steppedBack sends beats of a clock that was set back by an hour, at the given arrivals, stamped with these spacings.
func steppedBack(t *testing.T, arrivals, stamps []time.Duration) Outcome {
	t.Helper()
	w := newWorld(t)
	w.beat(0, "a", 0)
	var res HeartbeatResult
	for i, at := range arrivals {
		h := heartbeat(stamps[i]-time.Hour, "a", 0)
		res = w.send(at, h, Arrival{Entrance: EntranceHTTP})
		if res.Status != StatusHealthy {
			t.Errorf("beat %d: %s", i, res.Status)
		}
	}
	return res.Outcome
}

func TestAClockStepTakesThreeBeatsOverHalfATimeout(t *testing.T) {
	first := time.Second
	around(t, first+edge/2, [3]Outcome{OutcomeIgnoredOlder, OutcomeAccepted, OutcomeAccepted}, func(t *testing.T, at time.Duration) Outcome {
		beats := []time.Duration{first, 3 * time.Second, at}
		return steppedBack(t, beats, beats)
	})
	t.Run("two are not enough", func(t *testing.T) {
		beats := []time.Duration{first, 9 * time.Second}
		if got := steppedBack(t, beats, beats); got != OutcomeIgnoredOlder {
			t.Errorf("outcome %s", got)
		}
	})
}

func TestAClockStepNeedsSpacingWithinTwentyPercent(t *testing.T) {
	arrivals := []time.Duration{time.Second, 6 * time.Second, 11 * time.Second}
	for name, spacing := range map[string]time.Duration{"wide": 6 * time.Second, "narrow": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			want := [3]Outcome{OutcomeAccepted, OutcomeAccepted, OutcomeIgnoredOlder}
			if name == "narrow" {
				want = [3]Outcome{OutcomeIgnoredOlder, OutcomeAccepted, OutcomeAccepted}
			}
			around(t, spacing, want, func(t *testing.T, spacing time.Duration) Outcome {
				return steppedBack(t, arrivals, []time.Duration{time.Second, time.Second + spacing, time.Second + spacing + 5*time.Second})
			})
		})
	}
}

// pausedFor has the owner look away for gap, until `until`, and tells the peer's status at `at`.
func pausedFor(t *testing.T, gap, until, at time.Duration) Status {
	t.Helper()
	w := newWorld(t)
	w.beat(0, "a", 0)
	w.core.Paused(edgeStart.Add(until), gap)
	w.tick(at)
	return w.status("a")
}

func TestAShortGapIsAddedToTheDeadline(t *testing.T) {
	around(t, ShortGap, [3]Status{StatusStale, StatusStale, StatusHealthy}, func(t *testing.T, gap time.Duration) Status {
		return pausedFor(t, gap, 2*time.Second, edge+gap)
	})
	t.Run("and no more than the gap", func(t *testing.T) {
		around(t, edge+time.Second, [3]Status{StatusHealthy, StatusHealthy, StatusStale}, func(t *testing.T, at time.Duration) Status {
			return pausedFor(t, time.Second, 2*time.Second, at)
		})
	})
}

func TestALongGapGivesOneFullTimeout(t *testing.T) {
	until := 10 * time.Second
	// Above half a timeout the grace ends a full one after the gap; at half it is only longer by the gap.
	around(t, edge/2, [3]Status{StatusStale, StatusStale, StatusHealthy}, func(t *testing.T, gap time.Duration) Status {
		return pausedFor(t, gap, until, until+edge)
	})
	t.Run("and no more", func(t *testing.T) {
		around(t, until+edge, [3]Status{StatusHealthy, StatusHealthy, StatusStale}, func(t *testing.T, at time.Duration) Status {
			return pausedFor(t, edge/2+1, until, at)
		})
	})
}
