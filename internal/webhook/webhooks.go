package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coordsvc/coordsvc/internal/service"
)

// Webhooks registers endpoints on any replica and delivers to them on the leader. It implements service.Webhooks.
type Webhooks struct {
	opts   Options
	log    *slog.Logger
	guard  guard
	client *client
	ledger *ledger
	// shared holds a token for every attempt under way beyond its endpoint's first.
	shared chan struct{}

	floor atomic.Pointer[service.Position]

	stopOnce sync.Once
	stopping chan struct{}
	// idle is closed when Run leads no term and will begin none.
	idle chan struct{}
	runs atomic.Bool
}

var _ service.Webhooks = (*Webhooks)(nil)

// New builds the part; Run makes it work.
func New(opts Options) (*Webhooks, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	g := newGuard(opts.AllowNetworks, opts.DenyNetworks)
	return &Webhooks{
		opts:     opts,
		log:      opts.Logger.With("component", "webhook"),
		guard:    g,
		client:   newClient(&opts, g),
		ledger:   newLedger(),
		shared:   make(chan struct{}, opts.SharedAttempts),
		stopping: make(chan struct{}),
		idle:     make(chan struct{}),
	}, nil
}

// Run follows the store, and delivers while this replica leads, until ctx ends or the store turns out damaged. It may
// be called once.
func (w *Webhooks) Run(ctx context.Context) error {
	if w.runs.Swap(true) {
		return errors.New("webhooks run already")
	}
	defer w.client.close()
	g, ctx := errgroup.WithContext(ctx)
	for _, prefix := range []string{keyWebhook, keyDelivery} {
		g.Go(func() error { return w.ledger.follow(ctx, w.opts.Store, prefix, w.storeTrouble) })
	}
	g.Go(func() error {
		w.lead(ctx)
		return nil
	})
	return g.Wait()
}

// Stop starts no attempt any more, gives those under way the grace period, and returns when their records are
// committed or ctx ends. Attempts cut off go to the next leader under the same id. Reads and registrations go on until
// Run's context ends.
func (w *Webhooks) Stop(ctx context.Context) error {
	w.stopOnce.Do(func() { close(w.stopping) })
	if !w.runs.Load() {
		return nil
	}
	select {
	case <-w.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop webhooks: %w", ctx.Err())
	}
}

// CursorFloor is the newest journal position that is dispatched for good: events up to it may leave the journal. It is
// zero, which lets none go, until this replica has read the cursor as leader.
func (w *Webhooks) CursorFloor() service.Position {
	if p := w.floor.Load(); p != nil {
		return *p
	}
	return service.Position{}
}

// Pending is the number of deliveries that are due or waiting, of all endpoints.
func (w *Webhooks) Pending() int { return w.ledger.totalPending() }

// lead runs one term after another.
func (w *Webhooks) lead(ctx context.Context) {
	defer close(w.idle)
	edge := make(chan struct{}, 1)
	handle := w.opts.Elector.OnLeaderChange(func(service.LeaderChange) {
		select {
		case edge <- struct{}{}:
		default:
		}
	})
	defer w.opts.Elector.RemoveLeaderChangeCallback(handle)
	for {
		if fence, ok := w.opts.Elector.Fence(); ok && !w.isStopping() {
			w.serveTerm(ctx, fence, edge)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.stopping:
			return
		case <-edge:
		}
	}
}

// serveTerm works until the term is lost, stopping begins or ctx ends.
func (w *Webhooks) serveTerm(ctx context.Context, fence service.Fence, edge chan struct{}) {
	termCtx, end := context.WithCancel(ctx)
	defer end()
	t := &term{w: w, fence: fence, disabled: make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.run(termCtx)
	}()
	for {
		select {
		case <-edge:
		case <-ctx.Done():
		case <-w.stopping:
		case <-done:
			return
		}
		if ctx.Err() != nil || w.isStopping() || !w.holds(fence) {
			end()
			<-done
			// The edge may be the beginning of the next term already: look again.
			select {
			case edge <- struct{}{}:
			default:
			}
			return
		}
	}
}

func (w *Webhooks) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// holds is asked before every attempt.
func (w *Webhooks) holds(fence service.Fence) bool {
	current, ok := w.opts.Elector.Fence()
	return ok && current == fence
}

// storeTrouble waits before the store is asked again; it fails when ctx ends.
func (w *Webhooks) storeTrouble(ctx context.Context, err error) error {
	if err != nil && !errors.Is(err, service.ErrGap) && ctx.Err() == nil {
		w.log.WarnContext(ctx, "store cannot be used, webhooks wait", "error", err)
	}
	return sleep(ctx, 500*time.Millisecond)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
