package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// longestNap bounds a worker's sleep, so that a step of the wall clock is noticed.
const longestNap = time.Minute

// worker makes the attempts of one endpoint. All its state belongs to its one goroutine.
type worker struct {
	t    *term
	acc  *account
	done chan attemptEnd

	busy map[string]bool
	// own: the endpoint's own slot is taken.
	own         bool
	pausedUntil time.Time
}

// attemptEnd tells the worker that an attempt is over and recorded.
type attemptEnd struct {
	id string
	// own: it used the endpoint's own slot, else a shared one.
	own         bool
	pausedUntil time.Time
}

func (t *term) newWorker(acc *account) *worker {
	return &worker{t: t, acc: acc, done: make(chan attemptEnd), busy: map[string]bool{}}
}

// run starts attempts until ctx ends, then waits for those under way; attempts bounds them.
func (w *worker) run(ctx, attempts context.Context) {
	for ctx.Err() == nil {
		id, wait := w.t.w.ledger.next(w.acc.id, w.t.w.opts.Now(), w.pausedUntil, w.busy)
		switch {
		case id == "":
			w.rest(ctx, wait)
		case !w.t.w.holds(w.t.fence):
			// The end of the term is about to be told.
			w.rest(ctx, 50*time.Millisecond)
		case !w.own:
			w.start(attempts, id, true)
		case len(w.busy) < w.t.w.opts.AttemptsPerEndpoint:
			w.share(ctx, attempts, id)
		default:
			w.rest(ctx, 0)
		}
	}
	for len(w.busy) > 0 {
		w.end(<-w.done)
	}
}

// share starts an attempt as soon as a shared slot is free, unless something else happens first.
func (w *worker) share(ctx, attempts context.Context, id string) {
	select {
	case w.t.w.shared <- struct{}{}:
		w.start(attempts, id, false)
	case e := <-w.done:
		w.end(e)
	case <-w.acc.wake:
	case <-ctx.Done():
	}
}

// rest waits for a change; wait 0 sets no alarm.
func (w *worker) rest(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		wait = longestNap
	}
	timer := time.NewTimer(min(wait, longestNap))
	defer timer.Stop()
	select {
	case <-timer.C:
	case e := <-w.done:
		w.end(e)
	case <-w.acc.wake:
	case <-ctx.Done():
	}
}

func (w *worker) start(attempts context.Context, id string, own bool) {
	w.busy[id] = true
	w.own = w.own || own
	go func() {
		e := w.t.attempt(attempts, w.acc.id, id)
		e.id, e.own = id, own
		if !own {
			<-w.t.w.shared
		}
		w.done <- e
	}()
}

func (w *worker) end(e attemptEnd) {
	delete(w.busy, e.id)
	if e.own {
		w.own = false
	}
	if e.pausedUntil.After(w.pausedUntil) {
		w.pausedUntil = e.pausedUntil
	}
}

// attempt makes one attempt of a delivery and records it. ctx is cut when the term's grace period is over.
func (t *term) attempt(ctx context.Context, webhookID, id string) attemptEnd {
	d, revision, err := t.w.readDelivery(ctx, id)
	if err != nil {
		if !errors.Is(err, coordination.ErrNotFound) {
			t.w.log.WarnContext(ctx, "delivery cannot be read", "delivery_id", id, "error", err)
		}
		// Not found: deleted with its endpoint, the watch is about to say so. Either way, not again at once.
		_ = sleep(ctx, 500*time.Millisecond)
		return attemptEnd{}
	}
	t.w.ledger.noteDeliveries([]delivery{d}, revision)
	ep, exists := t.w.ledger.endpoint(webhookID)
	if !exists || d.Status != service.DeliveryPending || d.NextAttemptAt.After(t.w.opts.Now()) {
		return attemptEnd{}
	}
	if d.AttemptCount == 0 && !d.Test {
		t.w.opts.Metrics.FirstAttempt(t.w.opts.Now().Sub(d.EventTimestamp))
	}
	a, v, err := t.w.client.send(ctx, &ep, &d)
	t.w.opts.Metrics.Attempt(v.outcome, a.Duration)
	if err != nil {
		return attemptEnd{}
	}
	t.record(ctx, &d, revision, a, v)
	if v.retryAfter > 0 {
		return attemptEnd{pausedUntil: t.w.opts.Now().Add(v.retryAfter)}
	}
	return attemptEnd{}
}
