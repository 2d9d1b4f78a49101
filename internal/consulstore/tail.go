package consulstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/coordsvc/coordsvc/internal/service"
)

// tail is this replica's memory of the recent transactions. One goroutine, that of follow, adds to it; watchers
// read from it at their own pace.
type tail struct {
	maxChanges, maxBytes int

	mu     sync.Mutex
	loaded bool
	// generation changes when Consul went back to an older state: what watchers saw before may never have happened.
	generation int
	entries    []service.Changes
	bytes      int
	// forgotten is the newest revision that is no longer remembered; up to newest everything is known.
	forgotten, newest uint64
	// grown is closed and replaced whenever the above changes.
	grown chan struct{}
	// stored are the change records in Consul, newestKey the one of the newest revision.
	stored    map[string]storedChange
	newestKey string
	// interrupt ends the query that waits for news.
	interrupt context.CancelFunc
}

type storedChange struct {
	key      string
	revision uint64
	size     int
}

func newTail(maxChanges, maxBytes int) *tail {
	return &tail{
		maxChanges: maxChanges, maxBytes: maxBytes,
		grown: make(chan struct{}), stored: make(map[string]storedChange), interrupt: func() {},
	}
}

// batch is what one read of the change records brought, as of one moment.
type batch struct {
	head, trimmed uint64
	// whole: all change records were read, not only some that are new.
	whole  bool
	stored []storedChange
	// changes are those newer than what the tail knew, in order.
	changes []service.Changes
	// unreadable is the newest revision whose change record is damaged.
	unreadable uint64
}

// known is the newest revision that the tail has.
func (t *tail) known() (revision uint64, generation int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest, t.generation
}

func (t *tail) isLoaded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loaded
}

// compare takes the names of all change records and returns the unknown ones. lost: the newest known one is
// not among them; either the answer is an older state than one seen already, or somebody removed it.
func (t *tail) compare(keys []string) (fresh []string, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := make(map[string]storedChange, len(keys))
	for _, k := range keys {
		if c, ok := t.stored[k]; ok {
			there[k] = c
		} else {
			fresh = append(fresh, k)
		}
	}
	if _, ok := there[t.newestKey]; !ok && t.newestKey != "" {
		return fresh, true
	}
	t.stored = there
	return fresh, false
}

// add takes a batch in.
func (t *tail) add(b batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.loaded && b.head < t.newest:
		t.generation++
		t.entries, t.bytes = nil, 0
		t.forgotten, t.newest = b.trimmed, b.trimmed
	case b.trimmed > t.newest:
		t.forget(b.trimmed)
		t.newest = b.trimmed
	}
	if b.whole {
		t.stored = make(map[string]storedChange, len(b.stored))
		t.newestKey = ""
	}
	for _, c := range b.stored {
		if newest, ok := t.stored[t.newestKey]; !ok || c.revision > newest.revision {
			t.newestKey = c.key
		}
		t.stored[c.key] = c
	}
	for _, c := range b.changes {
		if c.Revision > t.newest {
			t.entries = append(t.entries, c)
			t.bytes += sizeOf(c)
			t.newest = c.Revision
		}
	}
	t.close(b)
	t.shorten()
	t.loaded = true
	close(t.grown)
	t.grown = make(chan struct{})
}

// close makes a gap of what a batch should have had and has not. Under the lock.
func (t *tail) close(b batch) {
	if b.unreadable > t.forgotten {
		t.forget(b.unreadable)
		t.newest = max(t.newest, b.unreadable)
	}
	// Every transaction writes the head together with its change record.
	if b.whole && b.head > t.newest {
		t.forget(b.head)
		t.newest = b.head
	}
}

// forget drops what is remembered up to a revision. Under the lock.
func (t *tail) forget(revision uint64) {
	keep := 0
	for keep < len(t.entries) && t.entries[keep].Revision <= revision {
		t.bytes -= sizeOf(t.entries[keep])
		keep++
	}
	t.entries = slices.Clone(t.entries[keep:])
	t.forgotten = revision
}

// shorten bounds the memory. Under the lock.
func (t *tail) shorten() {
	for len(t.entries) > minChanges && (len(t.entries) > 2*t.maxChanges || t.bytes > 2*t.maxBytes) {
		t.bytes -= sizeOf(t.entries[0])
		t.forgotten = t.entries[0].Revision
		t.entries[0] = service.Changes{}
		t.entries = t.entries[1:]
	}
}

func sizeOf(c service.Changes) int {
	const overhead = 64
	size := overhead
	for _, r := range c.Puts {
		size += overhead + len(r.Key) + len(r.Value)
	}
	for _, k := range c.Deletes {
		size += overhead + len(k)
	}
	return size
}

// since returns up to a limited number of transactions after a revision; none, and a channel to wait on, when there is
// nothing newer.
func (t *tail) since(after uint64, generation int) ([]service.Changes, <-chan struct{}, error) {
	const limit = 256
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.loaded:
		return nil, t.grown, nil
	case generation != t.generation:
		return nil, nil, fmt.Errorf("consul went back to an older state: %w", service.ErrGap)
	case after < t.forgotten:
		return nil, nil, fmt.Errorf("revision %d is not remembered (%d to %d are): %w", after, t.forgotten, t.newest, service.ErrGap)
	}
	first, found := slices.BinarySearchFunc(t.entries, after, func(c service.Changes, revision uint64) int {
		return cmp.Compare(c.Revision, revision)
	})
	if found {
		first++
	}
	pending := t.entries[first:]
	if len(pending) == 0 {
		return nil, t.grown, nil
	}
	return slices.Clone(pending[:min(len(pending), limit)]), nil, nil
}

// excess are the oldest change records that there are too many of, oldest first.
func (t *tail) excess() []storedChange {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]storedChange, 0, len(t.stored))
	size := 0
	for _, c := range t.stored {
		all = append(all, c)
		size += c.size
	}
	if len(all) <= t.maxChanges && size <= t.maxBytes {
		return nil
	}
	slices.SortFunc(all, func(a, b storedChange) int { return cmp.Compare(a.revision, b.revision) })
	n := 0
	for n < min(maxKeys, len(all)-minChanges) && (len(all)-n > t.maxChanges || size > t.maxBytes) {
		size -= all[n].size
		n++
	}
	return all[:max(n, 0)]
}

// trimmed notes that change records are gone.
func (t *tail) trimmed(gone []storedChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range gone {
		delete(t.stored, c.key)
	}
}

func (t *tail) onInterrupt(cancel context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupt = cancel
}

// wake ends the query that waits for news: the connection it waits on may be dead.
func (t *tail) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupt()
}

// narrow keeps only the keys under prefix.
func narrow(c service.Changes, prefix string) service.Changes {
	under := service.Changes{Revision: c.Revision}
	for _, r := range c.Puts {
		if strings.HasPrefix(r.Key, prefix) {
			under.Puts = append(under.Puts, r)
		}
	}
	for _, k := range c.Deletes {
		if strings.HasPrefix(k, prefix) {
			under.Deletes = append(under.Deletes, k)
		}
	}
	return under
}
