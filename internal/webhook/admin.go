package webhook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	defaultPage = 100
	maxPage     = 1000
	// indexPatience bounds the wait for the first load of the index, or for it to see a deletion.
	indexPatience = 2 * time.Second
	// maxQueuedTests bounds test sends on top of a full queue.
	maxQueuedTests = 100
)

// Create registers an endpoint.
func (w *Webhooks) Create(ctx context.Context, req service.WebhookCreate) (service.Webhook, error) {
	var f fields
	w.checkURL(ctx, req.URL, &f)
	now := w.opts.Now()
	ep := endpoint{
		ID:          newWebhookID(now),
		URL:         req.URL,
		EventTypes:  checkEventTypes(req.EventTypes, &f),
		Groups:      checkGroups(req.Groups, &f),
		Headers:     checkHeaders(req.Headers, &f),
		Description: req.Description,
		Enabled:     !req.Disabled,
		CreatedAt:   now,
		UpdatedAt:   now,
		Secret:      checkSecret(req.Secret, &f),
	}
	checkDescription(req.Description, &f)
	if req.Disabled {
		ep.disable(now, reasonRequest, false)
	}
	if err := f.err(); err != nil {
		return service.Webhook{}, err
	}
	if err := w.room(ctx); err != nil {
		return service.Webhook{}, err
	}
	put, err := ep.put()
	if err != nil {
		return service.Webhook{}, err
	}
	revision, err := w.opts.Store.Commit(ctx, service.Txn{
		Checks: []service.Check{{Key: ep.key()}},
		Puts:   []service.Put{put},
	})
	if err != nil {
		return service.Webhook{}, fmt.Errorf("register webhook: %w", err)
	}
	w.ledger.noteEndpoint(ep, revision)
	w.log.InfoContext(ctx, "webhook registered", "webhook_id", ep.ID)
	v := w.view(&ep)
	v.Secret = ep.Secret
	return v, nil
}

// room holds registrations to the limit. Two replicas may pass it together and exceed it by one, which harms nobody.
func (w *Webhooks) room(ctx context.Context) error {
	if err := w.indexed(ctx); err != nil {
		return err
	}
	if n := len(w.ledger.live()); n >= w.opts.MaxWebhooks {
		return fmt.Errorf("%d webhooks are registered: %w", n, coordination.ErrLimit)
	}
	return nil
}

// Get reads one endpoint.
func (w *Webhooks) Get(ctx context.Context, id string) (service.Webhook, error) {
	ep, _, err := w.readEndpoint(ctx, id)
	if err != nil {
		return service.Webhook{}, err
	}
	return w.view(&ep), nil
}

// List pages through the endpoints in order of registration.
func (w *Webhooks) List(ctx context.Context, page service.Page) (service.List[service.Webhook], error) {
	var list service.List[service.Webhook]
	limit, after, err := readPage[string](page)
	if err != nil {
		return list, err
	}
	if err := w.indexed(ctx); err != nil {
		return list, err
	}
	all := w.ledger.live()
	list.Total = len(all)
	start := 0
	if after != nil {
		start = len(all) - len(slices.DeleteFunc(slices.Clone(all), func(ep endpoint) bool { return ep.ID <= *after }))
	}
	for i := start; i < len(all); i++ {
		if len(list.Items) == limit {
			list.NextCursor = writeCursor(all[i-1].ID)
			break
		}
		list.Items = append(list.Items, w.view(&all[i]))
	}
	return list, nil
}

// Patch changes the fields that are present.
func (w *Webhooks) Patch(ctx context.Context, id string, req service.WebhookPatch) (service.Webhook, error) {
	ep, err := w.changeEndpoint(ctx, nil, id, func(ep *endpoint) (bool, error) {
		return true, w.patch(ctx, ep, &req)
	})
	if err != nil {
		return service.Webhook{}, err
	}
	w.log.InfoContext(ctx, "webhook changed", "webhook_id", id)
	return w.view(&ep), nil
}

