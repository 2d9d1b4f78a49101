package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// ledger is this replica's index of endpoints and deliveries, without bodies. It follows the store's watch; own commits
// are noted at once, so that a replica reads its own writes. Revisions tell old news from new.
type ledger struct {
	mu         sync.Mutex
	endpoints  map[string]*account
	deliveries map[string]*entry
	pending    int
	// applied is the newest revision seen of each prefix; changed is closed and replaced whenever something is applied.
	applied map[string]uint64
	changed chan struct{}
}

// account is one endpoint with the index of its deliveries. It outlives the endpoint's record until they are gone.
type account struct {
	id string
	// record is nil when the endpoint does not exist (any more).
	record   *endpoint
	revision uint64
	// all is in order of age, due in order of attempts, finished in order of age.
	all, due, finished *btree.BTreeG[*entry]
	delivered          int
	// wake holds a token when something changed that the endpoint's worker should look at.
	wake chan struct{}
}

// entry is what the index knows of a delivery. It is replaced, never changed.
type entry struct {
	id        string
	webhookID string
	position  service.Position
	createdAt time.Time
	eventType coordination.EventType
	status    service.DeliveryStatus
	next      time.Time
	manual    bool
	test      bool
	revision  uint64
}

func (e *entry) age() age { return age{e.createdAt.UnixNano(), e.position, e.id} }

// age orders deliveries: by creation, then by place in the journal.
type age struct {
	created  int64
	position service.Position
	id       string
}

func (a age) compare(b age) int {
	return cmp.Or(
		cmp.Compare(a.created, b.created),
		cmp.Compare(a.position.Revision, b.position.Revision),
		cmp.Compare(a.position.Index, b.position.Index),
		cmp.Compare(a.id, b.id),
	)
}

func byAge(a, b *entry) bool { return a.age().compare(b.age()) < 0 }

// byDue puts those that a person waits for first.
func byDue(a, b *entry) bool {
	if a.manual != b.manual {
		return a.manual
	}
	if c := a.next.Compare(b.next); c != 0 {
		return c < 0
	}
	return byAge(a, b)
}

func newLedger() *ledger {
	return &ledger{
		endpoints:  map[string]*account{},
		deliveries: map[string]*entry{},
		applied:    map[string]uint64{},
		changed:    make(chan struct{}),
	}
}

// follow keeps one prefix of the index up to date until ctx ends.
func (l *ledger) follow(ctx context.Context, store service.Store, prefix string, retry func(context.Context, error) error) error {
	for ctx.Err() == nil {
		err := l.followOnce(ctx, store, prefix)
		if errors.Is(err, service.ErrCorrupt) {
			return fmt.Errorf("follow %s: %w", prefix, err)
		}
		_ = retry(ctx, err) // fails when ctx has ended
	}
	return nil
}

func (l *ledger) followOnce(ctx context.Context, store service.Store, prefix string) error {
	revision, err := l.load(ctx, store, prefix)
	for err == nil && ctx.Err() == nil {
		err = store.Watch(ctx, prefix, revision, func(c service.Changes) error {
			if err := l.apply(prefix, c); err != nil {
				return err
			}
			revision = c.Revision
			return nil
		})
	}
	return err
}

// load replaces a prefix by the store's list, as of the revision it returns.
func (l *ledger) load(ctx context.Context, store service.Store, prefix string) (uint64, error) {
	records, revision, err := store.List(ctx, prefix)
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", prefix, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	listed := make(map[string]bool, len(records))
	for _, r := range records {
		listed[strings.TrimPrefix(r.Key, prefix)] = true
		if err := l.putRecord(prefix, r); err != nil {
			return 0, err
		}
	}
	l.dropUnlisted(prefix, listed, revision)
	l.advance(prefix, revision)
	return revision, nil
}

func (l *ledger) dropUnlisted(prefix string, listed map[string]bool, revision uint64) {
	if prefix == keyWebhook {
		for id, acc := range l.endpoints {
			if !listed[id] && acc.revision <= revision {
				l.deleteEndpoint(id, revision)
			}
		}
		return
	}
	for id, e := range l.deliveries {
		if !listed[id] && e.revision <= revision {
			l.deleteDelivery(id, revision)
		}
	}
}

