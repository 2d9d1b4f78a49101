package coordination

import (
	"slices"
	"testing"
	"time"
)

func TestNoConflictWithAPeerThatDiesAtTheSameInstant(t *testing.T) {
	w := newWorld(t)
	w.beat(0, "a", 0, "s")
	w.beat(0, "b", 0, "s")
	w.beat(time.Second, "a", 0, "s")
	w.tick(edge + 1) // b is stale now, and the two never overlapped for longer than one timeout
	if w.status("b") != StatusStale || w.count(EventSubscriptionConflict, "") != 0 {
		t.Errorf("b is %s, %d conflicts", w.status("b"), w.count(EventSubscriptionConflict, ""))
	}
}

func TestATerminatedPeerThatIsHeardStaysKnown(t *testing.T) {
	last := 2 * time.Minute
	around(t, last+edge, [3]bool{true, true, false}, func(t *testing.T, at time.Duration) bool {
		w := newWorld(t)
		w.beat(0, "a", 1)
		w.drain(0, "a", 0)
		for s := time.Second; s <= last; s += edge / 2 {
			w.beat(s, "a", 1)
		}
		w.beat(last, "a", 1)
		w.tick(at)
		return w.known("a")
	})
}

func TestALongGapIsOfAtLeast500Milliseconds(t *testing.T) {
	// With a timeout of 0.9 s half of it is less than the least pause.
	around(t, ShortGap, [3]Status{StatusStale, StatusHealthy, StatusHealthy}, func(t *testing.T, gap time.Duration) Status {
		cfg := DefaultConfig()
		cfg.Default.HeartbeatTimeout = 900 * time.Millisecond
		w := &world{t: t, core: New(cfg)}
		w.core.SetLeading(edgeStart, true, 1)
		w.beat(0, "a", 0)
		w.core.Paused(edgeStart.Add(800*time.Millisecond), gap)
		w.tick(1700 * time.Millisecond)
		return w.status("a")
	})
}

// about lists the events of a type about a peer.
func (w *world) about(t EventType, id string) []EventData {
	var found []EventData
	for i := range w.events {
		if w.events[i].Type == t && w.events[i].Data.InstanceID == id {
			found = append(found, w.events[i].Data)
		}
	}
	return found
}

func (w *world) dismiss(at time.Duration, id, subscription string) {
	w.t.Helper()
	out, err := w.core.Dismiss(edgeStart.Add(at), orphanID(w.core.peer(peerKey(id)).episode, subscription), "by hand")
	if err != nil {
		w.t.Fatal(err)
	}
	w.take(out)
}

func TestOneOrphanEventTellsOfAllSubscriptions(t *testing.T) {
	w := newWorld(t)
	w.beat(0, "a", 1, "s1", "s2", "s3")
	w.drain(0, "a", time.Second)
	w.beat(time.Second, "b", 0, "s1", "s2")
	taken := w.about(EventOrphanResolved, "a")
	if len(taken) != 1 || !slices.Equal(taken[0].Subscriptions, []string{"s1", "s2"}) || taken[0].Resolution != ResolvedTakenOver {
		t.Errorf("taken over: %+v", taken)
	}
	w.beat(2*time.Second, "b", 0)
	found := w.about(EventOrphanDetected, "a")
	if len(found) != 2 || !slices.Equal(slices.Sorted(slices.Values(found[1].Uncovered)), []string{"s1", "s2", "s3"}) {
		t.Errorf("detected: %+v", found)
	}
}

func TestADismissedOrphanIsNotToldByAnotherRecord(t *testing.T) {
	w := newWorld(t)
	w.beat(0, "a", 1, "s")
	w.drain(0, "a", time.Second)
	w.beat(time.Second, "b", 1, "s") // takes a's over
	w.drain(2*time.Second, "b", time.Second)
	w.dismiss(2*time.Second, "b", "s")
	w.tick(3 * time.Second)       // b terminates
	w.beat(4*time.Second, "b", 1) // and is overdue
	w.beat(5*time.Second, "a", 1) // as is a
	w.tick(2 * time.Minute)       // b is forgotten
	if n := w.count(EventOrphanDetected, "a"); n != 1 {
		t.Errorf("a's orphan was told %d times", n)
	}
}

