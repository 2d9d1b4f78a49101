package standalone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// BusOptions configures NewBus.
type BusOptions struct {
	// Exchange is shared with the other replicas; without it the bus is alone.
	Exchange *Exchange
	// MaxHeartbeats bounds the peers whose newest heartbeat waits, MaxMessages the shutdowns and assignments
	// that wait, each per bus (1,000,000 and 10,000). Beyond, heartbeats are dropped and counted, messages refused.
	MaxHeartbeats int
	MaxMessages   int
	// RetryMin and RetryMax bound the growing pause before a shutdown that could not be committed is offered again
	// (100 ms, 5 s).
	RetryMin, RetryMax time.Duration
	Logger             *slog.Logger
	Now                func() time.Time
}

func (o BusOptions) withDefaults() (BusOptions, error) {
	if o.MaxHeartbeats < 0 || o.MaxMessages < 0 || o.RetryMin < 0 || o.RetryMax < 0 {
		return o, errors.New("bus: MaxHeartbeats, MaxMessages, RetryMin and RetryMax must not be negative")
	}
	if o.Exchange == nil {
		o.Exchange = NewExchange()
	}
	if o.MaxHeartbeats == 0 {
		o.MaxHeartbeats = 1_000_000
	}
	if o.MaxMessages == 0 {
		o.MaxMessages = 10_000
	}
	if o.RetryMin == 0 {
		o.RetryMin = 100 * time.Millisecond
	}
	if o.RetryMax == 0 {
		o.RetryMax = 5 * time.Second
	}
	if o.RetryMax < o.RetryMin {
		return o, errors.New("bus: RetryMax is below RetryMin")
	}
	o.Logger = loggerOrDiscard(o.Logger, "bus")
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Bus is the in-process service.Bus.
type Bus struct {
	options  BusOptions
	exchange *Exchange
	inbox    *inbox
	// unsent keeps heartbeats while the exchange is cut.
	unsent  coalesced
	running atomic.Bool
	dropped atomic.Uint64
	health  atomic.Pointer[service.PartHealth]
}

var _ service.Bus = (*Bus)(nil)

// NewBus returns a bus that does not consume yet.
func NewBus(options BusOptions) (*Bus, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Bus{
		options:  options,
		exchange: options.Exchange,
		inbox:    newInbox(options.MaxHeartbeats, options.MaxMessages),
		unsent:   coalesced{limit: options.MaxHeartbeats},
	}
	b.setHealth(false, "not consuming yet")
	return b, nil
}

// PublishHeartbeat implements service.Bus. It takes short locks only; with nobody else on the exchange it takes none.
func (b *Bus) PublishHeartbeat(hb coordination.Heartbeat, receivedAt time.Time) {
	state := b.exchange.state.Load()
	if !state.others(b) {
		return
	}
	// The receivers keep what they get, and so may the caller.
	hb.Subscriptions, hb.Labels = slices.Clone(hb.Subscriptions), maps.Clone(hb.Labels)
	r := relay{heartbeat: hb, receivedAt: receivedAt}
	if state.down == nil {
		b.send(state, r)
		return
	}
	b.count(b.unsent.add(r))
	// A Restore in between has flushed already.
	b.flush()
}

// send hands a heartbeat to every other bus.
func (b *Bus) send(state *exchangeState, r relay) {
	for _, m := range state.members {
		if m != b {
			b.count(m.inbox.addHeartbeat(r))
		}
	}
}

func (b *Bus) count(kept bool) {
	if !kept {
		b.dropped.Add(1)
	}
}

// flush sends what waited for the exchange to return.
func (b *Bus) flush() {
	state := b.exchange.state.Load()
	if state.down != nil {
		return
	}
	for _, r := range b.unsent.take(-1) {
		b.send(state, r)
	}
}

// Dropped counts the heartbeats that were dropped at MaxHeartbeats.
func (b *Bus) Dropped() uint64 { return b.dropped.Load() }

// PublishShutdown implements service.Bus.
func (b *Bus) PublishShutdown(ctx context.Context, n coordination.Shutdown) error {
	n.Subscriptions, n.Metadata = slices.Clone(n.Subscriptions), slices.Clone(n.Metadata)
	if err := b.publish(ctx, message{shutdown: &n}); err != nil {
		return fmt.Errorf("publish shutdown of %q: %w", n.InstanceID, err)
	}
	return nil
}

// PublishAssignment implements service.Bus.
func (b *Bus) PublishAssignment(ctx context.Context, a coordination.Assignment) error {
	a.Subscriptions = slices.Clone(a.Subscriptions)
	if err := b.publish(ctx, message{assignment: &a}); err != nil {
		return fmt.Errorf("publish assignment to %q: %w", a.TargetInstanceID, err)
	}
	return nil
}

func (b *Bus) publish(ctx context.Context, m message) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	state := b.exchange.state.Load()
	if state.down != nil {
		return fmt.Errorf("%w: %w", service.ErrUnavailable, state.down)
	}
	var refused error
	for _, member := range state.members {
		if member == b {
			continue
		}
		if err := member.inbox.addMessage(m); err != nil {
			refused = fmt.Errorf("%w: %w", service.ErrUnavailable, err)
		}
	}
	return refused
}

