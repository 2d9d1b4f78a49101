//go:build integration

package consulstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/test/engine"
)

// watching delivers changes into a channel until the test ends; ended gets what Watch returned.
func watching(t *testing.T, s *Store, after uint64) (changes <-chan service.Changes, ended <-chan error) {
	t.Helper()
	delivered, end := make(chan service.Changes, 100_000), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		end <- s.Watch(ctx, "", after, func(c service.Changes) error {
			delivered <- c
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return delivered, end
}

func next(t *testing.T, changes <-chan service.Changes, ended <-chan error) service.Changes {
	t.Helper()
	select {
	case c := <-changes:
		return c
	case err := <-ended:
		t.Fatalf("the watch ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("no change within 10 s")
	}
	return service.Changes{}
}

// reach takes changes until one of a revision.
func reach(t *testing.T, revision uint64, changes <-chan service.Changes, ended <-chan error) {
	t.Helper()
	for {
		if c := next(t, changes, ended); c.Revision >= revision {
			return
		}
	}
}

func gap(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		wantError(t, err, service.ErrGap)
	case <-time.After(10 * time.Second):
		t.Fatal("no gap within 10 s")
	}
}

// Two replicas trim while two write; a watcher that keeps up misses nothing, and the records stay few.
func TestTrimmingSkipsNothingForAWatcherThatKeepsUp(t *testing.T) {
	const commits = 400
	client := clientOf(t, shared(t).Addr(1), "")
	options := Options{Client: client, Root: rootOf(t), MaxChanges: minChanges, ProbeInterval: 20 * time.Millisecond}
	a, b := start(t, options), start(t, options)
	begin := mustCommit(t, a, put("start", ""))
	changes, ended := watching(t, b, begin)
	for n := range commits {
		mustCommit(t, a, put("k", strconv.Itoa(n)))
		if c := next(t, changes, ended); string(c.Puts[0].Value) != strconv.Itoa(n) {
			t.Fatalf("commit %d was delivered as %q", n, c.Puts[0].Value)
		}
	}
	eventually(t, 5*time.Second, "the change records are few", func() bool {
		n := len(keysUnder(t, a, changesDir))
		if n < minChanges {
			t.Fatalf("%d change records are left, %d are to be kept", n, minChanges)
		}
		return n <= minChanges
	})
}

func TestAWatcherThatMissedTrimmedChangesIsTold(t *testing.T) {
	client := clientOf(t, shared(t).Addr(1), "")
	options := Options{Client: client, Root: rootOf(t), MaxChanges: minChanges, ProbeInterval: 20 * time.Millisecond}
	lagging := open(t, options)
	stop := run(t, lagging)
	begin := mustCommit(t, lagging, put("start", ""))
	changes, ended := watching(t, lagging, begin)
	last := mustCommit(t, lagging, put("k", "seen"))
	if c := next(t, changes, ended); c.Revision != last {
		t.Fatalf("delivered %+v", c)
	}
	stop()
	busy := start(t, options)
	for range 3 * minChanges {
		mustCommit(t, busy, put("k", "unseen"))
	}
	eventually(t, 5*time.Second, "the change records are trimmed", func() bool { return len(keysUnder(t, busy, changesDir)) <= minChanges })
	run(t, lagging)
	gap(t, ended)

	_, fresh := watching(t, start(t, options), begin)
	gap(t, fresh)
	_, revision, err := lagging.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	changes, ended = watching(t, lagging, revision)
	last = mustCommit(t, busy, put("k", "after the gap"))
	if c := next(t, changes, ended); c.Revision != last || string(c.Puts[0].Value) != "after the gap" {
		t.Fatalf("delivered %+v", c)
	}
}

// A burst that the tail reads as a whole, because it is more than it fetches by name.
func TestABurstIsDeliveredWholeAndInOrder(t *testing.T) {
	const burst = 3 * fetchMost
	client := clientOf(t, shared(t).Addr(1), "")
	options := Options{Client: client, Root: rootOf(t)}
	lagging := open(t, options)
	stop := run(t, lagging)
	begin := mustCommit(t, lagging, put("start", ""))
	changes, ended := watching(t, lagging, begin)
	stop()
	var want []uint64
	for n := range burst {
		want = append(want, mustCommit(t, lagging, put("k", strconv.Itoa(n))))
	}
	run(t, lagging)
	for n, revision := range want {
		if c := next(t, changes, ended); c.Revision != revision || string(c.Puts[0].Value) != strconv.Itoa(n) {
			t.Fatalf("change %d is %+v, want revision %d", n, c, revision)
		}
	}
}

// Large values are delivered as they were committed, also when they were replaced since.
func TestLargeChangesAreDeliveredExactly(t *testing.T) {
	client := clientOf(t, shared(t).Addr(1), "")
	options := Options{Client: client, Root: rootOf(t)}
	lagging := open(t, options)
	stop := run(t, lagging)
	begin := mustCommit(t, lagging, put("start", ""))
	changes, ended := watching(t, lagging, begin)
	stop()
	for _, fill := range "abc" {
		mustCommit(t, lagging, service.Txn{Puts: []service.Put{{Key: "large", Value: large(byte(fill))}}})
	}
	run(t, lagging)
	for _, fill := range "abc" {
		if c := next(t, changes, ended); len(c.Puts) != 1 || !bytes.Equal(c.Puts[0].Value, large(byte(fill))) {
			t.Fatalf("want the %q that was committed", fill)
		}
	}
}

func TestADamagedOrRemovedChangeRecordIsAGap(t *testing.T) {
	for what, harm := range map[string]func(*testing.T, *Store, string){
		"damaged": func(t *testing.T, s *Store, key string) {
			overwrite(t, s, key, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		},
		"removed": func(t *testing.T, s *Store, key string) {
			if _, err := s.options.Client.KV().Delete(s.options.Root+key, nil); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			client := clientOf(t, shared(t).Addr(1), "")
			options := Options{Client: client, Root: rootOf(t)}
			s := open(t, options)
			begin := mustCommit(t, s, put("k", "1"))
			mustCommit(t, s, put("k", "2"))
			known := map[string]bool{}
			for _, k := range keysUnder(t, s, changesDir) {
				known[k] = true
			}
			mustCommit(t, s, put("k", "3"))
			for _, k := range keysUnder(t, s, changesDir) {
				if !known[k] {
					harm(t, s, k[len(options.Root):])
				}
			}
			run(t, s)
			_, ended := watching(t, s, begin)
			gap(t, ended)
		})
	}
}

func TestARevisionThatNeverWasIsAGap(t *testing.T) {
	s := start(t, Options{})
	last := mustCommit(t, s, put("k", "1"))
	_, ended := watching(t, s, last+1_000_000)
	gap(t, ended)
}

// A restored snapshot takes facts back: who watched starts anew, and revisions go on growing.
func TestARestoredSnapshotIsAGap(t *testing.T) {
	c := engine.StartConsul(t, 1)
	client := clientOf(t, c.Addr(1), c.Token())
	s := start(t, Options{Client: client, Root: rootOf(t)})
	kept := mustCommit(t, s, put("k", "kept"))
	snapshot, _, err := client.Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Close() }()
	undone := mustCommit(t, s, put("k", "undone"))
	changes, ended := watching(t, s, kept)
	if got := next(t, changes, ended); got.Revision != undone {
		t.Fatalf("delivered %+v", got)
	}
	if err := client.Snapshot().Restore(nil, snapshot); err != nil {
		t.Fatal(err)
	}
	gap(t, ended)
	if r, err := s.Get(t.Context(), "k"); err != nil || string(r.Value) != "kept" || r.Revision != kept {
		t.Fatalf("got %q at %d, %v", r.Value, r.Revision, err)
	}
	changes, ended = watching(t, s, kept)
	later := mustCommit(t, s, put("k", "later"))
	if later <= undone {
		t.Errorf("revision %d was given after %d", later, undone)
	}
	if got := next(t, changes, ended); got.Revision != later || string(got.Puts[0].Value) != "later" {
		t.Fatalf("delivered %+v", got)
	}
}

func TestAWatchOutlivesConsulsAbsence(t *testing.T) {
	c := engine.StartConsul(t, 1)
	s := start(t, Options{Client: clientOf(t, c.Addr(1), ""), Root: rootOf(t), Timeout: time.Second})
	begin := mustCommit(t, s, put("k", "before"))
	changes, ended := watching(t, s, begin)
	c.Kill(1)
	eventually(t, 3*time.Second, "health tells", func() bool { return !s.Health().Ready })
	c.Start(1)
	var revision uint64
	eventually(t, 30*time.Second, "a commit succeeds again", func() bool {
		var err error
		revision, err = s.Commit(t.Context(), put("k", "after"))
		if err != nil && !errors.Is(err, service.ErrUnavailable) {
			t.Fatalf("while away: %v", err)
		}
		return err == nil
	})
	for {
		if got := next(t, changes, ended); got.Revision == revision {
			break
		} else if string(got.Puts[0].Value) != "after" {
			t.Fatal(fmt.Errorf("delivered %+v", got))
		}
	}
}
