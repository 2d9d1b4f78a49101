package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	journalBatch = 256
	// cursorDelay bounds how long the cursor may stay unwritten when no event matched an endpoint: without endpoints a
	// busy journal costs one small write a second.
	cursorDelay = time.Second
)

// cursor is the record under meta/webhook-cursor.
type cursor struct {
	// Position is the last event that is dispatched to all its endpoints.
	Position service.Position `json:"position"`
	// Through, when set, says that the event after Position is dispatched to the endpoints up to this id: one event's
	// deliveries may exceed a transaction.
	Through string `json:"through,omitempty"`
}

// dispatcher walks the journal and commits deliveries together with the cursor's advance.
type dispatcher struct {
	t        *term
	cursor   cursor
	revision uint64
	// written is the cursor as the store has it.
	written cursor

	puts  []service.Put
	batch []delivery
	bytes int
	// queued counts deliveries of the open batch per endpoint; inBatch holds their ids.
	queued  map[string]int
	inBatch map[string]bool
}

func (t *term) dispatch(ctx context.Context) {
	for ctx.Err() == nil {
		d := &dispatcher{t: t, queued: map[string]int{}, inBatch: map[string]bool{}}
		err := d.load(ctx)
		for err == nil {
			err = d.step(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		// Whatever happened: the stored cursor tells what was committed.
		if !errors.Is(err, service.ErrFenced) && !errors.Is(err, service.ErrConflict) {
			t.w.log.WarnContext(ctx, "dispatching interrupted, will be resumed", "error", err)
		}
		if sleep(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

func (d *dispatcher) load(ctx context.Context) error {
	r, err := d.t.w.opts.Store.Get(ctx, keyCursor)
	if errors.Is(err, service.ErrNoRecord) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cursor: %w", err)
	}
	if err := json.Unmarshal(r.Value, &d.cursor); err != nil {
		return fmt.Errorf("decode %s: %w", keyCursor, err)
	}
	d.revision = r.Revision
	d.noteWritten()
	return nil
}

func (d *dispatcher) noteWritten() {
	d.written = d.cursor
	position := d.cursor.Position
	d.t.w.floor.Store(&position)
}

// step dispatches what the journal has next.
func (d *dispatcher) step(ctx context.Context) error {
	entries, err := d.read(ctx)
	switch {
	case errors.Is(err, service.ErrGap):
		return d.overGap(ctx, err)
	case err != nil:
		return fmt.Errorf("read journal: %w", err)
	case len(entries) == 0:
		return d.flush(ctx)
	}
	endpoints, err := d.endpoints(ctx)
	if err != nil {
		return err
	}
	for i := range entries {
		if err := d.enqueue(ctx, &entries[i], endpoints); err != nil {
			return err
		}
	}
	if len(d.puts) > 0 {
		return d.flush(ctx)
	}
	return nil
}

// read waits for events; while the cursor is unwritten, not for long.
func (d *dispatcher) read(ctx context.Context) ([]service.JournalEntry, error) {
	journal := d.t.w.opts.Journal
	if d.cursor == d.written {
		return journal.After(ctx, d.cursor.Position, journalBatch)
	}
	waitCtx, cancel := context.WithTimeout(ctx, cursorDelay)
	defer cancel()
	entries, err := journal.After(waitCtx, d.cursor.Position, journalBatch)
	if err != nil && ctx.Err() == nil && waitCtx.Err() != nil {
		return nil, nil
	}
	return entries, err
}

// overGap goes on with the oldest event there is. It cannot happen while the journal heeds CursorFloor.
func (d *dispatcher) overGap(ctx context.Context, err error) error {
	if d.cursor.Position == (service.Position{}) {
		return fmt.Errorf("read journal from its start: %w", err)
	}
	d.t.w.opts.Metrics.Dropped(DropGap)
	d.t.w.log.ErrorContext(ctx, "events left the journal before they were dispatched", "revision", d.cursor.Position.Revision)
	d.cursor = cursor{}
	return nil
}

// endpoints reads the enabled endpoints from the store, not from the index: an endpoint whose registration was
// acknowledged before an event was committed must not miss it because the watch is behind.
func (d *dispatcher) endpoints(ctx context.Context) ([]endpoint, error) {
	records, _, err := d.t.w.opts.Store.List(ctx, keyWebhook)
	if err != nil {
		return nil, fmt.Errorf("list endpoints: %w", err)
	}
	var enabled []endpoint
	for _, r := range records {
		ep, err := decodeEndpoint(r)
		if err != nil {
			return nil, err
		}
		if ep.Enabled {
			enabled = append(enabled, ep)
		}
	}
	return enabled, nil
}

func (d *dispatcher) enqueue(ctx context.Context, e *service.JournalEntry, endpoints []endpoint) error {
	if e.Event.Type == coordination.EventWebhookDisabled {
		d.t.announced(ctx, &e.Event)
	}
	body, err := eventBody(e)
	if err != nil {
		return err
	}
	for i := range endpoints {
		ep := &endpoints[i]
		if ep.ID <= d.cursor.Through || !ep.matches(&e.Event) || d.enqueued(deliveryID(e.Event.ID, ep.ID)) {
			continue
		}
		if err := d.add(ctx, ep, e, body); err != nil {
			return err
		}
	}
	d.cursor = cursor{Position: e.Position}
	return nil
}

// enqueued: a new leader may have raised an event again under its old id.
func (d *dispatcher) enqueued(id string) bool { return d.inBatch[id] || d.t.w.ledger.known(id) }

func (d *dispatcher) add(ctx context.Context, ep *endpoint, e *service.JournalEntry, body json.RawMessage) error {
	now := d.t.w.opts.Now()
	one := newDelivery(now, ep, e, body)
	full := d.t.w.ledger.queued(ep.ID)+d.queued[ep.ID] >= d.t.w.opts.QueueLimit
	if full {
		one.refuse(now)
	}
	put, err := one.put()
	if err != nil {
		return err
	}
	// Two operations are the cursor's: its check and its put.
	if len(d.puts)+2 >= d.t.w.opts.MaxTxnOperations || (len(d.puts) > 0 && d.bytes+len(put.Value) > d.t.w.opts.MaxTxnBytes) {
		if err := d.flush(ctx); err != nil {
			return err
		}
	}
	d.puts = append(d.puts, put)
	d.batch = append(d.batch, one)
	d.inBatch[one.ID] = true
	d.bytes += len(put.Value)
	if !full {
		d.queued[ep.ID]++
	}
	d.cursor.Through = ep.ID
	return nil
}

// flush commits the open batch and the cursor.
func (d *dispatcher) flush(ctx context.Context) error {
	if d.cursor == d.written {
		return nil
	}
	value, err := json.Marshal(d.cursor)
	if err != nil {
		return fmt.Errorf("encode %s: %w", keyCursor, err)
	}
	revision, err := d.t.w.opts.Store.Commit(ctx, service.Txn{
		Fence:  &d.t.fence,
		Checks: []service.Check{{Key: keyCursor, Revision: d.revision}},
		Puts:   slices.Concat(d.puts, []service.Put{{Key: keyCursor, Value: value}}),
	})
	if err != nil {
		return fmt.Errorf("commit deliveries: %w", err)
	}
	d.revision = revision
	d.noteWritten()
	d.t.w.ledger.noteDeliveries(d.batch, revision)
	d.report()
	d.puts, d.batch, d.bytes = nil, nil, 0
	clear(d.queued)
	clear(d.inBatch)
	return nil
}

func (d *dispatcher) report() {
	for i := range d.batch {
		if d.batch[i].Cause == service.CauseQueueFull {
			d.t.w.opts.Metrics.Dropped(DropQueueFull)
		}
	}
	if len(d.batch) > 0 {
		d.t.w.opts.Metrics.QueueDepth(d.t.w.ledger.totalPending())
	}
}

// eventBody is the event as committed; its compact form survives being stored as part of a record.
func eventBody(e *service.JournalEntry) (json.RawMessage, error) {
	if len(e.Raw) == 0 {
		return encodeEvent(e)
	}
	body, err := json.Marshal(json.RawMessage(e.Raw))
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.Event.ID, err)
	}
	return body, nil
}

func encodeEvent(e *service.JournalEntry) (json.RawMessage, error) {
	body, err := json.Marshal(&e.Event)
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.Event.ID, err)
	}
	return body, nil
}