func TestRetentionForgetsWithoutTellingTwice(t *testing.T) {
	w := newWorld(t)
	w.beat(0, "a", 0, "s")
	w.beat(0, "b", 0)
	w.tick(edge + 1) // both are stale
	w.beat(2*edge, "c", 0, "s")
	w.tick(3*edge - 1)
	// At the same look c turns stale and b, who is long gone, is forgotten.
	w.tick(edge + 1 + time.Minute + 1)
	if a, c := w.count(EventOrphanDetected, "a"), w.count(EventOrphanDetected, "c"); a != 1 || c != 1 || w.known("b") {
		t.Errorf("told %d times of a, %d of c; b known: %t", a, c, w.known("b"))
	}
}

func TestAHeldOrphanThatTerminatesIsToldOnce(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		w.beat(0, id, 0, "of-"+id)
	}
	w.tick(edge + 1)
	w.drain(edge+2, "a", 0)
	if found, escalated := w.about(EventOrphanDetected, "a"), w.about(EventOrphanEscalated, "a"); len(found) != 1 || len(escalated) != 0 {
		t.Errorf("detected %+v, escalated %+v", found, escalated)
	}
	if n := w.count(EventOrphanDetected, ""); n != 1 {
		t.Errorf("%d orphan events during the hold, want the one of the announced shutdown", n)
	}
}

func TestANewProcessHasAClockOfItsOwn(t *testing.T) {
	w := newWorld(t)
	direct := Arrival{Entrance: EntranceHTTP}
	wrong := heartbeat(time.Hour, "a", 1, "s")
	wrong.Incarnation = "on a node an hour ahead"
	w.send(0, wrong, direct)
	right := heartbeat(time.Second, "a", 1, "s")
	right.Incarnation = "on a node with a right clock"
	w.send(time.Second, right, direct)
	plan := w.shutdown(2*time.Second, Shutdown{
		InstanceID: "a", InitiatedAt: edgeStart.Add(2 * time.Second), ExpectedCompletionAt: edgeStart.Add(10 * time.Second), Incarnation: right.Incarnation,
	})
	if want := edgeStart.Add(10 * time.Second); !plan.Record.Deadline.Equal(want) || w.status("a") != StatusDraining {
		t.Errorf("%s until %s, want %s", w.status("a"), plan.Record.Deadline, want)
	}
}

func TestALateNotificationOfAnUnknownProcessDoesNotSilenceTheLiveOne(t *testing.T) {
	w := newWorld(t)
	direct := Arrival{Entrance: EntranceHTTP}
	live := func(at time.Duration) *Heartbeat {
		h := heartbeat(at, "a", 1, "s")
		h.Incarnation = "live"
		return h
	}
	w.send(0, live(0), direct)
	w.shutdown(time.Second, Shutdown{
		InstanceID: "a", InitiatedAt: edgeStart.Add(-time.Second), ExpectedCompletionAt: edgeStart, Incarnation: "before the service came",
	})
	if res := w.send(2*time.Second, live(2*time.Second), direct); res.Outcome != OutcomeRejoined || res.Status != StatusHealthy {
		t.Errorf("the live process is %s, its heartbeat %s", res.Status, res.Outcome)
	}
}

func TestEventsOfOnePeerHaveIDsOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	w.beat(0, "a", 1, "s")
	w.tick(edge + 1) // stale
	for at := edge + 2; at < edge+10; at++ {
		w.drain(at, "a", 0) // terminated, again and again
	}
	w.shutdown(edge+20, Shutdown{InstanceID: "a", InitiatedAt: edgeStart.Add(edge + 20), DrainTimeout: time.Second, HasDrainTimeout: true})
	plan, err := w.core.PlanCancel(edgeStart.Add(edge+21), peerKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	w.revision++
	plan.Record.Revision = w.revision
	w.take(w.core.ApplyShutdown(edgeStart.Add(edge+21), plan.Record)) // stale again
	seen := map[string]EventType{}
	for i := range w.events {
		e := &w.events[i]
		if before, again := seen[e.ID]; again {
			t.Errorf("%s carries the id of an earlier %s", e.Type, before)
		}
		seen[e.ID] = e.Type
	}
}
