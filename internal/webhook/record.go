package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	// commitPatience bounds one commit of an attempt's record, also after the attempts were cut.
	commitPatience = 5 * time.Second
	// changeTries bounds the races lost for one record before the caller is told.
	changeTries = 8
)

// record commits an attempt, and what it means for the endpoint, in one fenced transaction. It goes on until that is
// done or the term is lost: an attempt made twice because its record was given up early is a nuisance.
func (t *term) record(ctx context.Context, d *delivery, revision uint64, a attempt, v verdict) {
	started := revision
	for {
		err := t.commitAttempt(ctx, d, revision, started != revision, a, v)
		if err == nil || errors.Is(err, service.ErrFenced) {
			return
		}
		if !errors.Is(err, service.ErrConflict) {
			t.w.log.WarnContext(ctx, "attempt not recorded yet", "delivery_id", d.ID, "error", err)
			if sleep(ctx, 500*time.Millisecond) != nil {
				return
			}
		}
		current, at, err := t.reread(ctx, d.ID)
		switch {
		case errors.Is(err, coordination.ErrNotFound):
			return
		case err == nil && current.hasAttempt(a):
			t.w.ledger.noteDeliveries([]delivery{current}, at)
			return
		case err == nil:
			*d, revision = current, at
		}
	}
}

func (t *term) reread(ctx context.Context, id string) (delivery, uint64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	return t.w.readDelivery(ctx, id)
}

func (t *term) commitAttempt(ctx context.Context, d *delivery, revision uint64, superseded bool, a attempt, v verdict) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	next := *d
	next.record(a, v, t.w.opts.Now(), superseded, t.w.opts.RetrySchedule, t.w.opts.Random())
	put, err := next.put()
	if err != nil {
		return err
	}
	txn := service.Txn{
		Fence:  &t.fence,
		Checks: []service.Check{{Key: d.key(), Revision: revision}},
		Puts:   []service.Put{put},
	}
	ep, changed, err := t.endpointAfter(ctx, &next, v, &txn)
	if err != nil {
		return err
	}
	committed, err := t.w.opts.Store.Commit(ctx, txn)
	if err != nil {
		return fmt.Errorf("commit attempt: %w", err)
	}
	t.w.ledger.noteDeliveries([]delivery{next}, committed)
	if changed {
		t.w.ledger.noteEndpoint(ep, committed)
	}
	t.report(ctx, &next, a, &ep, changed)
	return nil
}

// endpointAfter adds to the transaction what the attempt changes in the endpoint's record. The index says whether there
// is anything to change; the store's record is what changes. A test send never counts as a failure of the endpoint.
func (t *term) endpointAfter(ctx context.Context, d *delivery, v verdict, txn *service.Txn) (endpoint, bool, error) {
	now := t.w.opts.Now()
	change := func(ep *endpoint) bool {
		switch {
		case v.gone && ep.Enabled:
			ep.disable(now, reasonGone, true)
			return true
		case d.Test, !ep.Enabled:
			return false
		case v.success:
			return ep.succeeded()
		}
		return ep.failed(now, t.w.opts.DisableAfter, t.w.opts.quiet())
	}
	ep, exists := t.w.ledger.endpoint(d.WebhookID)
	if !exists || !change(&ep) {
		return ep, false, nil
	}
	ep, revision, err := t.w.readEndpoint(ctx, d.WebhookID)
	if errors.Is(err, coordination.ErrNotFound) {
		return ep, false, nil
	}
	if err != nil {
		return ep, false, err
	}
	if !change(&ep) {
		return ep, false, nil
	}
	put, err := ep.put()
	if err != nil {
		return ep, false, err
	}
	txn.Checks = append(txn.Checks, service.Check{Key: ep.key(), Revision: revision})
	txn.Puts = append(txn.Puts, put)
	return ep, true, nil
}

// report tells logs, metrics and journal what a committed attempt led to.
func (t *term) report(ctx context.Context, d *delivery, a attempt, ep *endpoint, endpointChanged bool) {
	t.w.opts.Metrics.QueueDepth(t.w.ledger.totalPending())
	switch d.Status {
	case service.DeliveryDelivered:
		t.w.log.DebugContext(ctx, "webhook delivered", "webhook_id", d.WebhookID, "delivery_id", d.ID, "attempts", d.AttemptCount)
	case service.DeliveryDead:
		t.w.opts.Metrics.Dropped(DropReason(d.Cause))
		t.w.log.WarnContext(ctx, "webhook delivery given up", "webhook_id", d.WebhookID, "delivery_id", d.ID,
			"cause", string(d.Cause), "attempts", d.AttemptCount, "error", a.Error)
	case service.DeliveryPending:
		t.w.log.DebugContext(ctx, "webhook attempt failed", "webhook_id", d.WebhookID, "delivery_id", d.ID,
			"attempts", d.AttemptCount, "error", a.Error, "next_attempt_at", d.NextAttemptAt)
	}
	if endpointChanged && ep.Announce {
		t.w.log.WarnContext(ctx, "webhook disabled", "webhook_id", ep.ID, "reason", ep.DisabledReason)
		select {
		case t.disabled <- struct{}{}:
		default:
		}
	}
}

func (w *Webhooks) readDelivery(ctx context.Context, id string) (delivery, uint64, error) {
	r, err := w.opts.Store.Get(ctx, keyDelivery+id)
	if errors.Is(err, service.ErrNoRecord) {
		return delivery{}, 0, fmt.Errorf("delivery %s: %w", quoted(id), coordination.ErrNotFound)
	}
	if err != nil {
		return delivery{}, 0, fmt.Errorf("read delivery: %w", err)
	}
	d, err := decodeDelivery(r)
	return d, r.Revision, err
}

func (w *Webhooks) readEndpoint(ctx context.Context, id string) (endpoint, uint64, error) {
	r, err := w.opts.Store.Get(ctx, keyWebhook+id)
	if errors.Is(err, service.ErrNoRecord) {
		return endpoint{}, 0, fmt.Errorf("webhook %s: %w", quoted(id), coordination.ErrNotFound)
	}
	if err != nil {
		return endpoint{}, 0, fmt.Errorf("read webhook: %w", err)
	}
	ep, err := decodeEndpoint(r)
	return ep, r.Revision, err
}

// changeEndpoint changes a record by compare-and-set, again when somebody was faster. change reports whether there is
// anything to write.
func (w *Webhooks) changeEndpoint(ctx context.Context, fence *service.Fence, id string, change func(*endpoint) (bool, error)) (endpoint, error) {
	var err error
	for range changeTries {
		var ep endpoint
		var revision uint64
		if ep, revision, err = w.readEndpoint(ctx, id); err != nil {
			return endpoint{}, err
		}
		changed, refusal := change(&ep)
		if refusal != nil || !changed {
			return ep, refusal
		}
		put, encoding := ep.put()
		if encoding != nil {
			return endpoint{}, encoding
		}
		var committed uint64
		committed, err = w.opts.Store.Commit(ctx, service.Txn{
			Fence:  fence,
			Checks: []service.Check{{Key: ep.key(), Revision: revision}},
			Puts:   []service.Put{put},
		})
		if err == nil {
			w.ledger.noteEndpoint(ep, committed)
			return ep, nil
		}
		if !errors.Is(err, service.ErrConflict) {
			break
		}
	}
	return endpoint{}, fmt.Errorf("change webhook: %w", err)
}
