package standalone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// scriptedReceiver notes what it hears; shutdown decides about shutdowns.
type scriptedReceiver struct {
	mu       sync.Mutex
	heard    []string
	ages     []time.Duration
	shutdown func(id string) error
}

func (r *scriptedReceiver) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, what)
}

// decideShutdowns replaces the decision about shutdowns.
func (r *scriptedReceiver) decideShutdowns(decide func(id string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shutdown = decide
}

func (r *scriptedReceiver) ReceiveHeartbeat(_ context.Context, hb coordination.Heartbeat, arrival coordination.Arrival) error {
	r.note(fmt.Sprintf("heartbeat %s %d", hb.InstanceID, hb.InFlightCount))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ages = append(r.ages, arrival.Age)
	return nil
}

func (r *scriptedReceiver) ReceiveShutdown(_ context.Context, n coordination.Shutdown) error {
	r.mu.Lock()
	decide := r.shutdown
	r.mu.Unlock()
	if decide != nil {
		if err := decide(n.InstanceID); err != nil {
			r.note("refused " + n.InstanceID)
			return err
		}
	}
	r.note("shutdown " + n.InstanceID)
	return nil
}

func (r *scriptedReceiver) ReceiveAssignment(_ context.Context, a coordination.Assignment) error {
	r.note("assignment " + a.TargetInstanceID)
	return nil
}

func (r *scriptedReceiver) BusUp() { r.note("up") }

func (r *scriptedReceiver) BusDown(reason error) { r.note("down: " + reason.Error()) }

func (r *scriptedReceiver) want(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.Join(r.heard, ", "); got != strings.Join(want, ", ") {
		t.Errorf("heard %q, want %q", got, strings.Join(want, ", "))
	}
	r.heard = nil
}

// busPair is two buses on one exchange, the second consuming in a bubble.
type busPair struct {
	exchange        *Exchange
	sender, other   *Bus
	receiver        *scriptedReceiver
	stop, runSender func()
}

func newBusPair(t *testing.T, options BusOptions) *busPair {
	t.Helper()
	options.Exchange = NewExchange()
	p := &busPair{exchange: options.Exchange, receiver: &scriptedReceiver{}}
	for _, bus := range []**Bus{&p.sender, &p.other} {
		var err error
		if *bus, err = NewBus(options); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = func() {
		cancel()
		synctest.Wait()
	}
	p.runSender = func() {
		go func() { _ = p.sender.Run(ctx, &scriptedReceiver{}) }()
		synctest.Wait()
	}
	go func() { _ = p.other.Run(ctx, p.receiver) }()
	synctest.Wait()
	p.receiver.want(t, "up")
	return p
}

func beat(id string, n int64) coordination.Heartbeat {
	return coordination.Heartbeat{Group: "g", InstanceID: id, InFlightCount: n, Subscriptions: []string{"s"}, Labels: map[string]string{"l": "1"}}
}

func TestAgesGrowWhileTheBusIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBusPair(t, BusOptions{})
		defer p.stop()
		p.runSender()
		p.exchange.Cut(errors.New("cable pulled"))
		for n := range int64(3) {
			p.sender.PublishHeartbeat(beat("a", n), time.Now())
			time.Sleep(time.Second)
		}
		p.sender.PublishHeartbeat(beat("b", 0), time.Now().Add(-time.Minute))
		p.sender.PublishHeartbeat(beat("b", 9), time.Now().Add(-2*time.Minute))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		p.receiver.want(t, "down: cable pulled")
		p.exchange.Restore()
		synctest.Wait()
		p.receiver.want(t, "up", "heartbeat a 2", "heartbeat b 0")
		if ages := p.receiver.ages; len(ages) != 2 || ages[0] != 11*time.Second || ages[1] != 70*time.Second {
			t.Errorf("ages are %v", ages)
		}
	})
}

func TestAShutdownTheStoreCannotTakeIsOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBusPair(t, BusOptions{RetryMax: 300 * time.Millisecond})
		defer p.stop()
		p.receiver.decideShutdowns(func(id string) error {
			if id == "invalid" {
				return coordination.ErrInvalid
			}
			return fmt.Errorf("commit: %w", service.ErrUnavailable)
		})
		for _, id := range []string{"invalid", "first", "second"} {
			if err := p.sender.PublishShutdown(t.Context(), coordination.Shutdown{InstanceID: id}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		p.receiver.want(t, "refused invalid", "refused first")
		p.sender.PublishHeartbeat(beat("a", 1), time.Now())
		synctest.Wait()
		p.receiver.want(t, "heartbeat a 1")
		time.Sleep(650 * time.Millisecond)
		synctest.Wait()
		p.receiver.want(t, "refused first", "refused first", "refused first")
		p.receiver.decideShutdowns(nil)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		p.receiver.want(t, "shutdown first", "shutdown second")
	})
}

func TestWhatWaitsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBusPair(t, BusOptions{MaxHeartbeats: 2, MaxMessages: 2})
		defer p.stop()
		p.exchange.Cut(nil)
		for n := range int64(3) {
			for _, id := range []string{"a", "b", "c", "d"} {
				p.sender.PublishHeartbeat(beat(id, n), time.Now())
			}
		}
		if n := p.sender.Dropped(); n != 6 {
			t.Errorf("%d heartbeats dropped, want 6: two peers too many, three times", n)
		}
		synctest.Wait()
		p.receiver.want(t, "down: the exchange is cut")
		p.receiver.decideShutdowns(func(string) error { return service.ErrUnavailable })
		p.exchange.Restore()
		for n, want := range []error{nil, nil, service.ErrUnavailable} {
			if err := p.sender.PublishShutdown(t.Context(), coordination.Shutdown{InstanceID: "a"}); !errors.Is(err, want) {
				t.Errorf("shutdown %d: %v, want %v", n, err, want)
			}
		}
	})
}

func TestABusSharesNoMemoryWithItsSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got coordination.Heartbeat
		exchange := NewExchange()
		sender, err := NewBus(BusOptions{Exchange: exchange})
		if err != nil {
			t.Fatal(err)
		}
		other, err := NewBus(BusOptions{Exchange: exchange})
		if err != nil {
			t.Fatal(err)
		}
		exchange.join(other)
		hb := beat("a", 1)
		sender.PublishHeartbeat(hb, time.Now())
		hb.Subscriptions[0], hb.Labels["l"] = "changed", "changed"
		got = other.inbox.heartbeats.take(1)[0].heartbeat
		if got.Subscriptions[0] != "s" || got.Labels["l"] != "1" {
			t.Errorf("the receiver sees the sender's change: %+v", got)
		}
	})
}

func TestABusRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBusPair(t, BusOptions{})
		if err := p.other.Run(t.Context(), p.receiver); err == nil {
			t.Error("a second Run beside the first ended without an error")
		}
		p.stop()
		if len(p.exchange.state.Load().members) != 0 {
			t.Error("a stopped bus is still a member")
		}
	})
}

func TestBusOptionsAreValidated(t *testing.T) {
	for _, options := range []BusOptions{{MaxHeartbeats: -1}, {MaxMessages: -1}, {RetryMin: -1}, {RetryMin: time.Minute}} {
		if _, err := NewBus(options); err == nil {
			t.Errorf("%+v was accepted", options)
		}
	}
}

func BenchmarkPublishHeartbeatAlone(b *testing.B) {
	bus, err := NewBus(BusOptions{})
	if err != nil {
		b.Fatal(err)
	}
	hb, now := beat("a", 1), time.Now()
	for b.Loop() {
		bus.PublishHeartbeat(hb, now)
	}
}