func (w *Webhooks) patch(ctx context.Context, ep *endpoint, req *service.WebhookPatch) error {
	var f fields
	now := w.opts.Now()
	if req.URL != nil && *req.URL != redactURL(ep.URL) {
		w.checkURL(ctx, *req.URL, &f)
		ep.URL = *req.URL
	}
	if req.EventTypes != nil {
		ep.EventTypes = checkEventTypes(*req.EventTypes, &f)
	}
	if req.Groups != nil {
		ep.Groups = checkGroups(*req.Groups, &f)
	}
	if req.Headers != nil {
		headers := checkHeaders(*req.Headers, &f)
		for name, value := range headers {
			if old, ok := ep.Headers[name]; ok && value == redacted {
				headers[name] = old
			}
		}
		ep.Headers = headers
	}
	if req.Description != nil {
		checkDescription(*req.Description, &f)
		ep.Description = *req.Description
	}
	if req.Enabled != nil {
		switch {
		case *req.Enabled:
			ep.enable()
		case ep.Enabled:
			ep.disable(now, reasonRequest, false)
		}
	}
	ep.UpdatedAt = now
	return f.err()
}

// Delete removes an endpoint; the leader removes its delivery log.
func (w *Webhooks) Delete(ctx context.Context, id string) error {
	committed, err := w.deleteEndpoint(ctx, id)
	if err != nil {
		return err
	}
	w.log.InfoContext(ctx, "webhook deleted", "webhook_id", id)
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	_ = w.ledger.await(ctx, keyWebhook, committed) // it is deleted; lists may show it a moment longer
	return nil
}

func (w *Webhooks) deleteEndpoint(ctx context.Context, id string) (revision uint64, err error) {
	for range changeTries {
		ep, at, missing := w.readEndpoint(ctx, id)
		if missing != nil {
			return 0, missing
		}
		revision, err = w.opts.Store.Commit(ctx, service.Txn{
			Checks:  []service.Check{{Key: ep.key(), Revision: at}},
			Deletes: []string{ep.key()},
		})
		if err == nil {
			return revision, nil
		}
		if !errors.Is(err, service.ErrConflict) {
			break
		}
	}
	return 0, fmt.Errorf("delete webhook: %w", err)
}

// Test queues a webhook.test event.
func (w *Webhooks) Test(ctx context.Context, id string) (service.Delivery, error) {
	var err error
	for range changeTries {
		var ep endpoint
		var revision uint64
		if ep, revision, err = w.readEndpoint(ctx, id); err != nil {
			return service.Delivery{}, err
		}
		if n := w.ledger.queued(id); n >= w.opts.QueueLimit+maxQueuedTests {
			return service.Delivery{}, fmt.Errorf("%d deliveries are pending: %w", n, coordination.ErrLimit)
		}
		d, encoding := newTestDelivery(w.opts.Now(), &ep, w.opts.Elector.Epoch())
		if encoding != nil {
			return service.Delivery{}, encoding
		}
		var v service.Delivery
		v, err = w.commitDelivery(ctx, &d, service.Check{Key: d.key()}, service.Check{Key: ep.key(), Revision: revision})
		if !errors.Is(err, service.ErrConflict) {
			return v, err
		}
	}
	return service.Delivery{}, err
}

// RotateSecret replaces an endpoint's secret.
func (w *Webhooks) RotateSecret(ctx context.Context, id string, req service.RotateSecret) (service.Webhook, error) {
	var f fields
	secret := checkSecret(req.Secret, &f)
	overlap := w.opts.SecretOverlap
	if req.Overlap != nil {
		overlap = *req.Overlap
	}
	if overlap < 0 || overlap > maxSecretOverlap {
		f.add("/overlap_seconds", "must be 0 to %d", int(maxSecretOverlap/time.Second))
	}
	if err := f.err(); err != nil {
		return service.Webhook{}, err
	}
	ep, err := w.changeEndpoint(ctx, nil, id, func(ep *endpoint) (bool, error) {
		now := w.opts.Now()
		ep.OldSecret, ep.OldSecretUntil = ep.Secret, now.Add(overlap)
		if overlap == 0 {
			ep.OldSecret, ep.OldSecretUntil = "", time.Time{}
		}
		ep.Secret, ep.UpdatedAt = secret, now
		return true, nil
	})
	if err != nil {
		return service.Webhook{}, err
	}
	w.log.InfoContext(ctx, "webhook secret rotated", "webhook_id", id)
	v := w.view(&ep)
	v.Secret = secret
	return v, nil
}

