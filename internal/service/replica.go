package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// loadOrder is the order in which families are applied: what others hang on comes first.
func loadOrder() []string {
	return []string{
		familyPeer, familyShutdown, familyConclusion, familyConflict, familyMass,
		familyPast, familyClaim, familyAssignment, familyRemoval, familyDismissal, familyEvent,
	}
}

// Load reads the whole store. It must succeed before Run, and before the first request is answered.
func (s *Service) Load(ctx context.Context) error {
	if err := s.loadFloor(ctx); err != nil {
		return err
	}
	recs, revision, err := s.store.List(ctx, "")
	if err != nil {
		return fmt.Errorf("load the store: %w", err)
	}
	if err := s.applyAll(recs); err != nil {
		return err
	}
	s.advanceTo(revision)
	return nil
}

// advanceTo notes that the store has been applied up to a revision.
func (s *Service) advanceTo(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = revision
	close(s.news)
	s.news = make(chan struct{})
}

// awaitLoaded waits until the watch has applied everything up to a revision.
func (s *Service) awaitLoaded(ctx context.Context, revision uint64) error {
	for {
		s.mu.Lock()
		loaded, news := s.loaded, s.news
		s.mu.Unlock()
		if loaded >= revision {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

func (s *Service) applyAll(recs []Record) error {
	for _, family := range loadOrder() {
		for _, rec := range recs {
			if strings.HasPrefix(rec.Key, family) {
				if err := s.apply(rec); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// watch applies what is committed, by whomever, until ctx ends.
func (s *Service) watch(ctx context.Context) error {
	for {
		s.mu.Lock()
		from := s.loaded
		s.mu.Unlock()
		err := s.store.Watch(ctx, "", from, s.applyChanges)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrGap):
			s.log.Warn("watch fell behind; reading the store anew")
			err = s.Load(ctx)
		}
		if err != nil {
			s.log.Warn("watch interrupted; trying again", "error", err)
			if !s.pause(ctx, retryMin) {
				return ctx.Err()
			}
		}
	}
}

func (s *Service) applyChanges(ch Changes) error {
	for _, rec := range ch.Puts {
		if err := s.apply(rec); err != nil {
			// One unreadable record must not stop the others; it is as loud as it can be.
			s.log.Error("record not applied", "key", rec.Key, "revision", rec.Revision, "error", err)
			s.opts.Metrics.Dropped("unreadable_record", 1)
		}
	}
	for _, k := range ch.Deletes {
		s.applyDelete(k)
	}
	s.advanceTo(ch.Revision)
	return nil
}

// decode reads a record's value.
func decode[T any](rec Record) (T, error) {
	var v T
	if err := json.Unmarshal(rec.Value, &v); err != nil {
		return v, fmt.Errorf("read record %s: %w", rec.Key, err)
	}
	return v, nil
}

// apply takes one record in. Facts carry their revision, so that one applied already changes nothing. The leader's own
// conclusions are in its core already.
func (s *Service) apply(rec Record) error {
	family, _, _ := strings.Cut(rec.Key, "/")
	switch family + "/" {
	case familyPeer:
		return applyAs(s, rec, func(now time.Time, v coordination.PeerRecord) *coordination.Output {
			if s.outlivedBy(v.Key(), rec.Revision) {
				return &coordination.Output{}
			}
			return s.core.ApplyPeer(now, v)
		})
	case familyShutdown:
		return applyAs(s, rec, func(now time.Time, v coordination.ShutdownRecord) *coordination.Output {
			v.Revision = rec.Revision
			if s.outlivedBy(v.Key(), rec.Revision) {
				return &coordination.Output{}
			}
			return s.core.ApplyShutdown(now, &v)
		})
	case familyClaim:
		return applyAs(s, rec, func(now time.Time, v coordination.ClaimRecord) *coordination.Output {
			v.Revision = rec.Revision
			return s.core.ApplyClaim(now, v)
		})
	case familyAssignment:
		return applyAs(s, rec, func(now time.Time, v coordination.AssignmentRecord) *coordination.Output {
			v.Revision = rec.Revision
			out := s.core.ApplyAssignment(now, v)
			if !v.EndedAt.IsZero() {
				s.noteEnded(v.ID)
			}
			return out
		})
	case familyRemoval:
		v, err := decode[removal](rec)
		if err != nil {
			return err
		}
		s.applyRemoval(coordination.PeerKey{Group: v.Group, InstanceID: v.InstanceID}, rec.Revision)
	case familyDismissal:
		v, err := decode[dismissal](rec)
		if err != nil {
			return err
		}
		s.applyDismissal(v)
	case familyEvent:
		return s.applyEvents(rec)
	default:
		return s.applyConclusion(rec)
	}
	return nil
}

// outlivedBy reports whether a record is older than the removal of its peer: the watch tells of it after the fact. Under the lock.
func (s *Service) outlivedBy(k coordination.PeerKey, revision uint64) bool {
	return revision <= s.removed[k]
}

func applyAs[T any](s *Service, rec Record, input func(time.Time, T) *coordination.Output) error {
	v, err := decode[T](rec)
	if err != nil {
		return err
	}
	s.with(func(now time.Time) *coordination.Output {
		if _, ahead := s.inFlight[rec.Key]; ahead {
			return &coordination.Output{}
		}
		return input(now, v)
	})
	return nil
}

// applyConclusion takes the leader's conclusions in, unless this replica is the leader.
func (s *Service) applyConclusion(rec Record) error {
	var err error
	s.with(func(now time.Time) *coordination.Output {
		none := &coordination.Output{Touched: true}
		if s.leading {
			return &coordination.Output{}
		}
		switch {
		case strings.HasPrefix(rec.Key, familyConclusion):
			v, e := decode[coordination.ConclusionRecord](rec)
			if err = e; e == nil {
				return s.core.ApplyConclusion(now, v)
			}
		case strings.HasPrefix(rec.Key, familyConflict):
			v, e := decode[coordination.ConflictRecord](rec)
			if err = e; e == nil {
				s.core.ApplyConflict(v)
			}
		case strings.HasPrefix(rec.Key, familyMass):
			v, e := decode[coordination.MassRecord](rec)
			if err = e; e == nil {
				s.core.ApplyMass(v)
			}
		case strings.HasPrefix(rec.Key, familyPast):
			v, e := decode[coordination.EpisodeRecord](rec)
			if err = e; e == nil {
				s.past.add(v.Key())
				return s.core.ApplyPast(now, v)
			}
		}
		return none
	})
	return err
}

func (s *Service) applyEvents(rec Record) error {
	events, err := s.journal.append(rec)
	if err != nil {
		return err
	}
	for i := range events {
		s.opts.Metrics.Event(events[i].Type)
	}
	if len(events) > 0 {
		s.feed.touch(scopeEvents)
	}
	return nil
}

func (s *Service) applyDelete(k string) {
	switch {
	case strings.HasPrefix(k, familyEvent):
		if seq, ok := eventSeq(k); ok {
			s.journal.drop(seq)
		}
	case strings.HasPrefix(k, familyPast):
		s.lock()
		s.dropPast(k)
		s.mu.Unlock()
	case strings.HasPrefix(k, familyAssignment):
		if id := parts(familyAssignment, k); len(id) == 1 {
			s.lock()
			s.dropAssignment(id[0])
			s.mu.Unlock()
		}
	case strings.HasPrefix(k, familyRemoval):
		if pk, ok := peerKeyOf(familyRemoval, k); ok {
			s.lock()
			delete(s.removed, pk)
			delete(s.removing, pk)
			s.mu.Unlock()
		}
	case strings.HasPrefix(k, familyConclusion):
		pk, ok := peerKeyOf(familyConclusion, k)
		s.with(func(now time.Time) *coordination.Output {
			if !ok || s.leading {
				return &coordination.Output{}
			}
			return s.core.ApplyForgotten(now, pk)
		})
	}
}

// catchUp reads one fact anew after a lost race; one against this replica's own committer is over when that has landed.
func (s *Service) catchUp(ctx context.Context, k string) error {
	s.mu.Lock()
	_, ours := s.inFlight[k]
	landing := s.landing
	s.mu.Unlock()
	if ours {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-landing:
		}
	}
	rec, err := s.store.Get(ctx, k)
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("catch up on %s: %w", k, err)
	}
	return s.apply(rec)
}

func (s *Service) catchUpAll(ctx context.Context, checks []Check) error {
	for _, c := range checks {
		if strings.HasPrefix(c.Key, familyEvent) {
			if _, err := s.store.Get(ctx, c.Key); err == nil {
				// Somebody else wrote the journal: this replica does not lead, whatever it believes.
				return fmt.Errorf("journal record %s: %w", c.Key, ErrFenced)
			}
			continue
		}
		if err := s.catchUp(ctx, c.Key); err != nil {
			return err
		}
	}
	return nil
}
