package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

// StoreBackend is one empty store under test.
type StoreBackend struct {
	Store service.Store
	// Reopen ends this client of the store as a restart would, and returns a new one on the same data.
	Reopen func(t *testing.T) service.Store
	// NewTerm makes a new session hold the leader key, ending any earlier term, and returns its fence.
	NewTerm func(t *testing.T) service.Fence
	// EndTerm frees the leader key.
	EndTerm func(t *testing.T)
	// Within bounds what may take time (5 s).
	Within time.Duration
}

// StoreFactory makes an empty store; it registers its own clean-up.
type StoreFactory func(t *testing.T) StoreBackend

// Store runs the suite of the Store port.
func Store(t *testing.T, factory StoreFactory) {
	t.Helper()
	for _, test := range []struct {
		invariant string
		run       func(*testing.T, StoreBackend)
	}{
		{"reads see what was committed", readsSeeWhatWasCommitted},
		{"an absent record is ErrNoRecord", anAbsentRecordIsErrNoRecord},
		{"a delete removes, also what is not there", aDeleteRemoves},
		{"an empty transaction is refused", anEmptyTransactionIsRefused},
		{"of many racers one wins", ofManyRacersOneWins},
		{"no increment is lost", noIncrementIsLost},
		{"a stale check conflicts", aStaleCheckConflicts},
		{"a stale check of a delete conflicts", aStaleCheckOfADeleteConflicts},
		{"a put that changes nothing is a put", aPutThatChangesNothingIsAPut},
		{"revisions only grow", revisionsOnlyGrow},
		{"what was committed survives a restart", whatWasCommittedSurvivesARestart},
		{"a transaction is all or nothing", aTransactionIsAllOrNothing},
		{"readers never see half a transaction", readersNeverSeeHalfATransaction},
		{"an ex-leader can commit nothing", anExLeaderCanCommitNothing},
		{"nobody leads, nobody commits fenced", nobodyLeadsNobodyCommitsFenced},
		{"values are bytes", valuesAreBytes},
		{"the store keeps its own copy of a value", theStoreKeepsItsOwnCopy},
		{"keys are opaque", keysAreOpaque},
		{"prefixes are isolated", prefixesAreIsolated},
		{"lists are in byte order", listsAreInByteOrder},
		{"a value of 300 KiB is kept", aLargeValueIsKept},
		{"large values are one transaction", largeValuesAreOneTransaction},
		{"as many keys as it takes are one transaction", manyOperationsAreOneTransaction},
		{"more keys than it takes are refused", moreOperationsAreRefused},
		{"a cancelled context writes nothing", aCancelledContextWritesNothing},
		{"watchers see every commit in order", watchersSeeEveryCommitInOrder},
		{"a watch is limited to its prefix", aWatchIsLimitedToItsPrefix},
		{"list and watch together miss nothing", listAndWatchTogetherMissNothing},
		{"a slow watcher delays nobody", aSlowWatcherDelaysNobody},
		{"a watch skips nothing silently", aWatchSkipsNothingSilently},
		{"a watch ends with its context or its receiver", aWatchEndsWithItsContextOrItsReceiver},
		{"a store that works is ready", aStoreThatWorksIsReady},
	} {
		t.Run(test.invariant, func(t *testing.T) {
			backend := factory(t)
			backend.Within = within(backend.Within)
			test.run(t, backend)
		})
	}
}

func puts(pairs ...string) service.Txn {
	var txn service.Txn
	for pair := range slices.Chunk(pairs, 2) {
		txn.Puts = append(txn.Puts, service.Put{Key: pair[0], Value: []byte(pair[1])})
	}
	return txn
}

func commit(t *testing.T, s service.Store, txn service.Txn) uint64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return revision
}

func wantValue(t *testing.T, s service.Store, key, want string) service.Record {
	t.Helper()
	record, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	if string(record.Value) != want || record.Key != key {
		t.Fatalf("get %q: got %q under key %q, want %q", key, record.Value, record.Key, want)
	}
	return record
}

func wantAbsent(t *testing.T, s service.Store, key string) {
	t.Helper()
	if record, err := s.Get(t.Context(), key); !errors.Is(err, service.ErrNoRecord) {
		t.Fatalf("get %q: got %q (%v), want ErrNoRecord", key, record.Value, err)
	}
}

