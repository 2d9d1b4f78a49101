package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/standalone"
)

const patience = 10 * time.Second

// fakeElector is the elector's port: terms begin and end as the test says.
type fakeElector struct {
	mu        sync.Mutex
	fence     service.Fence
	leading   bool
	epoch     uint64
	next      int
	listeners map[int]func(service.LeaderChange)
}

func (e *fakeElector) Fence() (service.Fence, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fence, e.leading
}

func (e *fakeElector) Epoch() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch
}

func (e *fakeElector) OnLeaderChange(listener func(service.LeaderChange)) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listeners == nil {
		e.listeners = map[int]func(service.LeaderChange){}
	}
	e.next++
	e.listeners[e.next] = listener
	return e.next
}

func (e *fakeElector) RemoveLeaderChangeCallback(handle int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.listeners, handle)
}

func (e *fakeElector) holds(f service.Fence) bool {
	current, leading := e.Fence()
	return leading && current == f
}

func (e *fakeElector) set(leading, tell bool) {
	e.mu.Lock()
	if leading && !e.leading {
		e.epoch++
		e.fence = service.Fence{Session: fmt.Sprintf("term-%d", e.epoch), Epoch: e.epoch}
	}
	e.leading = leading
	change := service.LeaderChange{Leading: leading, Fence: e.fence}
	var listeners []func(service.LeaderChange)
	for _, l := range e.listeners {
		listeners = append(listeners, l)
	}
	e.mu.Unlock()
	if tell {
		for _, l := range listeners {
			l(change)
		}
	}
}

func (e *fakeElector) lead() { e.set(true, true) }
func (e *fakeElector) lose() { e.set(false, true) }

// fakeJournal is the service's port: a list of events that outlives restarts.
type fakeJournal struct {
	mu      sync.Mutex
	entries []service.JournalEntry
	ids     map[string]bool
	grown   chan struct{}
	last    uint64
	gone    service.Position
}

func newFakeJournal() *fakeJournal {
	return &fakeJournal{grown: make(chan struct{}), ids: map[string]bool{}}
}

func (j *fakeJournal) After(ctx context.Context, pos service.Position, limit int) ([]service.JournalEntry, error) {
	for {
		j.mu.Lock()
		grown := j.grown
		if pos != (service.Position{}) && pos.Before(j.gone) {
			j.mu.Unlock()
			return nil, service.ErrGap
		}
		var list []service.JournalEntry
		for _, e := range j.entries {
			if e.Revision > pos.Revision && len(list) < limit {
				list = append(list, e)
			}
		}
		j.mu.Unlock()
		if len(list) > 0 {
			return list, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (j *fakeJournal) Raise(_ context.Context, e coordination.Event) error {
	raw, err := json.Marshal(&e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ids[e.ID] {
		return nil
	}
	j.ids[e.ID] = true
	j.append(e, raw)
	return nil
}

// repeat appends an event as often as told, whatever is there already.
func (j *fakeJournal) repeat(t *testing.T, e coordination.Event, times int) {
	t.Helper()
	raw, err := json.Marshal(&e)
	require.NoError(t, err)
	j.mu.Lock()
	defer j.mu.Unlock()
	for range times {
		j.append(e, raw)
	}
}

// lose drops everything, and more than was ever there.
func (j *fakeJournal) lose() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last += 10
	j.gone = service.Position{Revision: j.last}
	j.entries = nil
}

func (j *fakeJournal) append(e coordination.Event, raw []byte) {
	j.last++
	at := service.Position{Revision: j.last}
	j.entries = append(j.entries, service.JournalEntry{Position: at, Event: e, Raw: raw})
	close(j.grown)
	j.grown = make(chan struct{})
}

func (j *fakeJournal) growth() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.grown
}

func (j *fakeJournal) ofType(t coordination.EventType) []coordination.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	var list []coordination.Event
	for _, e := range j.entries {
		if e.Event.Type == t {
			list = append(list, e.Event)
		}
	}
	return list
}

// failingRaiser tells that it was asked once, and fails.
type failingRaiser struct{ asked chan struct{} }

func (f failingRaiser) Raise(ctx context.Context, _ coordination.Event) error {
	select {
	case f.asked <- struct{}{}:
	case <-ctx.Done():
	}
	return service.ErrUnavailable
}

// faultyStore is the real store with a say before every commit.
type faultyStore struct {
	service.Store
	mu     sync.Mutex
	before func(service.Txn) error
}

func (s *faultyStore) Commit(ctx context.Context, txn service.Txn) (uint64, error) {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(txn); err != nil {
			return 0, err
		}
	}
	return s.Store.Commit(ctx, txn)
}