func (l *ledger) apply(prefix string, c service.Changes) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range c.Puts {
		if err := l.putRecord(prefix, r); err != nil {
			return err
		}
	}
	for _, key := range c.Deletes {
		id := strings.TrimPrefix(key, prefix)
		if prefix == keyWebhook {
			l.deleteEndpoint(id, c.Revision)
		} else {
			l.deleteDelivery(id, c.Revision)
		}
	}
	l.advance(prefix, c.Revision)
	return nil
}

func (l *ledger) putRecord(prefix string, r service.Record) error {
	if prefix == keyWebhook {
		ep, err := decodeEndpoint(r)
		if err != nil {
			return err
		}
		l.setEndpoint(ep, r.Revision)
		return nil
	}
	d, err := decodeDelivery(r)
	if err != nil {
		return err
	}
	l.setDelivery(&d, r.Revision)
	return nil
}

func (l *ledger) advance(prefix string, revision uint64) {
	l.applied[prefix] = max(l.applied[prefix], revision)
	close(l.changed)
	l.changed = make(chan struct{})
}

// noteEndpoint and noteDeliveries apply an own commit before the watch tells of it.
func (l *ledger) noteEndpoint(ep endpoint, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setEndpoint(ep, revision)
}

func (l *ledger) noteDeliveries(list []delivery, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		l.setDelivery(&list[i], revision)
	}
}

func (l *ledger) setEndpoint(ep endpoint, revision uint64) {
	acc := l.account(ep.ID)
	if acc.revision >= revision {
		return
	}
	acc.record, acc.revision = &ep, revision
	acc.nudge()
}

func (l *ledger) deleteEndpoint(id string, revision uint64) {
	acc, ok := l.endpoints[id]
	if !ok || acc.revision > revision {
		return
	}
	acc.record, acc.revision = nil, revision
	acc.nudge()
	l.dropEmpty(acc)
}

func (l *ledger) setDelivery(d *delivery, revision uint64) {
	old := l.deliveries[d.ID]
	if old != nil && old.revision >= revision {
		return
	}
	e := &entry{
		id: d.ID, webhookID: d.WebhookID, position: d.Position, createdAt: d.CreatedAt, eventType: d.EventType,
		status: d.Status, next: d.NextAttemptAt, manual: d.Manual, test: d.Test, revision: revision,
	}
	acc := l.account(d.WebhookID)
	if old != nil {
		l.unlink(acc, old)
	}
	l.link(acc, e)
	acc.nudge()
}

func (l *ledger) deleteDelivery(id string, revision uint64) {
	e, ok := l.deliveries[id]
	if !ok || e.revision > revision {
		return
	}
	acc := l.account(e.webhookID)
	l.unlink(acc, e)
	l.dropEmpty(acc)
}

func (l *ledger) link(acc *account, e *entry) {
	l.deliveries[e.id] = e
	acc.all.Set(e)
	switch e.status {
	case service.DeliveryPending:
		acc.due.Set(e)
		l.pending++
	case service.DeliveryDelivered:
		acc.finished.Set(e)
		acc.delivered++
	case service.DeliveryDead:
		acc.finished.Set(e)
	}
}

func (l *ledger) unlink(acc *account, e *entry) {
	delete(l.deliveries, e.id)
	acc.all.Delete(e)
	switch e.status {
	case service.DeliveryPending:
		acc.due.Delete(e)
		l.pending--
	case service.DeliveryDelivered:
		acc.finished.Delete(e)
		acc.delivered--
	case service.DeliveryDead:
		acc.finished.Delete(e)
	}
}

func (l *ledger) account(id string) *account {
	acc, ok := l.endpoints[id]
	if !ok {
		options := btree.Options{NoLocks: true}
		acc = &account{
			id:       id,
			all:      btree.NewBTreeGOptions(byAge, options),
			due:      btree.NewBTreeGOptions(byDue, options),
			finished: btree.NewBTreeGOptions(byAge, options),
			wake:     make(chan struct{}, 1),
		}
		l.endpoints[id] = acc
	}
	return acc
}

func (l *ledger) dropEmpty(acc *account) {
	if acc.record == nil && acc.all.Len() == 0 {
		delete(l.endpoints, acc.id)
	}
}