// Deliveries pages through an endpoint's log, newest first.
func (w *Webhooks) Deliveries(ctx context.Context, id string, req service.DeliveriesRequest) (service.List[service.Delivery], error) {
	var list service.List[service.Delivery]
	limit, after, err := readPage[pageMark](req.Page)
	if err != nil {
		return list, err
	}
	if !slices.Contains([]service.DeliveryStatus{"", service.DeliveryPending, service.DeliveryDelivered, service.DeliveryDead}, req.Status) {
		f := fields{{Pointer: "/status", Detail: "must be pending, delivered or dead"}}
		return list, f.err()
	}
	if _, _, err := w.readEndpoint(ctx, id); err != nil {
		return list, err
	}
	if err := w.indexed(ctx); err != nil {
		return list, err
	}
	entries, more, total := w.ledger.page(id, req.Status, after.age(), limit)
	list.Total = total
	for _, e := range entries {
		d, _, err := w.readDelivery(ctx, e.id)
		if errors.Is(err, coordination.ErrNotFound) {
			continue // trimmed meanwhile
		}
		if err != nil {
			return list, err
		}
		list.Items = append(list.Items, d.view())
	}
	if more {
		list.NextCursor = writeCursor(markOf(entries[len(entries)-1]))
	}
	return list, nil
}

// Delivery reads one delivery.
func (w *Webhooks) Delivery(ctx context.Context, id string) (service.Delivery, error) {
	d, _, err := w.readDelivery(ctx, id)
	if err != nil {
		return service.Delivery{}, err
	}
	return d.view(), nil
}

// Retry makes a delivery due at once.
func (w *Webhooks) Retry(ctx context.Context, id string) (service.Delivery, error) {
	var err error
	for range changeTries {
		var d delivery
		var revision uint64
		if d, revision, err = w.readDelivery(ctx, id); err != nil {
			return service.Delivery{}, err
		}
		ep, epRevision, missing := w.readEndpoint(ctx, d.WebhookID)
		if missing != nil {
			return service.Delivery{}, missing
		}
		if !ep.Enabled && !d.Test {
			return service.Delivery{}, fmt.Errorf("webhook %s: %w", ep.ID, service.ErrWebhookDisabled)
		}
		d.retry(w.opts.Now())
		var v service.Delivery
		v, err = w.commitDelivery(ctx, &d,
			service.Check{Key: d.key(), Revision: revision}, service.Check{Key: ep.key(), Revision: epRevision})
		if !errors.Is(err, service.ErrConflict) {
			return v, err
		}
	}
	return service.Delivery{}, err
}

func (w *Webhooks) commitDelivery(ctx context.Context, d *delivery, checks ...service.Check) (service.Delivery, error) {
	put, err := d.put()
	if err != nil {
		return service.Delivery{}, err
	}
	revision, err := w.opts.Store.Commit(ctx, service.Txn{Checks: checks, Puts: []service.Put{put}})
	if err != nil {
		return service.Delivery{}, fmt.Errorf("queue delivery: %w", err)
	}
	w.ledger.noteDeliveries([]delivery{*d}, revision)
	return d.view(), nil
}

func (w *Webhooks) view(ep *endpoint) service.Webhook {
	v := ep.view(w.opts.Now())
	w.ledger.addCounts(&v)
	return v
}

// indexed waits until the index has been loaded once.
func (w *Webhooks) indexed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	for _, prefix := range []string{keyWebhook, keyDelivery} {
		if w.ledger.await(ctx, prefix, 0) != nil {
			return fmt.Errorf("webhooks are not loaded yet: %w", service.ErrUnavailable)
		}
	}
	return nil
}

// pageMark is the cursor of a delivery log.
type pageMark struct {
	Created  int64  `json:"c"`
	Revision uint64 `json:"r"`
	Index    int    `json:"i"`
	ID       string `json:"d"`
}

func markOf(e *entry) pageMark {
	return pageMark{e.createdAt.UnixNano(), e.position.Revision, e.position.Index, e.id}
}

func (m *pageMark) age() *age {
	if m == nil {
		return nil
	}
	return &age{m.Created, service.Position{Revision: m.Revision, Index: m.Index}, m.ID}
}

func writeCursor(mark any) string {
	text, err := json.Marshal(mark)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func readPage[T any](page service.Page) (limit int, after *T, err error) {
	var f fields
	limit = page.Limit
	if limit == 0 {
		limit = defaultPage
	}
	if limit < 1 || limit > maxPage {
		f.add("/limit", "must be 1 to %d", maxPage)
	}
	if page.Cursor != "" {
		text, err := base64.RawURLEncoding.DecodeString(page.Cursor)
		if err != nil || json.Unmarshal(text, &after) != nil || after == nil {
			f.add("/cursor", "is not a cursor of this list")
		}
	}
	return limit, after, f.err()
}