// Run implements service.Bus. Deliveries and BusUp and BusDown come from this goroutine alone, so that nothing is
// delivered after BusDown and before the next BusUp.
func (b *Bus) Run(ctx context.Context, r service.Receiver) error {
	if !b.running.CompareAndSwap(false, true) {
		return errors.New("bus: Run is running already")
	}
	defer b.running.Store(false)
	b.exchange.join(b)
	defer b.stopConsuming()
	c := consumer{bus: b, receiver: r}
	for ctx.Err() == nil {
		c.follow(b.exchange.state.Load().down)
		if c.up && c.deliver(ctx) {
			continue
		}
		c.wait(ctx)
	}
	return nil
}

func (b *Bus) stopConsuming() {
	b.exchange.leave(b)
	b.inbox.clear()
	b.setHealth(false, "stopped")
}

// Health implements service.Bus.
func (b *Bus) Health() service.PartHealth { return *b.health.Load() }

func (b *Bus) setHealth(ready bool, reason string) {
	b.health.Store(&service.PartHealth{Name: "bus", Kind: "in-process", Ready: ready, Reason: reason, Since: b.options.Now()})
}

// consumer is the state of one Run.
type consumer struct {
	bus      *Bus
	receiver service.Receiver
	// told: the receiver has heard of a first state. up: the last it heard was BusUp.
	told, up bool
	// retryIn is how long to wait before the oldest message is offered again; retryAt is when.
	retryIn time.Duration
	retryAt time.Time
}

// follow tells the receiver when the exchange came or went.
func (c *consumer) follow(down error) {
	up := down == nil
	if c.told && up == c.up {
		return
	}
	c.told, c.up = true, up
	if up {
		c.bus.setHealth(true, "")
		c.bus.options.Logger.Info("bus up")
		c.receiver.BusUp()
		c.bus.flush()
		return
	}
	c.bus.setHealth(false, down.Error())
	c.bus.options.Logger.Warn("bus down", "reason", down)
	c.receiver.BusDown(down)
}

// deliver delivers a little, so that a cut is seen in between; false when nothing waits.
func (c *consumer) deliver(ctx context.Context) bool {
	const heartbeatsAtOnce = 64
	progress := c.deliverMessage(ctx)
	for _, hb := range c.bus.inbox.heartbeats.take(heartbeatsAtOnce) {
		progress = true
		c.deliverHeartbeat(ctx, hb)
	}
	return progress
}

func (c *consumer) deliverHeartbeat(ctx context.Context, r relay) {
	age := max(0, c.bus.options.Now().Sub(r.receivedAt))
	arrival := coordination.Arrival{Entrance: coordination.EntranceBus, Relayed: true, Age: age}
	err := contain(func() error { return c.receiver.ReceiveHeartbeat(ctx, r.heartbeat, arrival) })
	if err != nil {
		c.bus.options.Logger.Debug("heartbeat refused", "instance_id", r.heartbeat.InstanceID, "error", err)
	}
}

// deliverMessage offers the oldest message. One that the store could not take just now stays and is offered
// again, the next ones behind it; any other refusal would be the same next time.
func (c *consumer) deliverMessage(ctx context.Context) bool {
	m, waiting := c.bus.inbox.head()
	if !waiting || c.bus.options.Now().Before(c.retryAt) {
		return false
	}
	err := contain(func() error {
		if m.shutdown != nil {
			return c.receiver.ReceiveShutdown(ctx, *m.shutdown)
		}
		return c.receiver.ReceiveAssignment(ctx, *m.assignment)
	})
	if errors.Is(err, service.ErrUnavailable) {
		c.retryIn = min(max(2*c.retryIn, c.bus.options.RetryMin), c.bus.options.RetryMax)
		c.retryAt = c.bus.options.Now().Add(c.retryIn)
		c.bus.options.Logger.Warn("message not taken, will be offered again", "error", err, "retry_in", c.retryIn)
		return true
	}
	if err != nil {
		c.bus.options.Logger.Warn("message refused", "error", err)
	}
	c.retryIn, c.retryAt = 0, time.Time{}
	c.bus.inbox.drop()
	return true
}

// contain makes an error of a receiver's panic: one message must not end the consuming of all.
func contain(receive func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("receiver panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return receive()
}

// wait returns when there may be something to do.
func (c *consumer) wait(ctx context.Context) {
	var retry <-chan time.Time
	if c.up && c.retryIn > 0 {
		timer := time.NewTimer(max(0, c.retryAt.Sub(c.bus.options.Now())))
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-c.bus.inbox.signal:
	case <-retry:
	case <-ctx.Done():
	}
}