func (a *account) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// changes is closed at the next news from the store.
func (l *ledger) changes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// await waits until the index has seen a revision of a prefix (0: anything at all).
func (l *ledger) await(ctx context.Context, prefix string, revision uint64) error {
	for {
		l.mu.Lock()
		seen, loaded := l.applied[prefix]
		changed := l.changed
		l.mu.Unlock()
		if loaded && seen >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endpoint returns a copy of an endpoint's record.
func (l *ledger) endpoint(id string) (endpoint, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc, ok := l.endpoints[id]
	if !ok || acc.record == nil {
		return endpoint{}, false
	}
	return *acc.record, true
}

// live lists the endpoints that exist, by id, which is by time of registration.
func (l *ledger) live() []endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]endpoint, 0, len(l.endpoints))
	for _, acc := range l.endpoints {
		if acc.record != nil {
			list = append(list, *acc.record)
		}
	}
	slices.SortFunc(list, func(a, b endpoint) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (l *ledger) known(deliveryID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.deliveries[deliveryID]
	return ok
}

// queued is the number of an endpoint's pending deliveries.
func (l *ledger) queued(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if acc, ok := l.endpoints[id]; ok {
		return acc.due.Len()
	}
	return 0
}

func (l *ledger) totalPending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending
}

// addCounts completes a view.
func (l *ledger) addCounts(v *service.Webhook) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc, ok := l.endpoints[v.ID]
	if !ok {
		return
	}
	v.Counts.Pending = acc.due.Len()
	v.Counts.Delivered = acc.delivered
	v.Counts.Dead = acc.finished.Len() - acc.delivered
	if first, ok := acc.due.Min(); ok {
		v.Counts.NextAttemptAt = first.next
	}
}

// next picks the delivery that an endpoint's worker should attempt now, or says how long until one is due (0: no
// pending one). Of a disabled endpoint only test sends are due; during a pause that the receiver asked for only what a
// person waits for.
func (l *ledger) next(id string, now, pausedUntil time.Time, busy map[string]bool) (string, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc, ok := l.endpoints[id]
	if !ok || acc.record == nil {
		return "", 0
	}
	var found string
	var wait time.Duration
	acc.due.Scan(func(e *entry) bool {
		if busy[e.id] || (!acc.record.Enabled && !e.test) {
			return acc.record.Enabled || e.manual
		}
		at := e.next
		if !e.manual && pausedUntil.After(at) {
			at = pausedUntil
		}
		left := at.Sub(now)
		if left <= 0 {
			found, wait = e.id, 0
			return false
		}
		if wait == 0 || left < wait {
			wait = left
		}
		return e.manual
	})
	return found, wait
}

// page lists an endpoint's deliveries, newest first, older than after (nil: from the newest), and counts all that match.
func (l *ledger) page(id string, status service.DeliveryStatus, after *age, limit int) (ids []*entry, more bool, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc, ok := l.endpoints[id]
	if !ok {
		return nil, false, 0
	}
	acc.all.Reverse(func(e *entry) bool {
		if status != "" && e.status != status {
			return true
		}
		if after != nil && e.age().compare(*after) >= 0 {
			return true
		}
		if len(ids) == limit {
			more = true
			return false
		}
		ids = append(ids, e)
		return true
	})
	return ids, more, acc.count(status)
}

func (a *account) count(status service.DeliveryStatus) int {
	switch status {
	case service.DeliveryPending:
		return a.due.Len()
	case service.DeliveryDelivered:
		return a.delivered
	case service.DeliveryDead:
		return a.finished.Len() - a.delivered
	}
	return a.all.Len()
}

// surplus lists up to most deliveries that should leave the log: all of an endpoint that is gone, else the oldest
// finished ones beyond the limit.
func (l *ledger) surplus(limit, most int) []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*entry
	for _, acc := range l.endpoints {
		from, excess := acc.finished, acc.finished.Len()-limit
		if acc.record == nil {
			from, excess = acc.all, acc.all.Len()
		}
		from.Scan(func(e *entry) bool {
			if excess <= 0 || len(list) == most {
				return false
			}
			excess--
			list = append(list, e)
			return true
		})
	}
	return list
}

// accounts lists the endpoints that exist and need a worker.
func (l *ledger) accounts() map[string]*account {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make(map[string]*account, len(l.endpoints))
	for id, acc := range l.endpoints {
		if acc.record != nil {
			list[id] = acc
		}
	}
	return list
}
