package standalone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

// heldWriter is a store whose writer waits inside the fence check of a first transaction until let go, so
// that everything committed meanwhile is one batch.
type heldWriter struct {
	*Store
	letGo func()
	first <-chan outcome
}

func holdWriter(t *testing.T, options StoreOptions) heldWriter {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	options.Dir = t.TempDir()
	options.Holds = func(f service.Fence) bool {
		once.Do(func() {
			close(entered)
			<-leave
		})
		return f.Session == "leader"
	}
	h := heldWriter{Store: openTestStore(t, options), letGo: sync.OnceFunc(func() { close(leave) })}
	t.Cleanup(h.letGo)
	txn := put("first", "1")
	txn.Fence = &service.Fence{Session: "leader"}
	h.first = h.start(t.Context(), txn)
	<-entered
	return h
}

// start commits in the background.
func (h heldWriter) start(ctx context.Context, txn service.Txn) <-chan outcome {
	reply := make(chan outcome, 1)
	go func() {
		revision, err := h.Commit(ctx, txn)
		reply <- outcome{revision, err}
	}()
	return reply
}

// commit starts a commit and returns when it waits in the queue.
func (h heldWriter) commit(ctx context.Context, txn service.Txn) <-chan outcome {
	queued := len(h.queue)
	reply := h.start(ctx, txn)
	waitUntil(func() bool { return len(h.queue) > queued })
	return reply
}

// waitUntil polls a state that has no channel to wait on. The test's own timeout bounds it.
func waitUntil(holds func() bool) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		<-ticker.C
	}
}

