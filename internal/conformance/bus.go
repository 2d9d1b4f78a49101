package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// BusBackend is one exchange under test.
type BusBackend struct {
	// New returns a replica's bus on the exchange.
	New func(t *testing.T, identity string) service.Bus
	// Cut takes the engine away, Restore brings it back.
	Cut     func(t *testing.T)
	Restore func(t *testing.T)
	// Within bounds what may take time (5 s).
	Within time.Duration
}

// BusFactory makes an empty exchange; it registers its own clean-up.
type BusFactory func(t *testing.T) BusBackend

// Bus runs the suite of the Bus port.
func Bus(t *testing.T, factory BusFactory) {
	t.Helper()
	for _, test := range []struct {
		invariant string
		run       func(*testing.T, BusBackend)
	}{
		{"every other replica hears every message", everyOtherReplicaHears},
		{"own messages never come back", ownMessagesNeverComeBack},
		{"alone, publishing goes nowhere", alonePublishingGoesNowhere},
		{"messages arrive as they were sent", messagesArriveAsTheyWereSent},
		{"one peer's heartbeats end with the newest", heartbeatsEndWithTheNewest},
		{"one peer's shutdowns keep their order", shutdownsKeepTheirOrder},
		{"a relayed heartbeat carries its age", aRelayedHeartbeatCarriesItsAge},
		{"a refused message does not stop the consuming", aRefusedMessageDoesNotStopTheConsuming},
		{"a panicking receiver does not stop the consuming", aPanickingReceiverDoesNotStopTheConsuming},
		{"a shutdown is offered until it is committed", aShutdownIsOfferedUntilItIsCommitted},
		{"a slow receiver does not block publishing", aSlowReceiverDoesNotBlockPublishing},
		{"losing the bus is told and survived", losingTheBusIsToldAndSurvived},
		{"a cancelled context publishes nothing", aCancelledContextPublishesNothing},
		{"consuming ends with its context", consumingEndsWithItsContext},
	} {
		t.Run(test.invariant, func(t *testing.T) {
			backend := factory(t)
			backend.Within = within(backend.Within)
			test.run(t, backend)
		})
	}
}

// received is one call of a receiver.
type received struct {
	heartbeat  *coordination.Heartbeat
	arrival    coordination.Arrival
	shutdown   *coordination.Shutdown
	assignment *coordination.Assignment
}

// receiver records calls. refuse, when set, decides about each first.
type receiver struct {
	calls  chan received
	states chan error
	refuse func(received) error
}

var errUp = errors.New("up")

func newReceiver() *receiver {
	const room = 10_000
	return &receiver{calls: make(chan received, room), states: make(chan error, room)}
}

func (r *receiver) take(call received) error {
	if r.refuse != nil {
		if err := r.refuse(call); err != nil {
			return err
		}
	}
	r.calls <- call
	return nil
}

func (r *receiver) ReceiveHeartbeat(_ context.Context, hb coordination.Heartbeat, arrival coordination.Arrival) error {
	return r.take(received{heartbeat: &hb, arrival: arrival})
}

func (r *receiver) ReceiveShutdown(_ context.Context, n coordination.Shutdown) error {
	return r.take(received{shutdown: &n})
}

func (r *receiver) ReceiveAssignment(_ context.Context, a coordination.Assignment) error {
	return r.take(received{assignment: &a})
}

func (r *receiver) BusUp() { r.states <- errUp }

func (r *receiver) BusDown(reason error) { r.states <- reason }

// replica is a bus that consumes.
type replica struct {
	service.Bus
	*receiver
	stop func()
}

// consume starts a replica and waits until it hears.
func consume(t *testing.T, b BusBackend, identity string, refuse func(received) error) replica {
	t.Helper()
	r := replica{Bus: b.New(t, identity), receiver: newReceiver()}
	r.refuse = refuse
	r.stop = background(t, func(ctx context.Context) {
		if err := r.Run(ctx, r.receiver); err != nil {
			t.Errorf("%s: run: %v", identity, err)
		}
	})
	if state := receive(t, b.Within, "BusUp at the start", r.states); !errors.Is(state, errUp) {
		t.Fatalf("%s: the first state is %v", identity, state)
	}
	return r
}

func heartbeat(id string, n int64) coordination.Heartbeat {
	return coordination.Heartbeat{
		Group: coordination.DefaultGroup, InstanceID: id, Timestamp: time.Unix(1_700_000_000+n, 123_456_000).UTC(),
		Subscriptions: []string{"orders"}, HasSubscriptions: true, InFlightCount: n, HasInFlight: true,
	}
}