func (s *faultyStore) intercept(before func(service.Txn) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// rig is one replica on a real store with the journal and the elector at the test's command.
type rig struct {
	t       *testing.T
	dir     string
	opts    Options
	journal *fakeJournal
	elector *fakeElector
	store   *faultyStore
	file    *standalone.Store
	w       *Webhooks
	logs    *lockedBuffer
	cancel  context.CancelFunc
	done    chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newRig starts a leading replica with short waits.
func newRig(t *testing.T, adapt func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), journal: newFakeJournal(), elector: &fakeElector{}, logs: &lockedBuffer{}}
	r.opts = Options{
		RetrySchedule: []time.Duration{20 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond},
		StopGrace:     50 * time.Millisecond,
		Logger:        slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if adapt != nil {
		adapt(&r.opts)
	}
	r.elector.lead()
	r.start()
	t.Cleanup(r.shutDown)
	return r
}

func (r *rig) start() {
	r.t.Helper()
	r.startWith(r.journal)
}

func (r *rig) startWith(raiser EventRaiser) {
	r.t.Helper()
	var err error
	r.file, err = standalone.OpenStore(context.Background(), standalone.StoreOptions{Dir: r.dir, Holds: r.elector.holds})
	require.NoError(r.t, err)
	r.store = &faultyStore{Store: r.file}
	opts := r.opts
	opts.Store, opts.Journal, opts.Elector, opts.Events = r.store, r.journal, r.elector, raiser
	r.w, err = New(opts)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.done = cancel, make(chan error, 1)
	go func(w *Webhooks, done chan<- error) { done <- w.Run(ctx) }(r.w, r.done)
}

// kill ends the replica as kill -9 would for everybody outside: from this instant nothing is committed any more.
func (r *rig) kill() {
	r.t.Helper()
	r.elector.set(false, false)
	r.shutDown()
}

func (r *rig) shutDown() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.done; err != nil {
		r.t.Errorf("run: %v", err)
	}
	if err := r.file.Close(); err != nil {
		r.t.Errorf("close store: %v", err)
	}
}

func (r *rig) restart() {
	r.t.Helper()
	r.kill()
	r.elector.lead()
	r.start()
}

// await waits until a condition over the replica's reads holds.
func (r *rig) await(what string, condition func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		changed, grown := r.w.ledger.changes(), r.journal.growth()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-grown:
		case <-deadline.C:
			r.t.Fatalf("waited in vain for: %s\nlog:\n%s", what, r.logs.String())
		}
	}
}

// awaitKey waits until the store holds a key.
func (r *rig) awaitKey(key string) {
	r.t.Helper()
	records, revision, err := r.store.List(r.t.Context(), key)
	require.NoError(r.t, err)
	if len(records) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	errSeen := errors.New("seen")
	err = r.store.Watch(ctx, key, revision, func(service.Changes) error { return errSeen })
	require.ErrorIs(r.t, err, errSeen)
}

func (r *rig) create(req service.WebhookCreate) service.Webhook {
	r.t.Helper()
	v, err := r.w.Create(r.t.Context(), req)
	require.NoError(r.t, err)
	return v
}

func (r *rig) webhook(id string) service.Webhook {
	r.t.Helper()
	v, err := r.w.Get(r.t.Context(), id)
	require.NoError(r.t, err)
	return v
}

func (r *rig) delivery(id string) service.Delivery {
	r.t.Helper()
	v, err := r.w.Delivery(r.t.Context(), id)
	require.NoError(r.t, err)
	return v
}

func (r *rig) awaitDelivery(id string, status service.DeliveryStatus) service.Delivery {
	r.t.Helper()
	var v service.Delivery
	r.await(fmt.Sprintf("delivery %s to be %s", id, status), func() bool {
		var err error
		v, err = r.w.Delivery(r.t.Context(), id)
		return err == nil && v.Status == status
	})
	return v
}

func (r *rig) deliveries(webhookID string) []service.Delivery {
	r.t.Helper()
	list, err := r.w.Deliveries(r.t.Context(), webhookID, service.DeliveriesRequest{Page: service.Page{Limit: 1000}})
	require.NoError(r.t, err)
	return list.Items
}

// raise commits an orphan event and returns its id.
func (r *rig) raise(n int) string {
	r.t.Helper()
	e := orphanEvent(n)
	require.NoError(r.t, r.journal.Raise(r.t.Context(), e))
	return e.ID
}

func orphanEvent(n int) coordination.Event {
	return coordination.Event{
		ID:        fmt.Sprintf("evt_%d", n),
		Type:      coordination.EventOrphanDetected,
		Timestamp: time.Now().UTC(),
		Data: coordination.EventData{
			Group: "orders", InstanceID: fmt.Sprintf("worker-%d", n), Epoch: 1, Cause: coordination.StatusStale,
			Subscriptions: []string{"orders.eu <1>"}, Uncovered: []string{"orders.eu <1>"},
		},
	}
}

// received is one request as a receiver saw it.
type received struct {
	at     time.Time
	path   string
	header http.Header
	body   []byte
}

// receiver is a real HTTP server that answers as its script says.
type receiver struct {
	*httptest.Server
	requests chan received
}

// newReceiver calls script with the number of the request, from 1; nil answers 204.
func newReceiver(t *testing.T, script func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	rc := &receiver{requests: make(chan received, 10_000)}
	var mu sync.Mutex
	n := 0
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		mu.Lock()
		n++
		number := n
		mu.Unlock()
		rc.requests <- received{time.Now(), r.RequestURI, r.Header.Clone(), body}
		if script == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		script(number, w, r)
	}))
	t.Cleanup(rc.Close)
	return rc
}

func (rc *receiver) next(t *testing.T) received {
	t.Helper()
	select {
	case got := <-rc.requests:
		return got
	case <-time.After(patience):
		t.Fatal("no request came")
		return received{}
	}
}

// statuses answers with one status after the other, the last one for ever.
func statuses(codes ...int) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(codes[min(n, len(codes))-1])
	}
}

// hang answers nothing until the client gives up.
func hang(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func parsePrefixes(list ...string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, s := range list {
		prefixes = append(prefixes, netip.MustParsePrefix(s))
	}
	return prefixes
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	require.NoError(t, err)
	return u
}

// awaitFloor polls: the floor moves right after a commit, with nothing to wait on.
func (r *rig) awaitFloor(want service.Position) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for r.w.CursorFloor() != want {
		require.True(r.t, time.Now().Before(deadline), "floor is %v, not %v", r.w.CursorFloor(), want)
		require.NoError(r.t, sleep(r.t.Context(), time.Millisecond))
	}
}