func TestABatchIsJudgedInOrderAndSyncedOnce(t *testing.T) {
	h := holdWriter(t, StoreOptions{})
	absent := func(value string) service.Txn {
		return service.Txn{Checks: []service.Check{{Key: "claim"}}, Puts: []service.Put{{Key: "claim", Value: []byte(value)}}}
	}
	fenced := func(session string) service.Txn {
		txn := put("fact/"+session, "x")
		txn.Fence = &service.Fence{Session: session}
		return txn
	}
	steps := []struct {
		txn  service.Txn
		want error
	}{
		{absent("one"), nil},
		{absent("two"), service.ErrConflict},
		{fenced("leader"), nil},
		{fenced("ex-leader"), service.ErrFenced},
		{service.Txn{Checks: []service.Check{{Key: "claim", Revision: 2}}, Deletes: []string{"claim"}}, nil},
		{absent("three"), nil},
	}
	replies := make([]<-chan outcome, len(steps))
	for i, step := range steps {
		replies[i] = h.commit(t.Context(), step.txn)
	}
	batches := h.timings.batches.Load()
	h.letGo()
	last := (<-h.first).revision
	for i, step := range steps {
		got := <-replies[i]
		if !errors.Is(got.err, step.want) {
			t.Errorf("transaction %d: %v, want %v", i, got.err, step.want)
		}
		if got.err == nil && got.revision != last+1 {
			t.Errorf("transaction %d has revision %d after %d", i, got.revision, last)
		}
		last = max(last, got.revision)
	}
	if record, err := h.Get(t.Context(), "claim"); err != nil || string(record.Value) != "three" {
		t.Errorf("claim is %q (%v)", record.Value, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if n := h.timings.batches.Load() - batches; n != 2 {
		t.Errorf("%d batches, want the first transaction's and one for the %d that waited", n, len(steps))
	}
}

func TestACommitGivenUpInTheQueueIsNotWritten(t *testing.T) {
	h := holdWriter(t, StoreOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	given, kept := h.commit(ctx, put("given-up", "1")), h.commit(t.Context(), put("kept", "1"))
	cancel()
	if got := <-given; !errors.Is(got.err, context.Canceled) || errors.Is(got.err, service.ErrUnavailable) {
		t.Errorf("got %v, want a plain cancellation: it is certain that nothing was written", got.err)
	}
	h.letGo()
	if got := <-kept; got.err != nil {
		t.Error(got.err)
	}
	if _, err := h.Get(t.Context(), "given-up"); !errors.Is(err, service.ErrNoRecord) {
		t.Errorf("the commit that was given up: %v", err)
	}
}

func TestACommitGivenUpWhileWritingIsUnknown(t *testing.T) {
	h := holdWriter(t, StoreOptions{})
	h.letGo()
	<-h.first
	entered, leave := make(chan struct{}), make(chan struct{})
	h.options.Holds = func(service.Fence) bool { close(entered); <-leave; return true }
	txn := put("a", "1")
	txn.Fence = &service.Fence{}
	ctx, cancel := context.WithCancel(t.Context())
	reply := make(chan error, 1)
	go func() {
		_, err := h.Commit(ctx, txn)
		reply <- err
	}()
	<-entered
	cancel()
	if err := <-reply; !errors.Is(err, context.Canceled) || !errors.Is(err, service.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable with the cancellation", err)
	}
	close(leave)
}

func TestCloseCommitsWhatIsQueued(t *testing.T) {
	h := holdWriter(t, StoreOptions{})
	reply := h.commit(t.Context(), put("queued", "1"))
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	<-h.closing
	h.letGo()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if got := <-reply; got.err != nil {
		t.Errorf("a queued commit was answered with %v", got.err)
	}
	s := openTestStore(t, StoreOptions{Dir: h.options.Dir})
	if _, err := s.Get(t.Context(), "queued"); err != nil {
		t.Error(err)
	}
}

func TestAClosedStoreIsUnavailable(t *testing.T) {
	s := openTestStore(t, StoreOptions{Dir: t.TempDir()})
	revision := mustCommit(t, s, put("a", "1"))
	watching := make(chan error, 1)
	go func() {
		watching <- s.Watch(context.Background(), "", revision, func(service.Changes) error { return nil })
	}()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, commitErr := s.Commit(t.Context(), put("a", "2"))
	_, getErr := s.Get(t.Context(), "a")
	_, _, listErr := s.List(t.Context(), "")
	for what, err := range map[string]error{"commit": commitErr, "get": getErr, "list": listErr, "watch": <-watching} {
		if !errors.Is(err, service.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
	}
	if h := s.Health(); h.Ready || h.Reason == "" {
		t.Errorf("health is %+v", h)
	}
}

// TestCommitsRacingWithCloseAreAnswered: each is either durable or refused, none waits for ever.
func TestCommitsRacingWithCloseAreAnswered(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, StoreOptions{Dir: dir})
	const writers = 16
	committed := make([]int, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for {
				_, err := s.Commit(context.Background(), put(fmt.Sprintf("w/%d", w), strings.Repeat("x", committed[w]+1)))
				if errors.Is(err, service.ErrUnavailable) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				committed[w]++
			}
		})
	}
	waitUntil(func() bool { return s.timings.txns.Load() >= 3*writers })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	s = openTestStore(t, StoreOptions{Dir: dir})
	for w, n := range committed {
		if record, err := s.Get(t.Context(), fmt.Sprintf("w/%d", w)); n > 0 && (err != nil || len(record.Value) != n) {
			t.Errorf("writer %d committed %d, the store has %d (%v)", w, n, len(record.Value), err)
		}
	}
}

// TestReadersWaitForTheSync: what a reader sees of a transaction that is written but not synced must wait.
func TestReadersWaitForTheSync(t *testing.T) {
	s := openTestStore(t, StoreOptions{Dir: t.TempDir()})
	mustCommit(t, s, put("a", "1"))
	synced := s.durable.Load().txid
	s.settle(synced-1, false)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if record, err := s.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("read %q (%v) before the sync", record.Value, err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := s.Get(t.Context(), "a")
		read <- err
	}()
	s.settle(synced, false)
	if err := <-read; err != nil {
		t.Errorf("read after the sync: %v", err)
	}
}

func TestImpossibleTransactionsAreRefused(t *testing.T) {
	s := openTestStore(t, StoreOptions{Dir: t.TempDir()})
	for name, txn := range map[string]service.Txn{
		"nothing":             {},
		"only a check":        {Checks: []service.Check{{Key: "a"}}},
		"an empty key":        put("", "x"),
		"a key too long":      put(strings.Repeat("k", 40_000), "x"),
		"one key put twice":   {Puts: []service.Put{{Key: "a"}, {Key: "a"}}},
		"put and deleted":     {Puts: []service.Put{{Key: "a"}}, Deletes: []string{"a"}},
		"delete an empty key": {Deletes: []string{""}},
	} {
		if revision, err := s.Commit(t.Context(), txn); err == nil || errors.Is(err, service.ErrUnavailable) {
			t.Errorf("%s: committed at %d (%v)", name, revision, err)
		}
	}
	if revision := mustCommit(t, s, put("a", "1")); revision != 1 {
		t.Errorf("refused transactions used up %d revisions", revision-1)
	}
}

func TestWatchersFarBehindAreTold(t *testing.T) {
	for name, options := range map[string]StoreOptions{
		"too many transactions": {HistoryTxns: 10},
		"too many bytes":        {HistoryBytes: 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			options.Dir = t.TempDir()
			s := openTestStore(t, options)
			var newest uint64
			for range 40 {
				newest = mustCommit(t, s, put("a", strings.Repeat("x", 500)))
			}
			oldest := s.history.forgotten
			if oldest == 0 || oldest >= newest {
				t.Fatalf("forgotten up to %d of %d", oldest, newest)
			}
			deliver := func(service.Changes) error { return errWatched }
			if err := s.Watch(t.Context(), "", oldest-1, deliver); !errors.Is(err, service.ErrGap) {
				t.Errorf("from %d: %v, want ErrGap", oldest-1, err)
			}
			if err := s.Watch(t.Context(), "", oldest, deliver); !errors.Is(err, errWatched) {
				t.Errorf("from %d: %v, want a delivery", oldest, err)
			}
			if err := s.Watch(t.Context(), "", newest+1, deliver); !errors.Is(err, service.ErrGap) {
				t.Errorf("from a revision to come: %v, want ErrGap", err)
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			s, err := OpenStore(b.Context(), StoreOptions{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			value := []byte(strings.Repeat("v", 300))
			work := make(chan int)
			var wg sync.WaitGroup
			b.ResetTimer()
			for range goroutines {
				wg.Go(func() {
					for n := range work {
						if _, err := s.Commit(context.Background(), service.Txn{Puts: []service.Put{{Key: fmt.Sprintf("k/%d", n%10_000), Value: value}}}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for n := range b.N {
				work <- n
			}
			close(work)
			wg.Wait()
			b.StopTimer()
			t := &s.timings
			b.ReportMetric(float64(t.txns.Load())/b.Elapsed().Seconds(), "commits/s")
			b.ReportMetric(float64(t.txns.Load())/float64(t.batches.Load()), "commits/fsync-pair")
			b.ReportMetric(100*float64(t.committing.Load())/float64(t.total.Load()), "%write+fsync")
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s, err := OpenStore(b.Context(), StoreOptions{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		txn := service.Txn{}
		for j := range 100 {
			txn.Puts = append(txn.Puts, service.Put{Key: fmt.Sprintf("k/%d", i*100+j), Value: []byte(strings.Repeat("v", 300))})
		}
		if _, err := s.Commit(b.Context(), txn); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			if _, err := s.Get(context.Background(), fmt.Sprintf("k/%d", n%10_000)); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