func wantError(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}

func keysOf(records []service.Record) []string {
	keys := make([]string, len(records))
	for i, r := range records {
		keys[i] = r.Key
	}
	return keys
}

func list(t *testing.T, s service.Store, prefix string) ([]service.Record, uint64) {
	t.Helper()
	records, revision, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	return records, revision
}

func readsSeeWhatWasCommitted(t *testing.T, b StoreBackend) {
	first := commit(t, b.Store, puts("a", "1", "b", "2"))
	second := commit(t, b.Store, puts("a", "3"))
	if a := wantValue(t, b.Store, "a", "3"); a.Revision != second {
		t.Errorf("a is at revision %d, want %d", a.Revision, second)
	}
	if r := wantValue(t, b.Store, "b", "2"); r.Revision != first {
		t.Errorf("b is at revision %d, want %d", r.Revision, first)
	}
	records, revision := list(t, b.Store, "")
	if !slices.Equal(keysOf(records), []string{"a", "b"}) || revision < second {
		t.Errorf("list is %v as of %d, want a and b as of %d or later", keysOf(records), revision, second)
	}
}

func anAbsentRecordIsErrNoRecord(t *testing.T, b StoreBackend) {
	wantAbsent(t, b.Store, "a")
	if records, _ := list(t, b.Store, "a"); len(records) != 0 {
		t.Errorf("an empty store lists %v", keysOf(records))
	}
}

func aDeleteRemoves(t *testing.T, b StoreBackend) {
	commit(t, b.Store, puts("a", "1", "ab", "2"))
	commit(t, b.Store, service.Txn{Deletes: []string{"a", "never"}})
	wantAbsent(t, b.Store, "a")
	wantValue(t, b.Store, "ab", "2")
	commit(t, b.Store, service.Txn{Checks: []service.Check{{Key: "a"}}, Puts: []service.Put{{Key: "a", Value: []byte("3")}}})
	wantValue(t, b.Store, "a", "3")
}

func anEmptyTransactionIsRefused(t *testing.T, b StoreBackend) {
	if revision, err := b.Store.Commit(t.Context(), service.Txn{}); err == nil {
		t.Fatalf("an empty transaction was committed at revision %d", revision)
	}
}