func shutdown(id string, n int64) coordination.Shutdown {
	at := time.Unix(1_700_000_000, 0).UTC()
	return coordination.Shutdown{
		Group: coordination.DefaultGroup, InstanceID: id, Intent: coordination.IntentPreemption,
		InitiatedAt: at, ExpectedCompletionAt: at.Add(30 * time.Second),
		Subscriptions: []string{"orders"}, HasSubscriptions: true, InFlightCount: n,
	}
}

func assignment(target string) coordination.Assignment {
	return coordination.Assignment{
		Group: coordination.DefaultGroup, TargetInstanceID: target, Subscriptions: []string{"orders", "billing"},
		SourceInstanceID: "gone", AssignedAt: time.Unix(1_700_000_000, 0).UTC(), Priority: 3,
	}
}

func publishShutdown(t *testing.T, bus service.Bus, n coordination.Shutdown) {
	t.Helper()
	if err := bus.PublishShutdown(t.Context(), n); err != nil {
		t.Fatalf("publish shutdown: %v", err)
	}
}

func publishAssignment(t *testing.T, bus service.Bus, a coordination.Assignment) {
	t.Helper()
	if err := bus.PublishAssignment(t.Context(), a); err != nil {
		t.Fatalf("publish assignment: %v", err)
	}
}

// everyOtherReplicaHears allows an engine to hand shutdowns to one replica only: the store tells the rest.
func everyOtherReplicaHears(t *testing.T, b BusBackend) {
	sender := consume(t, b, "replica-a", nil)
	others := []replica{consume(t, b, "replica-b", nil), consume(t, b, "replica-c", nil)}
	sender.PublishHeartbeat(heartbeat("worker", 1), time.Now())
	publishAssignment(t, sender, assignment("worker"))
	for _, other := range others {
		var heartbeats, assignments int
		for heartbeats == 0 || assignments == 0 {
			call := receive(t, b.Within, "a message", other.calls)
			if call.heartbeat != nil {
				heartbeats++
			}
			if call.assignment != nil {
				assignments++
			}
		}
	}
	publishShutdown(t, sender, shutdown("worker", 1))
	eventually(t, b.Within, "somebody hears the shutdown", func() bool { return len(others[0].calls)+len(others[1].calls) > 0 })
}

func ownMessagesNeverComeBack(t *testing.T, b BusBackend) {
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", nil)
	for n := range int64(10) {
		sender.PublishHeartbeat(heartbeat(fmt.Sprintf("worker-%d", n), n), time.Now())
		publishAssignment(t, sender, assignment(fmt.Sprintf("worker-%d", n)))
	}
	// What the other sends afterwards is heard: by then the own messages would have been, too.
	for range 20 {
		receive(t, b.Within, "the messages at the other replica", other.calls)
	}
	other.PublishHeartbeat(heartbeat("last", 0), time.Now())
	if call := receive(t, b.Within, "the other's heartbeat", sender.calls); call.heartbeat == nil || call.heartbeat.InstanceID != "last" {
		t.Errorf("an own message came back: %+v", call)
	}
}

func alonePublishingGoesNowhere(t *testing.T, b BusBackend) {
	only := consume(t, b, "replica-a", nil)
	only.PublishHeartbeat(heartbeat("worker", 1), time.Now())
	publishShutdown(t, only, shutdown("worker", 1))
	publishAssignment(t, only, assignment("worker"))
	late := consume(t, b, "replica-b", nil)
	late.PublishHeartbeat(heartbeat("late", 1), time.Now())
	if call := receive(t, b.Within, "the late replica's heartbeat", only.calls); call.heartbeat == nil || call.heartbeat.InstanceID != "late" {
		t.Errorf("an own message came back: %+v", call)
	}
	if h := only.Health(); h.Name != "bus" || h.Kind == "" || !h.Ready || h.Reason != "" {
		t.Errorf("health alone is %+v", h)
	}
}

