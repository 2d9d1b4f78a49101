package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// Service owns the core: it turns requests and bus messages into inputs, commits the facts that must last
// before it answers, and hands events on through the journal.
type Service struct {
	opts  Options
	store Store
	log   *slog.Logger

	mu      sync.Mutex // guards everything down to the blank line
	core    *coordination.Core
	looked  time.Time // the service's own last look at the clock
	pending pending
	index   *index
	loaded  uint64        // revision up to which the store has been applied
	news    chan struct{} // closed and replaced when loaded grows
	leading bool
	fence   Fence
	nextSeq uint64 // of the next journal record, while leading
	// inFlight are the facts that the committer is moving on: the core is ahead of what the watch tells of
	// them. landing closes when they have landed.
	inFlight map[string]struct{}
	landing  chan struct{}
	// refreshed is the peer up to which the roster's rotation has come.
	refreshed coordination.PeerKey
	past      queue[coordination.EpisodeKey]
	ended     queue[string] // assignments
	// removed are the removal facts concluded already, by revision: the watch tells them again. removing are those
	// that wait for a leader: the peer is hidden meanwhile.
	removed  map[coordination.PeerKey]uint64
	removing map[coordination.PeerKey]struct{}

	work    chan struct{} // wakes the committer
	terms   chan LeaderChange
	journal *journal
	feed    *feed
}

// New returns a service that knows nothing yet: Load it, then Run it.
func New(opts Options) (*Service, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &Service{
		opts: opts, store: opts.Store, log: opts.Logger.With("component", "service"),
		core: coordination.New(opts.Core), index: newIndex(), pending: newPending(),
		work: make(chan struct{}, 1), terms: make(chan LeaderChange, 16),
		journal: newJournal(opts.JournalSize), feed: newFeed(), removed: map[coordination.PeerKey]uint64{},
		removing: map[coordination.PeerKey]struct{}{}, news: make(chan struct{}),
	}
	return s, nil
}

// Run serves until ctx ends. Load must have succeeded before. The elector and the bus run elsewhere.
func (s *Service) Run(ctx context.Context) error {
	handle := s.opts.Elector.OnLeaderChange(func(ch LeaderChange) {
		select {
		case s.terms <- ch:
		case <-ctx.Done():
		}
	})
	defer s.opts.Elector.RemoveLeaderChangeCallback(handle)
	if fence, ok := s.opts.Elector.Fence(); ok {
		s.terms <- LeaderChange{Leading: true, Fence: fence}
	}
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return s.tick(running) })
	g.Go(func() error { return s.commitLoop(running) })
	g.Go(func() error { return s.watch(running) })
	g.Go(func() error { return s.feed.run(running) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return s.flushAll(context.WithoutCancel(ctx))
}

// flushAll writes what is still pending when the service stops; it has two seconds.
func (s *Service) flushAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := s.flushRoster(ctx); err != nil {
		return fmt.Errorf("write the roster while stopping: %w", err)
	}
	return nil
}

func (s *Service) tick(ctx context.Context) error {
	t := time.NewTimer(s.opts.Tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			now := s.lock()
			next := s.core.NextDue()
			s.mu.Unlock()
			t.Reset(s.nextTick(now, next))
		}
	}
}

// leastTick keeps a large fleet, which has something due at every instant, from keeping a processor.
const leastTick = 5 * time.Millisecond

// nextTick is how long to wait for the next look: until something is due, at most a Tick, so that an own pause shows.
func (s *Service) nextTick(now, next time.Time) time.Duration {
	if next.IsZero() {
		return s.opts.Tick
	}
	return min(max(next.Sub(now), leastTick), s.opts.Tick)
}

// lock takes the core at the present instant: the service's own interruption is made up for first, then
// everything that fell due has happened. It returns the instant.
func (s *Service) lock() time.Time {
	s.mu.Lock()
	now := s.opts.Now()
	if !s.looked.IsZero() {
		if now.Before(s.looked) {
			now = s.looked
		}
		if gap := now.Sub(s.looked); gap > coordination.ShortGap {
			s.core.Paused(now, gap)
			s.opts.Metrics.Paused(gap)
			s.log.Warn("own pause made up for", "gap_seconds", gap.Seconds())
			s.feed.touch(scopeHealth)
		}
	}
	s.looked = now
	if next := s.core.NextDue(); !next.IsZero() && !next.After(now) {
		s.collect(s.core.Tick(now))
	}
	return now
}

// with runs one input under the lock.
func (s *Service) with(input func(now time.Time) *coordination.Output) {
	now := s.lock()
	defer s.mu.Unlock()
	s.collect(input(now))
}