// race runs n attempts at once and returns their errors.
func race(n int, attempt func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = attempt(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func ofManyRacersOneWins(t *testing.T, b StoreBackend) {
	const racers = 100
	var revision uint64
	for round := range 3 {
		check := []service.Check{{Key: "claim", Revision: revision}}
		errs := race(racers, func(i int) error {
			_, err := b.Store.Commit(t.Context(), service.Txn{Checks: check, Puts: []service.Put{{Key: "claim", Value: fmt.Append(nil, i)}}})
			return err
		})
		winner := slices.Index(errs, nil)
		for i, err := range errs {
			if i != winner && !errors.Is(err, service.ErrConflict) {
				t.Fatalf("round %d: racer %d got %v beside the winner %d, want ErrConflict", round, i, err, winner)
			}
		}
		revision = wantValue(t, b.Store, "claim", strconv.Itoa(winner)).Revision
	}
}

// increment adds one to a counter by compare-and-set until it succeeds.
func increment(ctx context.Context, s service.Store, key string) error {
	for {
		var n int
		record, err := s.Get(ctx, key)
		if err == nil {
			_, err = fmt.Sscan(string(record.Value), &n)
		}
		if err != nil && !errors.Is(err, service.ErrNoRecord) {
			return err
		}
		_, err = s.Commit(ctx, service.Txn{
			Checks: []service.Check{{Key: key, Revision: record.Revision}},
			Puts:   []service.Put{{Key: key, Value: fmt.Append(nil, n+1)}},
		})
		if !errors.Is(err, service.ErrConflict) {
			return err
		}
	}
}

func noIncrementIsLost(t *testing.T, b StoreBackend) {
	const goroutines, each = 8, 10
	errs := race(goroutines, func(int) error {
		for range each {
			if err := increment(t.Context(), b.Store, "token"); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	wantValue(t, b.Store, "token", strconv.Itoa(goroutines*each))
}

func aStaleCheckConflicts(t *testing.T, b StoreBackend) {
	old := commit(t, b.Store, puts("a", "1"))
	now := commit(t, b.Store, puts("a", "2"))
	for _, test := range []struct {
		what  string
		check service.Check
		want  error
	}{
		{"an older revision", service.Check{Key: "a", Revision: old}, service.ErrConflict},
		{"a revision to come", service.Check{Key: "a", Revision: now + 100}, service.ErrConflict},
		{"absence of a record that is there", service.Check{Key: "a"}, service.ErrConflict},
		{"presence of a record that is not", service.Check{Key: "b", Revision: now}, service.ErrConflict},
		{"the present revision", service.Check{Key: "a", Revision: now}, nil},
		{"absence of an absent record", service.Check{Key: "b"}, nil},
	} {
		_, err := b.Store.Commit(t.Context(), service.Txn{Checks: []service.Check{test.check}, Puts: []service.Put{{Key: "c", Value: []byte(test.what)}}})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.what, err, test.want)
		}
	}
}

func revisionsOnlyGrow(t *testing.T, b StoreBackend) {
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var newest uint64
	grow := func(s service.Store) {
		floor := newest
		errs := race(8, func(i int) error {
			last := floor
			for n := range 5 {
				revision, err := s.Commit(t.Context(), puts(fmt.Sprintf("k%d", i), strconv.Itoa(n)))
				if err != nil {
					return err
				}
				mu.Lock()
				again := seen[revision]
				seen[revision] = true
				newest = max(newest, revision)
				mu.Unlock()
				if again || revision <= last {
					return fmt.Errorf("revision %d after %d (given twice: %t)", revision, last, again)
				}
				last = revision
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	grow(b.Store)
	// Deleting the newest record must not let its revision be given again.
	newest = max(newest, commit(t, b.Store, service.Txn{Deletes: []string{"k0", "k1"}}))
	reopened := b.Reopen(t)
	if _, revision := list(t, reopened, ""); revision < newest {
		t.Fatalf("reopened at revision %d, it was %d", revision, newest)
	}
	grow(reopened)
}

func whatWasCommittedSurvivesARestart(t *testing.T, b StoreBackend) {
	revision := commit(t, b.Store, puts("a", "1", "b", "2"))
	commit(t, b.Store, service.Txn{Deletes: []string{"b"}})
	s := b.Reopen(t)
	if a := wantValue(t, s, "a", "1"); a.Revision != revision {
		t.Errorf("a is at revision %d after the restart, it was at %d", a.Revision, revision)
	}
	wantAbsent(t, s, "b")
	commit(t, s, service.Txn{Checks: []service.Check{{Key: "a", Revision: revision}}, Puts: []service.Put{{Key: "a", Value: []byte("3")}}})
}

func aTransactionIsAllOrNothing(t *testing.T, b StoreBackend) {
	revision := commit(t, b.Store, puts("kept", "1", "doomed", "2"))
	mixed := service.Txn{
		Checks:  []service.Check{{Key: "kept", Revision: revision}, {Key: "absent"}, {Key: "doomed", Revision: revision + 1000}},
		Puts:    []service.Put{{Key: "new", Value: []byte("3")}, {Key: "kept", Value: []byte("4")}},
		Deletes: []string{"doomed"},
	}
	_, err := b.Store.Commit(t.Context(), mixed)
	wantError(t, err, service.ErrConflict)
	wantAbsent(t, b.Store, "new")
	wantValue(t, b.Store, "kept", "1")
	wantValue(t, b.Store, "doomed", "2")

	mixed.Checks[2].Revision = revision
	after := commit(t, b.Store, mixed)
	if n, k := wantValue(t, b.Store, "new", "3"), wantValue(t, b.Store, "kept", "4"); n.Revision != after || k.Revision != after {
		t.Errorf("one transaction wrote revisions %d and %d, want %d", n.Revision, k.Revision, after)
	}
	wantAbsent(t, b.Store, "doomed")
}

func readersNeverSeeHalfATransaction(t *testing.T, b StoreBackend) {
	const writers, each = 4, 20
	commit(t, b.Store, puts("pair/left", "-", "pair/right", "-"))
	finished := make(chan error, 1)
	go func() {
		finished <- errors.Join(race(writers, func(i int) error {
			for n := range each {
				value := fmt.Sprintf("%d.%d", i, n)
				if _, err := b.Store.Commit(t.Context(), puts("pair/left", value, "pair/right", value)); err != nil {
					return err
				}
			}
			return nil
		})...)
	}()
	for {
		records, revision := list(t, b.Store, "pair/")
		if len(records) != 2 || !bytes.Equal(records[0].Value, records[1].Value) || records[0].Revision != records[1].Revision {
			t.Fatalf("as of %d the pair reads %+v", revision, records)
		}
		if records[0].Revision > revision {
			t.Fatalf("a record of revision %d in a list as of %d", records[0].Revision, revision)
		}
		select {
		case err := <-finished:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

func anExLeaderCanCommitNothing(t *testing.T, b StoreBackend) {
	fenced := func(f service.Fence, value string) error {
		_, err := b.Store.Commit(t.Context(), service.Txn{Fence: &f, Puts: []service.Put{{Key: "fact", Value: []byte(value)}}})
		return err
	}
	first := b.NewTerm(t)
	wantError(t, fenced(first, "of the first term"), nil)
	second := b.NewTerm(t)
	if first.Session == second.Session {
		t.Fatalf("two terms share the session %q", first.Session)
	}
	wantError(t, fenced(first, "of the ex-leader"), service.ErrFenced)
	wantValue(t, b.Store, "fact", "of the first term")
	wantError(t, fenced(second, "of the second term"), nil)
	wantError(t, fenced(service.Fence{Session: "never-held", Epoch: second.Epoch}, "forged"), service.ErrFenced)
	wantValue(t, b.Store, "fact", "of the second term")
}

func nobodyLeadsNobodyCommitsFenced(t *testing.T, b StoreBackend) {
	last := b.NewTerm(t)
	b.EndTerm(t)
	for _, fence := range []service.Fence{last, {}} {
		_, err := b.Store.Commit(t.Context(), service.Txn{Fence: &fence, Puts: []service.Put{{Key: "fact", Value: []byte("x")}}})
		wantError(t, err, service.ErrFenced)
	}
	wantAbsent(t, b.Store, "fact")
	commit(t, b.Store, puts("fact", "unfenced"))
}

func valuesAreBytes(t *testing.T, b StoreBackend) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, value := range [][]byte{every, {}, {0}, []byte("\xff\xfe\x00"), []byte("{\"a\":\"ü\"}\n"), nil} {
		revision := commit(t, b.Store, service.Txn{Puts: []service.Put{{Key: "v", Value: value}}})
		record := wantValue(t, b.Store, "v", string(value))
		if record.Value == nil {
			t.Errorf("a record with the value %q reads as nil", value)
		}
		if record.Revision != revision {
			t.Errorf("revision %d, want %d", record.Revision, revision)
		}
	}
}

func theStoreKeepsItsOwnCopy(t *testing.T, b StoreBackend) {
	value := []byte("before")
	commit(t, b.Store, service.Txn{Puts: []service.Put{{Key: "v", Value: value}}})
	copy(value, "after!")
	wantValue(t, b.Store, "v", "before")
}

// awkwardKeys are distinct; percent-encoded and decoded forms must stay apart.
func awkwardKeys() []string {
	return []string{
		"peer/a/b", "peer/a%2Fb", "peer/a%2fb", "peer/a%252Fb", "peer/a b", "peer/a+b", "peer/a?b=c&d#e",
		"peer/ü", "peer/日本", "peer/..", "peer/.", "peer//", "peer/\"quoted\"", "peer/" + strings.Repeat("x", 255),
	}
}

func keysAreOpaque(t *testing.T, b StoreBackend) {
	keys := awkwardKeys()
	for _, key := range keys {
		commit(t, b.Store, puts(key, "value of "+key))
	}
	for _, key := range keys {
		wantValue(t, b.Store, key, "value of "+key)
	}
	records, _ := list(t, b.Store, "peer/")
	slices.Sort(keys)
	if got := keysOf(records); !slices.Equal(got, keys) {
		t.Errorf("listed %q, want %q", got, keys)
	}
	commit(t, b.Store, service.Txn{Deletes: []string{"peer/a%2Fb"}})
	wantValue(t, b.Store, "peer/a/b", "value of peer/a/b")
	wantAbsent(t, b.Store, "peer/a%2Fb")
}

func prefixesAreIsolated(t *testing.T, b StoreBackend) {
	commit(t, b.Store, puts("a", "", "a/", "", "a/1", "", "a0", "", "ab/1", "", "b/1", "", "A/1", ""))
	for prefix, want := range map[string][]string{
		"a/":   {"a/", "a/1"},
		"a":    {"a", "a/", "a/1", "a0", "ab/1"},
		"a/1":  {"a/1"},
		"a/1/": {},
		"":     {"A/1", "a", "a/", "a/1", "a0", "ab/1", "b/1"},
	} {
		if records, _ := list(t, b.Store, prefix); !slices.Equal(keysOf(records), want) {
			t.Errorf("list %q is %q, want %q", prefix, keysOf(records), want)
		}
	}
}

func listsAreInByteOrder(t *testing.T, b StoreBackend) {
	var want []string
	for i := range 200 {
		key := fmt.Sprintf("k/%x", i*i*7919%100_003)
		want = append(want, key)
		if i%20 == 19 {
			txn := service.Txn{}
			for _, k := range want[i-19:] {
				txn.Puts = append(txn.Puts, service.Put{Key: k, Value: []byte(k)})
			}
			commit(t, b.Store, txn)
		}
	}
	slices.Sort(want)
	if records, _ := list(t, b.Store, "k/"); !slices.Equal(keysOf(records), want) {
		t.Errorf("listed %q, want %q", keysOf(records), want)
	}
}

func aLargeValueIsKept(t *testing.T, b StoreBackend) {
	value := make([]byte, 300<<10)
	for i := range value {
		value[i] = byte(i * 31)
	}
	commit(t, b.Store, service.Txn{Puts: []service.Put{{Key: "large", Value: value}, {Key: "small", Value: []byte("s")}}})
	if record, err := b.Store.Get(t.Context(), "large"); err != nil || !bytes.Equal(record.Value, value) {
		t.Fatalf("a value of %d bytes came back as %d bytes (%v)", len(value), len(record.Value), err)
	}
	wantValue(t, b.Store, "small", "s")
}

// largeValuesAreOneTransaction: together they are far beyond what one request to an engine may carry.
func largeValuesAreOneTransaction(t *testing.T, b StoreBackend) {
	const count, size = 16, 64 << 10
	var txn service.Txn
	for i := range count {
		value := bytes.Repeat([]byte{byte(i), 1, 2, 3}, size/4)
		txn.Puts = append(txn.Puts, service.Put{Key: fmt.Sprintf("large/%02d", i), Value: value})
	}
	wantAll := func(records []service.Record, revision uint64) {
		t.Helper()
		if len(records) != count {
			t.Fatalf("%d of %d records are there", len(records), count)
		}
		for i, r := range records {
			if r.Key != txn.Puts[i].Key || r.Revision != revision || !bytes.Equal(r.Value, txn.Puts[i].Value) {
				t.Errorf("%s of %d bytes at revision %d, want the value of %s at %d", r.Key, len(r.Value), r.Revision, txn.Puts[i].Key, revision)
			}
		}
	}
	first := commit(t, b.Store, txn)
	s := b.Reopen(t)
	records, _ := list(t, s, "large/")
	wantAll(records, first)

	changes := watch(t, s, "large/", first)
	for _, p := range txn.Puts {
		p.Value[0]++
	}
	second := commit(t, s, txn)
	wantAll(receive(t, b.Within, "the large transaction", changes).Puts, second)
	records, _ = list(t, s, "large/")
	wantAll(records, second)
}

func manyOperationsAreOneTransaction(t *testing.T, b StoreBackend) {
	const least = 16
	most := b.Store.MaxOperations()
	if most < least {
		t.Fatalf("%d keys in a transaction, want %d at least", most, least)
	}
	fence := b.NewTerm(t)
	txn := service.Txn{Fence: &fence}
	for i := range most {
		key := fmt.Sprintf("many/%04d", i)
		txn.Checks = append(txn.Checks, service.Check{Key: key})
		txn.Puts = append(txn.Puts, service.Put{Key: key, Value: []byte(key)})
	}
	revision := commit(t, b.Store, txn)
	records, _ := list(t, b.Store, "many/")
	if len(records) != most {
		t.Fatalf("%d of %d records are there", len(records), most)
	}
	undo := service.Txn{Fence: &fence}
	for _, r := range records {
		if r.Revision != revision {
			t.Errorf("%s is at revision %d, want %d", r.Key, r.Revision, revision)
		}
		undo.Checks = append(undo.Checks, service.Check{Key: r.Key, Revision: r.Revision})
		undo.Deletes = append(undo.Deletes, r.Key)
	}
	_, err := b.Store.Commit(t.Context(), txn)
	wantError(t, err, service.ErrConflict)
	commit(t, b.Store, undo)
	if records, _ := list(t, b.Store, "many/"); len(records) != 0 {
		t.Fatalf("%d records are left of %d that were deleted", len(records), most)
	}
}

func moreOperationsAreRefused(t *testing.T, b StoreBackend) {
	var txn service.Txn
	for i := range b.Store.MaxOperations() + 1 {
		key := fmt.Sprintf("many/%04d", i)
		switch i % 3 {
		case 0:
			txn.Puts = append(txn.Puts, service.Put{Key: key, Value: []byte(key)})
		case 1:
			txn.Deletes = append(txn.Deletes, key)
		default:
			txn.Checks = append(txn.Checks, service.Check{Key: key})
		}
	}
	_, err := b.Store.Commit(t.Context(), txn)
	wantError(t, err, service.ErrTooLarge)
	if records, _ := list(t, b.Store, ""); len(records) != 0 {
		t.Errorf("a refused transaction wrote %q", keysOf(records))
	}
}

func aStaleCheckOfADeleteConflicts(t *testing.T, b StoreBackend) {
	old := commit(t, b.Store, puts("a", "1"))
	now := commit(t, b.Store, puts("a", "2"))
	remove := func(revision uint64) error {
		_, err := b.Store.Commit(t.Context(), service.Txn{Checks: []service.Check{{Key: "a", Revision: revision}}, Deletes: []string{"a"}})
		return err
	}
	wantError(t, remove(old), service.ErrConflict)
	wantError(t, remove(0), service.ErrConflict)
	wantValue(t, b.Store, "a", "2")
	wantError(t, remove(now), nil)
	wantAbsent(t, b.Store, "a")
	// The record is gone: whoever still believes in it is as late as before.
	wantError(t, remove(now), service.ErrConflict)
	wantError(t, remove(0), nil)
}

func aPutThatChangesNothingIsAPut(t *testing.T, b StoreBackend) {
	first := commit(t, b.Store, puts("a", "same"))
	changes := watch(t, b.Store, "", first)
	second := commit(t, b.Store, puts("a", "same"))
	if record := wantValue(t, b.Store, "a", "same"); record.Revision != second {
		t.Errorf("written again at revision %d, the record is at %d", second, record.Revision)
	}
	if c := receive(t, b.Within, "the second put", changes); c.Revision != second || len(c.Puts) != 1 {
		t.Errorf("delivered %+v, want the put at %d", c, second)
	}
	_, err := b.Store.Commit(t.Context(), service.Txn{Checks: []service.Check{{Key: "a", Revision: first}}, Deletes: []string{"a"}})
	wantError(t, err, service.ErrConflict)
}

func aCancelledContextWritesNothing(t *testing.T, b StoreBackend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Store.Commit(ctx, puts("a", "1"))
	wantError(t, err, context.Canceled)
	wantAbsent(t, b.Store, "a")
	_, err = b.Store.Get(ctx, "a")
	wantError(t, err, context.Canceled)
	_, _, err = b.Store.List(ctx, "")
	wantError(t, err, context.Canceled)
	commit(t, b.Store, puts("a", "2"))
	wantValue(t, b.Store, "a", "2")
}

func aStoreThatWorksIsReady(t *testing.T, b StoreBackend) {
	commit(t, b.Store, puts("a", "1"))
	if h := b.Store.Health(); h.Name != "store" || h.Kind == "" || !h.Ready || h.Reason != "" || h.Since.IsZero() {
		t.Errorf("health is %+v", h)
	}
}
