package webhook

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	janitorInterval  = time.Minute
	announceInterval = 5 * time.Second
	// announcePatience is how long a raised event may take to show up in the journal before it is raised again.
	announcePatience = 30 * time.Second
	// logSlack lets the log outgrow its limit a little, so that trimming works in batches.
	logSlack = 50
)

// term is the work of one term of leadership.
type term struct {
	w     *Webhooks
	fence service.Fence
	// disabled holds a token when an endpoint was disabled and its event is to be raised.
	disabled chan struct{}
}

// run works until ctx ends, then gives attempts under way the grace period.
func (t *term) run(ctx context.Context) {
	if !t.catchUp(ctx) {
		return
	}
	t.w.log.InfoContext(ctx, "delivering webhooks", "epoch", t.fence.Epoch)
	attempts, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errCut)
	ended := context.AfterFunc(ctx, func() {
		grace := time.AfterFunc(t.w.opts.StopGrace, func() { cut(errCut) })
		<-attempts.Done()
		grace.Stop()
	})
	var wg sync.WaitGroup
	wg.Go(func() { t.dispatch(ctx) })
	wg.Go(func() { t.employ(ctx, attempts) })
	wg.Go(func() { t.janitor(ctx) })
	wg.Go(func() { t.announcer(ctx) })
	wg.Wait()
	ended()
}

// catchUp reads what earlier leaders committed: the watch may be behind.
func (t *term) catchUp(ctx context.Context) bool {
	for _, prefix := range []string{keyWebhook, keyDelivery} {
		for {
			_, err := t.w.ledger.load(ctx, t.w.opts.Store, prefix)
			if err == nil {
				break
			}
			if t.w.storeTrouble(ctx, err) != nil {
				return false
			}
		}
	}
	return true
}

// employ keeps one worker per endpoint.
func (t *term) employ(ctx, attempts context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	dismiss := map[string]context.CancelFunc{}
	for {
		changed := t.w.ledger.changes()
		accounts := t.w.ledger.accounts()
		for id, acc := range accounts {
			if _, employed := dismiss[id]; employed {
				continue
			}
			workerCtx, cancel := context.WithCancel(ctx)
			dismiss[id] = cancel
			wg.Go(func() { t.newWorker(acc).run(workerCtx, attempts) })
		}
		for id, cancel := range dismiss {
			if _, exists := accounts[id]; !exists {
				cancel()
				delete(dismiss, id)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, cancel := range dismiss {
				cancel()
			}
			return
		}
	}
}

// janitor trims delivery logs.
func (t *term) janitor(ctx context.Context) {
	ticker := time.NewTicker(janitorInterval)
	defer ticker.Stop()
	for {
		changed := t.w.ledger.changes()
		t.trim(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
			// Changes come in bursts; one look a second is enough.
			if sleep(ctx, time.Second) != nil {
				return
			}
		}
	}
}

func (t *term) trim(ctx context.Context) {
	limit := t.w.opts.LogLimit
	if len(t.w.ledger.surplus(limit+logSlack, 1)) == 0 {
		return
	}
	for {
		list := t.w.ledger.surplus(limit, t.w.opts.MaxTxnOperations/2)
		if len(list) == 0 {
			return
		}
		txn := service.Txn{Fence: &t.fence}
		for _, e := range list {
			// A retry by hand may have made it due again meanwhile: then nothing is deleted this time.
			txn.Checks = append(txn.Checks, service.Check{Key: keyDelivery + e.id, Revision: e.revision})
			txn.Deletes = append(txn.Deletes, keyDelivery+e.id)
		}
		revision, err := t.w.opts.Store.Commit(ctx, txn)
		if err != nil {
			if ctx.Err() == nil {
				t.w.log.WarnContext(ctx, "delivery log not trimmed, will be tried again", "error", err)
			}
			return
		}
		if t.w.ledger.await(ctx, keyDelivery, revision) != nil {
			return
		}
	}
}

// announcer raises webhook.disabled events: at once, and again those that a crash or an absent store swallowed. An
// event counts as raised when the dispatcher finds it in the journal.
func (t *term) announcer(ctx context.Context) {
	ticker := time.NewTicker(announceInterval)
	defer ticker.Stop()
	raised := map[string]time.Time{}
	for {
		for _, ep := range t.w.ledger.live() {
			if ep.Announce {
				t.announce(ctx, &ep, raised)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-t.disabled:
		}
	}
}

func (t *term) announce(ctx context.Context, ep *endpoint, raised map[string]time.Time) {
	event := ep.disabledEvent(t.fence.Epoch)
	if at, ok := raised[event.ID]; ok && time.Since(at) < announcePatience {
		return
	}
	if err := t.w.opts.Events.Raise(ctx, event); err != nil {
		if ctx.Err() == nil {
			t.w.log.WarnContext(ctx, "event not raised, will be tried again", "webhook_id", ep.ID, "error", err)
		}
		return
	}
	raised[event.ID] = time.Now()
}

// announced notes that the journal holds a webhook.disabled event. Failing that, the event is raised again under the
// same id.
func (t *term) announced(ctx context.Context, event *coordination.Event) {
	_, err := t.w.changeEndpoint(ctx, &t.fence, event.Data.WebhookID, func(ep *endpoint) (bool, error) {
		done := ep.Announce && ep.disabledEvent(0).ID == event.ID
		ep.Announce = ep.Announce && !done
		return done, nil
	})
	if err != nil && !errors.Is(err, coordination.ErrNotFound) && ctx.Err() == nil {
		t.w.log.WarnContext(ctx, "raised event not noted, it will be raised again", "webhook_id", event.Data.WebhookID, "error", err)
	}
}
