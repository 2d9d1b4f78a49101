package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Scopes of an invalidation, as bits.
const (
	scopePeers uint32 = 1 << iota
	scopeOrphans
	scopeClaims
	scopeAssignments
	scopeEvents
	scopeLeader
	scopeHealth
)

func scopeNames() []string {
	return []string{"peers", "orphans", "claims", "assignments", "events", "leader", "health"}
}

// feedEvery bounds how often live readers are told; a heartbeat pays one atomic operation for it.
const feedEvery = 100 * time.Millisecond

// feed tells live readers what changed, never what it is now.
type feed struct {
	dirty    atomic.Uint32
	revision atomic.Uint64
	mu       sync.Mutex
	readers  map[*feedReader]struct{}
}

type feedReader struct {
	dirty atomic.Uint32
	wake  chan struct{}
}

func newFeed() *feed { return &feed{readers: map[*feedReader]struct{}{}} }

// touch marks scopes as changed.
func (f *feed) touch(scopes uint32) {
	if f.dirty.Load()&scopes != scopes {
		f.dirty.Or(scopes)
	}
	f.revision.Add(1)
}

// run fans changes out until ctx ends.
func (f *feed) run(ctx context.Context) error {
	t := time.NewTicker(feedEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			if scopes := f.dirty.Swap(0); scopes != 0 {
				f.spread(scopes)
			}
		}
	}
}

func (f *feed) spread(scopes uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		r.dirty.Or(scopes)
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Invalidations delivers coalesced change notices, at most one pending per scope, until ctx ends or deliver fails.
func (s *Service) Invalidations(ctx context.Context, deliver func(Invalidation) error) error {
	r := &feedReader{wake: make(chan struct{}, 1)}
	s.feed.mu.Lock()
	s.feed.readers[r] = struct{}{}
	s.feed.mu.Unlock()
	defer func() {
		s.feed.mu.Lock()
		delete(s.feed.readers, r)
		s.feed.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		}
		scopes := r.dirty.Swap(0)
		for i, name := range scopeNames() {
			if scopes&(1<<i) == 0 {
				continue
			}
			if err := deliver(Invalidation{Scope: name, Revision: s.feed.revision.Load()}); err != nil {
				return err
			}
		}
	}
}
