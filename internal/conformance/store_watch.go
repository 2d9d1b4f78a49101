package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/coordsvc/coordsvc/internal/service"
)

// watch delivers a prefix's changes into a channel until the test ends. A watch that ends by itself fails the test.
func watch(t *testing.T, s service.Store, prefix string, after uint64) <-chan service.Changes {
	t.Helper()
	const room = 10_000
	delivered := make(chan service.Changes, room)
	background(t, func(ctx context.Context) {
		err := s.Watch(ctx, prefix, after, func(c service.Changes) error {
			delivered <- c
			return nil
		})
		if ctx.Err() == nil {
			t.Errorf("the watch of %q after %d ended: %v", prefix, after, err)
		}
	})
	return delivered
}

func watchersSeeEveryCommitInOrder(t *testing.T, b StoreBackend) {
	const writers, each = 8, 20
	start := commit(t, b.Store, puts("w/start", ""))
	watchers := []<-chan service.Changes{watch(t, b.Store, "w/", start), watch(t, b.Store, "", start)}
	if err := errors.Join(race(writers, func(i int) error {
		for n := range each {
			if _, err := b.Store.Commit(t.Context(), puts(fmt.Sprintf("w/%d", i), strconv.Itoa(n))); err != nil {
				return err
			}
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
	for _, changes := range watchers {
		next := make(map[string]int)
		last := start
		for range writers * each {
			c := receive(t, b.Within, "the next change", changes)
			if c.Revision <= last {
				t.Fatalf("revision %d after %d", c.Revision, last)
			}
			last = c.Revision
			if len(c.Puts) != 1 || len(c.Deletes) != 0 || c.Puts[0].Revision != c.Revision {
				t.Fatalf("a transaction with one put was delivered as %+v", c)
			}
			record := c.Puts[0]
			if want := strconv.Itoa(next[record.Key]); string(record.Value) != want {
				t.Fatalf("%s went to %q, want %q: a change was lost or came out of order", record.Key, record.Value, want)
			}
			next[record.Key]++
		}
	}
}

func aWatchIsLimitedToItsPrefix(t *testing.T, b StoreBackend) {
	start := commit(t, b.Store, puts("p/old", "", "q/old", ""))
	changes := watch(t, b.Store, "p/", start)
	commit(t, b.Store, puts("q/1", "", "p", "", "p0", "", "p%2F1", ""))
	revision := commit(t, b.Store, service.Txn{
		Puts:    []service.Put{{Key: "q/2"}, {Key: "p/1", Value: []byte("x")}},
		Deletes: []string{"q/old", "p/old"},
	})
	c := receive(t, b.Within, "the change under the prefix", changes)
	if c.Revision != revision || len(c.Puts) != 1 || c.Puts[0].Key != "p/1" || string(c.Puts[0].Value) != "x" ||
		len(c.Deletes) != 1 || c.Deletes[0] != "p/old" {
		t.Fatalf("delivered %+v, want the put of p/1 and the delete of p/old at %d", c, revision)
	}
}

// listAndWatchTogetherMissNothing follows a busy prefix by a list and a watch from its revision, many times over.
func listAndWatchTogetherMissNothing(t *testing.T, b StoreBackend) {
	const followers, writes = 5, 60
	type view struct {
		values  map[string]string
		changes <-chan service.Changes
		seen    uint64
	}
	var last uint64
	written := make(chan struct{})
	step := make(chan struct{}, writes)
	go func() {
		defer close(written)
		for n := range writes {
			revision, err := b.Store.Commit(t.Context(), puts(fmt.Sprintf("h/%d", n%7), strconv.Itoa(n)))
			if err != nil {
				t.Errorf("commit: %v", err)
				return
			}
			last = revision
			step <- struct{}{}
		}
	}()
	views := make([]view, followers)
	for i := range views {
		for range writes / followers / 2 {
			receive(t, b.Within, "the writer's progress", step)
		}
		records, revision := list(t, b.Store, "h/")
		views[i] = view{values: make(map[string]string), changes: watch(t, b.Store, "h/", revision), seen: revision}
		for _, r := range records {
			views[i].values[r.Key] = string(r.Value)
		}
	}
	receive(t, b.Within, "the writer's end", written)
	final, _ := list(t, b.Store, "h/")
	for _, v := range views {
		for v.seen < last {
			c := receive(t, b.Within, "a change", v.changes)
			for _, r := range c.Puts {
				v.values[r.Key] = string(r.Value)
			}
			v.seen = c.Revision
		}
		for _, r := range final {
			if v.values[r.Key] != string(r.Value) {
				t.Errorf("a follower believes %s to be %q, it is %q", r.Key, v.values[r.Key], r.Value)
			}
		}
	}
}

func aSlowWatcherDelaysNobody(t *testing.T, b StoreBackend) {
	const writes = 50
	start := commit(t, b.Store, puts("s/start", ""))
	entered, leave := make(chan struct{}), make(chan struct{})
	delivered := make(chan uint64, writes)
	background(t, func(ctx context.Context) {
		first := true
		_ = b.Store.Watch(ctx, "s/", start, func(c service.Changes) error {
			if first {
				first = false
				close(entered)
				<-leave
			}
			delivered <- c.Revision
			return nil
		})
	})
	fast := watch(t, b.Store, "s/", start)
	var revisions []uint64
	for n := range writes {
		revisions = append(revisions, commit(t, b.Store, puts("s/1", strconv.Itoa(n))))
		if n == 0 {
			receive(t, b.Within, "the slow watcher's first change", entered)
		}
	}
	for _, want := range revisions {
		if got := receive(t, b.Within, "a change beside a slow watcher", fast); got.Revision != want {
			t.Fatalf("the fast watcher got revision %d, want %d", got.Revision, want)
		}
	}
	close(leave)
	for _, want := range revisions {
		if got := receive(t, b.Within, "the slow watcher's next change", delivered); got != want {
			t.Fatalf("the slow watcher got revision %d, want %d", got, want)
		}
	}
}

// aWatchSkipsNothingSilently: from far back, over a restart, a watch delivers everything or says ErrGap.
func aWatchSkipsNothingSilently(t *testing.T, b StoreBackend) {
	const writes = 20
	start := commit(t, b.Store, puts("g/start", ""))
	for n := range writes {
		commit(t, b.Store, puts("g/1", strconv.Itoa(n)))
	}
	s := b.Reopen(t)
	revision := commit(t, s, puts("g/1", "last"))
	complete := errors.New("complete")
	n := 0
	err := s.Watch(t.Context(), "g/", start, func(c service.Changes) error {
		if c.Revision >= revision {
			return complete
		}
		if got := string(c.Puts[0].Value); got != strconv.Itoa(n) {
			return fmt.Errorf("change %d says %q", n, got)
		}
		n++
		return nil
	})
	if errors.Is(err, service.ErrGap) && n == 0 {
		return
	}
	if !errors.Is(err, complete) || n != writes {
		t.Fatalf("%d of %d changes were delivered, then %v", n, writes, err)
	}
}

func aWatchEndsWithItsContextOrItsReceiver(t *testing.T, b StoreBackend) {
	start := commit(t, b.Store, puts("e/0", ""))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Store.Watch(ctx, "e/", start, func(service.Changes) error { return nil })
	}()
	cancel()
	wantError(t, receive(t, b.Within, "the watch's end with its context", ended), context.Canceled)

	enough := errors.New("enough")
	go func() {
		ended <- b.Store.Watch(t.Context(), "e/", start, func(service.Changes) error { return enough })
	}()
	commit(t, b.Store, puts("e/1", ""))
	wantError(t, receive(t, b.Within, "the watch's end with its receiver", ended), enough)
}
