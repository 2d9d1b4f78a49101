package standalone

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/coordsvc/coordsvc/internal/service"
)

// history is the bounded memory of recent transactions that watchers read from at their own pace: the writer
// only ever appends, so that a slow watcher cannot hold it.
type history struct {
	maxTxns, maxBytes int

	mu      sync.Mutex
	entries []service.Changes
	bytes   int
	// forgotten is the newest revision that is no longer remembered; newest the newest of all.
	forgotten, newest uint64
	// grown is closed and replaced when entries are appended.
	grown chan struct{}
}

func newHistory(revision uint64, maxTxns, maxBytes int) *history {
	return &history{maxTxns: maxTxns, maxBytes: maxBytes, forgotten: revision, newest: revision, grown: make(chan struct{})}
}

func (h *history) append(changes []service.Changes) {
	if len(changes) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changes {
		h.bytes += sizeOf(c)
		h.newest = c.Revision
	}
	h.entries = append(h.entries, changes...)
	drop := 0
	for drop < len(h.entries) && (len(h.entries)-drop > h.maxTxns || h.bytes > h.maxBytes) {
		h.bytes -= sizeOf(h.entries[drop])
		h.forgotten = h.entries[drop].Revision
		h.entries[drop] = service.Changes{}
		drop++
	}
	// Appending to a shortened slice moves it to a new array now and then, which frees the dropped front.
	h.entries = h.entries[drop:]
	close(h.grown)
	h.grown = make(chan struct{})
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

// since returns up to a limited number of transactions after a revision; none, and a channel to wait on, when there
// is nothing newer.
func (h *history) since(after uint64) ([]service.Changes, <-chan struct{}, error) {
	const limit = 256
	h.mu.Lock()
	defer h.mu.Unlock()
	if after < h.forgotten || after > h.newest {
		return nil, nil, fmt.Errorf("revision %d is not remembered (%d to %d are): %w", after, h.forgotten, h.newest, service.ErrGap)
	}
	// Revisions grow by one a transaction, so that the place is known.
	pending := h.entries[after-h.forgotten:]
	if len(pending) == 0 {
		return nil, h.grown, nil
	}
	return append([]service.Changes(nil), pending[:min(len(pending), limit)]...), nil, nil
}

// Watch implements service.Store. It runs deliver on the caller's goroutine and returns its error, the cause of
// ctx's end, ErrGap, or ErrUnavailable when the store closes.
func (s *Store) Watch(ctx context.Context, prefix string, after uint64, deliver func(service.Changes) error) error {
	for {
		pending, grown, err := s.history.since(after)
		if err != nil {
			return fmt.Errorf("watch %q: %w", prefix, err)
		}
		for _, c := range pending {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if under := narrow(c, prefix); len(under.Puts)+len(under.Deletes) > 0 {
				if err := deliver(under); err != nil {
					return err
				}
			}
			after = c.Revision
		}
		if grown == nil {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.closing:
			return fmt.Errorf("watch %q: %w", prefix, errClosed())
		}
	}
}
