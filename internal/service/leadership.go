package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// epochRecord is the last epoch taken, and by whom.
type epochRecord struct {
	Epoch    uint64    `json:"epoch"`
	Identity string    `json:"identity"`
	Previous string    `json:"previous_identity,omitempty"`
	TakenAt  time.Time `json:"taken_at"`
}

type floorRecord struct {
	Floor uint64 `json:"floor"`
}

// TakeEpoch is the EpochSource over a store: max(floor, last) + 1 by compare-and-set, fenced by the session that
// has just won the leader key.
func TakeEpoch(store Store, now func() time.Time) EpochSource {
	return func(ctx context.Context, identity string, fence Fence) (uint64, error) {
		floor, err := readFloor(ctx, store)
		if err != nil {
			return 0, err
		}
		for range maxRaces {
			var last epochRecord
			rec, err := store.Get(ctx, keyEpoch)
			switch {
			case errors.Is(err, ErrNoRecord):
			case err != nil:
				return 0, fmt.Errorf("read the last epoch: %w", err)
			default:
				if last, err = decode[epochRecord](rec); err != nil {
					return 0, err
				}
			}
			next := epochRecord{Epoch: max(floor, last.Epoch) + 1, Identity: identity, Previous: last.Identity, TakenAt: now().UTC()}
			value, err := json.Marshal(next)
			if err != nil {
				return 0, err
			}
			_, err = store.Commit(ctx, Txn{
				Fence: &fence, Checks: []Check{{keyEpoch, rec.Revision}}, Puts: []Put{{keyEpoch, value}},
			})
			if errors.Is(err, ErrConflict) {
				continue
			}
			if err != nil {
				return 0, fmt.Errorf("take epoch %d: %w", next.Epoch, err)
			}
			return next.Epoch, nil
		}
		return 0, fmt.Errorf("take an epoch: %w", ErrConflict)
	}
}

func readFloor(ctx context.Context, store Store) (uint64, error) {
	rec, err := store.Get(ctx, keyFloor)
	if errors.Is(err, ErrNoRecord) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the floor of tokens and epochs: %w", err)
	}
	v, err := decode[floorRecord](rec)
	return v.Floor, err
}

func (s *Service) loadFloor(ctx context.Context) error {
	floor, err := readFloor(ctx, s.store)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.SetTokenFloor(floor)
	return nil
}

// changeTerm takes up a change of leadership, in the committer: no transaction of this replica is under way.
func (s *Service) changeTerm(ctx context.Context, ch LeaderChange) error {
	s.feed.touch(scopeLeader)
	if !ch.Leading {
		s.lock()
		ours := s.leading && s.fence == ch.Fence
		s.mu.Unlock()
		if !ours {
			return nil
		}
		return s.forgetTerm(ctx, newPending())
	}
	if fence, ok := s.opts.Elector.Fence(); !ok || fence != ch.Fence {
		return nil // over before it was taken up
	}
	return s.beginTerm(ctx, ch.Fence)
}

// beginTerm waits until this replica knows all that the last leader concluded, and goes on from there.
func (s *Service) beginTerm(ctx context.Context, fence Fence) error {
	err := s.lead(ctx, fence)
	if err == nil {
		err = s.takeUpFacts(ctx)
	}
	if err != nil {
		s.requeue(LeaderChange{Leading: true, Fence: fence}) // the term goes on: try again
		return fmt.Errorf("begin term %d: %w", fence.Epoch, err)
	}
	return nil
}

// takeUpFacts concludes removals and dismissals that nobody concluded: they waited for a leader.
func (s *Service) takeUpFacts(ctx context.Context) error {
	for _, family := range []string{familyRemoval, familyDismissal} {
		recs, _, err := s.store.List(ctx, family)
		if err != nil {
			return fmt.Errorf("list %s: %w", family, err)
		}
		if err := s.applyAll(recs); err != nil {
			return err
		}
	}
	return nil
}