func messagesArriveAsTheyWereSent(t *testing.T, b BusBackend) {
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", nil)
	hb := heartbeat("wörker/1 %2F", 7)
	hb.Group, hb.Incarnation, hb.LoadFactor, hb.IsLeader = "orders", "pod-1", 0.25, true
	hb.Labels = map[string]string{"zone": "a"}
	n := shutdown("wörker/1 %2F", 7)
	n.Metadata, n.Incarnation = []byte(`{"reason":"spot"}`), "pod-1"
	a := assignment("wörker/1 %2F")
	sender.PublishHeartbeat(hb, time.Now())
	publishShutdown(t, sender, n)
	publishAssignment(t, sender, a)
	for range 3 {
		call := receive(t, b.Within, "a message", other.calls)
		switch {
		case call.heartbeat != nil:
			got := *call.heartbeat
			if got.Key() != hb.Key() || !got.Timestamp.Equal(hb.Timestamp) || !slices.Equal(got.Subscriptions, hb.Subscriptions) ||
				got.InFlightCount != 7 || got.Incarnation != "pod-1" || got.LoadFactor != 0.25 || !got.IsLeader || got.Labels["zone"] != "a" {
				t.Errorf("the heartbeat %+v arrived as %+v", hb, got)
			}
		case call.shutdown != nil:
			got := *call.shutdown
			if got.Key() != n.Key() || got.Intent != n.Intent || !got.InitiatedAt.Equal(n.InitiatedAt) || !got.ExpectedCompletionAt.Equal(n.ExpectedCompletionAt) ||
				!slices.Equal(got.Subscriptions, n.Subscriptions) || got.InFlightCount != 7 || !bytes.Equal(got.Metadata, n.Metadata) || got.Incarnation != "pod-1" {
				t.Errorf("the shutdown %+v arrived as %+v", n, got)
			}
		default:
			got := *call.assignment
			if got.TargetInstanceID != a.TargetInstanceID || got.SourceInstanceID != "gone" || !slices.Equal(got.Subscriptions, a.Subscriptions) ||
				!got.AssignedAt.Equal(a.AssignedAt) || got.Priority != 3 {
				t.Errorf("the assignment %+v arrived as %+v", a, got)
			}
		}
	}
}

func heartbeatsEndWithTheNewest(t *testing.T, b BusBackend) {
	const peers, beats = 5, 200
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", nil)
	start := time.Now()
	for n := range int64(beats) {
		for p := range peers {
			sender.PublishHeartbeat(heartbeat(fmt.Sprintf("worker-%d", p), n), start.Add(time.Duration(n)))
		}
	}
	last := map[string]int64{}
	for finished := 0; finished < peers; {
		call := receive(t, b.Within, "the newest heartbeats", other.calls)
		id, n := call.heartbeat.InstanceID, call.heartbeat.InFlightCount
		if before, seen := last[id]; seen && n <= before {
			t.Fatalf("%s: beat %d after beat %d", id, n, before)
		}
		last[id] = n
		if n == beats-1 {
			finished++
		}
	}
}

func shutdownsKeepTheirOrder(t *testing.T, b BusBackend) {
	const count = 50
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", nil)
	for n := range int64(count) {
		publishShutdown(t, sender, shutdown("worker", n))
	}
	for n := range int64(count) {
		if call := receive(t, b.Within, "a shutdown", other.calls); call.shutdown == nil || call.shutdown.InFlightCount != n {
			t.Fatalf("message %d is %+v", n, call)
		}
	}
}

func aRelayedHeartbeatCarriesItsAge(t *testing.T, b BusBackend) {
	const age = 3 * time.Second
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", nil)
	sent := time.Now()
	sender.PublishHeartbeat(heartbeat("worker", 1), sent.Add(-age))
	call := receive(t, b.Within, "the relayed heartbeat", other.calls)
	most := age + time.Since(sent)
	if a := call.arrival; a.Entrance != coordination.EntranceBus || !a.Relayed || a.Age < age || a.Age > most {
		t.Errorf("arrival is %+v, want a relayed one with an age of %v to %v", a, age, most)
	}
}

func aRefusedMessageDoesNotStopTheConsuming(t *testing.T, b BusBackend) {
	refuse := func(call received) error {
		if (call.heartbeat != nil && call.heartbeat.InstanceID == "bad") || (call.shutdown != nil && call.shutdown.InstanceID == "bad") ||
			(call.assignment != nil && call.assignment.TargetInstanceID == "bad") {
			return fmt.Errorf("refused: %w", coordination.ErrInvalid)
		}
		return nil
	}
	goodComesThrough(t, b, refuse)
}

func aPanickingReceiverDoesNotStopTheConsuming(t *testing.T, b BusBackend) {
	goodComesThrough(t, b, func(call received) error {
		if call.shutdown != nil && call.shutdown.InstanceID == "bad" {
			panic("a receiver's bug")
		}
		if call.assignment != nil && call.assignment.TargetInstanceID == "bad" {
			panic("a receiver's bug")
		}
		if call.heartbeat != nil && call.heartbeat.InstanceID == "bad" {
			panic("a receiver's bug")
		}
		return nil
	})
}

// goodComesThrough sends messages of "bad", which the receiver does not take, and then some of "good".
func goodComesThrough(t *testing.T, b BusBackend, refuse func(received) error) {
	t.Helper()
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", refuse)
	for _, id := range []string{"bad", "good"} {
		sender.PublishHeartbeat(heartbeat(id, 1), time.Now())
		publishShutdown(t, sender, shutdown(id, 1))
		publishAssignment(t, sender, assignment(id))
	}
	var heartbeats, shutdowns, assignments int
	for range 3 {
		call := receive(t, b.Within, "the good messages", other.calls)
		switch {
		case call.heartbeat != nil:
			heartbeats++
		case call.shutdown != nil:
			shutdowns++
		default:
			assignments++
		}
	}
	if heartbeats != 1 || shutdowns != 1 || assignments != 1 {
		t.Errorf("%d heartbeats, %d shutdowns and %d assignments came through, want one each", heartbeats, shutdowns, assignments)
	}
}