// lead starts concluding under the fence. The epoch was taken in the first transaction of the term: what is older is the last
// leader's, and no word of it can come later.
func (s *Service) lead(ctx context.Context, fence Fence) error {
	rec, err := s.store.Get(ctx, keyEpoch)
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return fmt.Errorf("read the epoch: %w", err)
	}
	var taken epochRecord
	if err == nil {
		if taken, err = decode[epochRecord](rec); err != nil {
			return err
		}
	}
	if err := s.awaitLoaded(ctx, rec.Revision); err != nil {
		return err
	}
	now := s.lock()
	defer s.mu.Unlock()
	if s.leading && s.fence == fence {
		return nil
	}
	s.leading, s.fence, s.nextSeq = true, fence, s.journal.lastSeq()+1
	s.pending.add(coordination.Event{
		ID: coordination.LeaderChangedID(fence.Epoch), Type: coordination.EventLeaderChanged, Timestamp: now.UTC(),
		Data: coordination.EventData{Epoch: fence.Epoch, Identity: s.opts.Elector.Identity(), PreviousIdentity: taken.Previous},
	})
	s.collect(s.core.SetLeading(now, true, fence.Epoch))
	s.wake()
	s.log.Info("leading", "identity", s.opts.Elector.Identity(), "epoch", fence.Epoch)
	return nil
}

// fenced ends the term because the store says so; where the elector still holds it, it is begun anew.
func (s *Service) fenced(ctx context.Context, taken pending) error {
	if err := s.forgetTerm(ctx, taken); err != nil {
		return err
	}
	if fence, ok := s.opts.Elector.Fence(); ok {
		s.requeue(LeaderChange{Leading: true, Fence: fence})
		return fmt.Errorf("term %d: %w", fence.Epoch, ErrFenced)
	}
	return nil
}

func (s *Service) requeue(ch LeaderChange) {
	select {
	case s.terms <- ch:
	default:
	}
}

// forgetTerm stops concluding. What was concluded and not committed never happened: the store's word is
// read back, so that the next term tells it again.
func (s *Service) forgetTerm(ctx context.Context, taken pending) error {
	now := s.lock()
	s.collect(s.core.SetLeading(now, false, 0))
	s.leading, s.fence = false, Fence{}
	taken.merge(s.pending)
	s.pending = newPending()
	s.pending.roster, s.pending.handedOut = taken.roster, taken.handedOut
	s.mu.Unlock()
	s.log.Info("not leading any more", "identity", s.opts.Elector.Identity())
	return s.rereadConclusions(ctx, taken)
}

func (s *Service) rereadConclusions(ctx context.Context, taken pending) error {
	for sub := range taken.units {
		var err error
		switch sub.kind {
		case aboutPeer:
			err = s.rereadPeer(ctx, sub.peer())
		case aboutClaim:
			err = s.catchUp(ctx, subscriptionKey(familyClaim, sub.subscription()))
		case aboutNothing, aboutAssignment, aboutConflict, aboutGroup, aboutDismissal:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) rereadPeer(ctx context.Context, k coordination.PeerKey) error {
	for _, family := range []string{familyPeer, familyShutdown} {
		if err := s.catchUp(ctx, peerKey(family, k)); err != nil {
			return err
		}
	}
	rec, err := s.store.Get(ctx, peerKey(familyConclusion, k))
	switch {
	case errors.Is(err, ErrNoRecord):
		s.with(func(now time.Time) *coordination.Output { return s.core.ForgetConclusion(now, k) })
		return nil
	case err != nil:
		return fmt.Errorf("reread conclusions: %w", err)
	}
	return s.apply(rec)
}

// Leader says who leads.
func (s *Service) Leader() Leader {
	e := s.opts.Elector
	return Leader{Identity: e.CurrentLeader(), IsLeader: e.IsLeader(), Epoch: e.Epoch(), Replica: e.Identity()}
}

// Handoff releases leadership; false when this replica did not lead.
func (s *Service) Handoff(ctx context.Context) (bool, error) {
	if !s.opts.Elector.IsLeader() {
		return false, nil
	}
	if err := s.opts.Elector.Release(ctx); err != nil {
		return false, fmt.Errorf("hand leadership over: %w", err)
	}
	s.log.Info("leadership handed over", "identity", s.opts.Elector.Identity())
	return true, nil
}

// Raise commits an event that another part of the leader concluded. It waits for nothing: the event is in the next
// transaction. ErrFenced when this replica does not lead.
func (s *Service) Raise(_ context.Context, e coordination.Event) error {
	now := s.lock()
	defer s.mu.Unlock()
	if !s.leading {
		return ErrFenced
	}
	e.Data.Epoch = s.fence.Epoch
	if e.Timestamp.IsZero() {
		e.Timestamp = now.UTC()
	}
	s.pending.add(e)
	s.wake()
	return nil
}