func aShutdownIsOfferedUntilItIsCommitted(t *testing.T, b BusBackend) {
	var mu sync.Mutex
	offered := 0
	sender := consume(t, b, "replica-a", nil)
	other := consume(t, b, "replica-b", func(call received) error {
		if call.shutdown == nil {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		offered++
		if offered < 3 {
			return fmt.Errorf("commit: %w", service.ErrUnavailable)
		}
		return nil
	})
	publishShutdown(t, sender, shutdown("worker", 1))
	if call := receive(t, b.Within, "the shutdown at its third offer", other.calls); call.shutdown == nil || call.shutdown.InstanceID != "worker" {
		t.Errorf("received %+v", call)
	}
	mu.Lock()
	defer mu.Unlock()
	if offered != 3 {
		t.Errorf("offered %d times, want 3", offered)
	}
}

func aSlowReceiverDoesNotBlockPublishing(t *testing.T, b BusBackend) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	sender := consume(t, b, "replica-a", nil)
	other := consume(t, b, "replica-b", func(received) error {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-leave
		return nil
	})
	sender.PublishHeartbeat(heartbeat("first", 0), time.Now())
	receive(t, b.Within, "the slow receiver's first call", entered)
	const beats = 2000
	published := make(chan struct{})
	go func() {
		defer close(published)
		for n := range int64(beats) {
			sender.PublishHeartbeat(heartbeat("worker", n), time.Now())
		}
	}()
	receive(t, b.Within, "publishing beside a slow receiver", published)
	close(leave)
	for {
		call := receive(t, b.Within, "the newest heartbeat", other.calls)
		if call.heartbeat.InstanceID == "worker" && call.heartbeat.InFlightCount == beats-1 {
			return
		}
	}
}

func losingTheBusIsToldAndSurvived(t *testing.T, b BusBackend) {
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", nil)
	for round := range int64(2) {
		b.Cut(t)
		for _, r := range []replica{sender, other} {
			if state := receive(t, b.Within, "BusDown", r.states); state == nil || errors.Is(state, errUp) {
				t.Fatalf("after the cut the state is %v", state)
			}
			eventually(t, b.Within, "health says what is wrong", func() bool { return !r.Health().Ready && r.Health().Reason != "" })
		}
		err := sender.PublishShutdown(t.Context(), shutdown("worker", round))
		wantError(t, err, service.ErrUnavailable)
		const beats = 100
		for n := range int64(beats) {
			sender.PublishHeartbeat(heartbeat("worker", round*beats+n), time.Now())
		}
		b.Restore(t)
		for _, r := range []replica{sender, other} {
			if state := receive(t, b.Within, "BusUp", r.states); !errors.Is(state, errUp) {
				t.Fatalf("after the return the state is %v", state)
			}
		}
		if call := receive(t, b.Within, "the newest heartbeat", other.calls); call.heartbeat == nil || call.heartbeat.InFlightCount != round*beats+beats-1 {
			t.Errorf("relayed on return: %+v, want the newest beat alone", call)
		}
		publishShutdown(t, sender, shutdown("worker", round))
		if call := receive(t, b.Within, "a shutdown after the return", other.calls); call.shutdown == nil {
			t.Errorf("received %+v", call)
		}
		eventually(t, b.Within, "health is well again", func() bool { return sender.Health().Ready && other.Health().Ready })
	}
}

func aCancelledContextPublishesNothing(t *testing.T, b BusBackend) {
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, sender.PublishShutdown(ctx, shutdown("cancelled", 0)), context.Canceled)
	wantError(t, sender.PublishAssignment(ctx, assignment("cancelled")), context.Canceled)
	publishShutdown(t, sender, shutdown("next", 0))
	if call := receive(t, b.Within, "the next shutdown", other.calls); call.shutdown == nil || call.shutdown.InstanceID != "next" {
		t.Errorf("received %+v", call)
	}
}

func consumingEndsWithItsContext(t *testing.T, b BusBackend) {
	sender, other := consume(t, b, "replica-a", nil), consume(t, b, "replica-b", nil)
	other.stop()
	sender.PublishHeartbeat(heartbeat("worker", 1), time.Now())
	if len(other.calls) != 0 {
		t.Errorf("a stopped replica received %+v", <-other.calls)
	}
	if h := other.Health(); h.Ready {
		t.Errorf("a stopped bus is ready: %+v", h)
	}
}
