package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

const (
	retryMin = 50 * time.Millisecond
	retryMax = 2 * time.Second
)

// commitLoop writes what the core concluded, the roster and what was handed out; and takes up changes of leadership, so that a
// term begins and ends between two transactions.
func (s *Service) commitLoop(ctx context.Context) error {
	flush := time.NewTicker(s.opts.Flush)
	defer flush.Stop()
	wait := retryMin
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ch := <-s.terms:
			err = s.changeTerm(ctx, ch)
		case <-flush.C:
			if err = s.flushRoster(ctx); err == nil {
				err = s.writePending(ctx)
			}
		case <-s.work:
			err = s.writePending(ctx)
		}
		if err == nil || ctx.Err() != nil {
			wait = retryMin
			continue
		}
		s.log.Warn("store write failed; trying again", "error", err, "retry_seconds", wait.Seconds())
		if !s.pause(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, retryMax)
		s.wake()
	}
}

// pause waits d, unless ctx ends.
func (s *Service) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (s *Service) writePending(ctx context.Context) error {
	if err := s.writeHandedOut(ctx); err != nil {
		return err
	}
	for {
		more, err := s.writeConclusions(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// conclusions is one fenced transaction in the making.
type conclusions struct {
	txn    Txn
	taken  pending
	events []coordination.Event
	seq    uint64
}

// writeConclusions commits one batch of what the leader concluded, and reports whether there is more.
func (s *Service) writeConclusions(ctx context.Context) (more bool, err error) {
	s.lock()
	if !s.leading || (!s.pending.conclusionsPending() && !s.outlived()) {
		s.mu.Unlock()
		return false, nil
	}
	batch, err := s.buildBatch()
	if err != nil {
		s.mu.Unlock()
		return false, err
	}
	more = s.pending.conclusionsPending()
	s.inFlight, s.landing = batch.facts(), make(chan struct{})
	s.mu.Unlock()
	defer s.landed()
	if len(batch.txn.Puts)+len(batch.txn.Deletes) == 0 {
		return more, nil
	}
	revision, err := s.commit(ctx, batch.txn)
	switch {
	case err == nil:
		s.committed(batch, revision)
		return more, nil
	case errors.Is(err, ErrFenced):
		s.log.Warn("conclusions dropped: leadership lost", "events", len(batch.events))
		s.landed()
		return false, s.fenced(ctx, batch.taken)
	case errors.Is(err, ErrConflict):
		s.landed()
		s.putBack(batch.taken)
		return true, s.catchUpAll(ctx, batch.txn.Checks)
	default:
		s.putBack(batch.taken)
		return false, fmt.Errorf("commit conclusions: %w", err)
	}
}

// facts are the keys whose revision the batch depends on.
func (b *conclusions) facts() map[string]struct{} {
	keys := make(map[string]struct{}, len(b.txn.Checks))
	for _, c := range b.txn.Checks {
		keys[c.Key] = struct{}{}
	}
	return keys
}

func (s *Service) landed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight != nil {
		s.inFlight = nil
		close(s.landing)
	}
}

func (s *Service) putBack(taken pending) {
	s.lock()
	defer s.mu.Unlock()
	s.pending.merge(taken)
}

// buildBatch makes a transaction of a bounded part of what is pending. Under the lock.
func (s *Service) buildBatch() (*conclusions, error) {
	room := s.store.MaxOperations()
	b := &conclusions{taken: s.pending.take(room), seq: s.nextSeq}
	fence := s.fence
	b.txn.Fence = &fence
	w := txnWriter{txn: &b.txn}
	b.events = b.taken.told()
	for sub, u := range b.taken.units {
		s.putSubject(&w, sub, u)
	}
	for k := range b.taken.roster {
		if rec, ok := s.core.PeerRecord(k); ok {
			w.put(peerKey(familyPeer, k), rec)
		}
	}
	s.addJournal(&w, b, room)
	return b, w.err
}

// putSubject writes what is concluded about one subject, as the core has it now.
func (s *Service) putSubject(w *txnWriter, sub subject, u *unit) {
	switch sub.kind {
	case aboutPeer:
		s.putPeer(w, sub.peer(), u)
	case aboutClaim:
		if rec, ok := s.core.ClaimRecord(sub.subscription()); ok {
			w.putAt(subscriptionKey(familyClaim, sub.subscription()), rec, rec.Revision)
		}
	case aboutAssignment:
		if rec, ok := s.core.AssignmentRecord(sub.id); ok {
			w.putAt(key(familyAssignment, sub.id), rec, rec.Revision)
		}
	case aboutConflict:
		w.put(subscriptionKey(familyConflict, sub.subscription()), s.core.ConflictRecord(sub.subscription()))
	case aboutGroup:
		w.put(key(familyMass, sub.group), s.core.MassRecord(sub.group))
	case aboutDismissal:
		w.remove(key(familyDismissal, sub.id))
	case aboutNothing:
	}
}

// putPeer writes what is concluded about one peer.
func (s *Service) putPeer(w *txnWriter, k coordination.PeerKey, u *unit) {
	u.stamp = false
	if rec, ok := s.core.ConclusionRecord(k); ok {
		w.put(peerKey(familyConclusion, k), rec)
	}
	if rec, ok := s.core.ClosedRecord(k); ok && u.closed {
		u.stamp = true
		w.putAt(peerKey(familyShutdown, k), rec, rec.Revision)
	}
	if u.forgotten {
		s.putForgotten(w, k, u.shutdown)
	}
	for i := range u.past {
		w.put(pastKey(u.past[i].Key()), u.past[i])
	}
}

// putForgotten drops a peer's records. Where the peer is back meanwhile they are the new one's, but for the old shutdown
// fact, which goes only at the revision that was forgotten: a new one may just have been acknowledged.
func (s *Service) putForgotten(w *txnWriter, k coordination.PeerKey, shutdown uint64) {
	w.remove(peerKey(familyRemoval, k))
	if shutdown != 0 && s.core.ShutdownRevision(k) == 0 {
		w.removeAt(peerKey(familyShutdown, k), shutdown)
	}
	if _, back := s.core.Peer(k); !back {
		w.remove(peerKey(familyPeer, k))
		w.remove(peerKey(familyConclusion, k))
	}
}

// outlived reports whether anything may leave the store that did not yet. Under the lock.
func (s *Service) outlived() bool {
	return len(s.journal.overflow(s.journalFloor(), 1))+len(s.expiredPast(1))+len(s.expiredAssignments(1)) > 0
}

func (s *Service) journalFloor() Position {
	if s.opts.JournalFloor == nil {
		return Position{Revision: math.MaxUint64}
	}
	return s.opts.JournalFloor()
}

// addJournal writes the events, and lets leave what outlived its time as far as there is room.
func (s *Service) addJournal(w *txnWriter, b *conclusions, room int) {
	if len(b.events) > 0 {
		w.putAt(eventKey(b.seq), b.events, 0)
	}
	left := func() int { return max(0, room-len(w.txn.Puts)-len(w.txn.Deletes)) }
	for _, seq := range s.journal.overflow(s.journalFloor(), left()) {
		w.remove(eventKey(seq))
	}
	for _, k := range s.expiredPast(left()) {
		w.remove(pastKey(k))
	}
	for _, id := range s.expiredAssignments(left()) {
		w.remove(key(familyAssignment, id))
	}
}

// committed takes note of a batch that is durable.
func (s *Service) committed(b *conclusions, revision uint64) {
	s.lock()
	defer s.mu.Unlock()
	if len(b.events) > 0 {
		s.nextSeq = b.seq + 1
	}
	for sub, u := range b.taken.units {
		switch sub.kind {
		case aboutPeer:
			s.committedPeer(sub.peer(), u, revision)
		case aboutClaim:
			s.core.StampClaim(sub.subscription(), revision)
		case aboutAssignment:
			s.core.StampAssignment(sub.id, revision)
			s.noteEnded(sub.id)
		case aboutNothing, aboutConflict, aboutGroup, aboutDismissal: // their records have no revision to keep
		}
	}
	for i := range b.events {
		s.logEvent(&b.events[i])
	}
}

func (s *Service) committedPeer(k coordination.PeerKey, u *unit, revision uint64) {
	if u.stamp {
		s.core.StampShutdown(k, revision)
	}
	for i := range u.past {
		s.past.add(u.past[i].Key())
	}
}

// logEvent writes one line for every transition.
func (s *Service) logEvent(e *coordination.Event) {
	d := &e.Data
	attrs := []any{"type", e.Type, "event_id", e.ID, "epoch", d.Epoch}
	add := func(name, value string) {
		if value != "" {
			attrs = append(attrs, name, value)
		}
	}
	add("group", d.Group)
	add("instance_id", d.InstanceID)
	add("status", string(d.Status))
	add("previous_status", string(d.PreviousStatus))
	add("cause", string(d.Cause))
	add("intent", string(d.Intent))
	add("resolution", string(d.Resolution))
	add("claimant", d.Claimant)
	add("subscription", d.Subscription)
	add("assignment_id", d.AssignmentID)
	add("identity", d.Identity)
	add("reason", d.Reason)
	if len(d.Uncovered) > 0 {
		attrs = append(attrs, "uncovered", d.Uncovered)
	}
	if d.Deadline != nil {
		attrs = append(attrs, "deadline", *d.Deadline)
	}
	s.log.Info("event", attrs...)
}

// writeHandedOut commits that assignments reached their target.
func (s *Service) writeHandedOut(ctx context.Context) error {
	s.lock()
	ids := s.pending.handedOut
	s.pending.handedOut = nil
	s.mu.Unlock()
	for i, id := range ids {
		if err := s.commitDelivered(ctx, id); err != nil {
			s.putBack(pending{handedOut: ids[i:]})
			return fmt.Errorf("commit delivered assignments: %w", err)
		}
	}
	return nil
}

func (s *Service) commitDelivered(ctx context.Context, id string) error {
	for range maxRaces {
		now := s.lock()
		rec, due := s.core.PlanDelivered(now, id)
		s.mu.Unlock()
		if !due {
			return nil
		}
		if err := s.commitAssignment(ctx, rec); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return ErrConflict
}

const (
	// rotation is how many peers a flush looks at for an outdated record, outdated how old one may become: so that after a
	// restart "last seen" is not that of a heartbeat hours ago, while no heartbeat costs a write.
	rotation = 64
	outdated = time.Minute
)

// rotate adds the next few peers with an outdated record to the roster to flush. Under the lock.
func (s *Service) rotate() {
	next := s.index.after(s.refreshed, rotation)
	if len(next) < rotation {
		s.refreshed = coordination.PeerKey{}
	} else {
		s.refreshed = next[rotation-1]
	}
	for _, k := range next {
		if s.core.Outdated(k, outdated) {
			s.pending.roster[k] = struct{}{}
		}
	}
}

// flushRoster writes new peers and changed subscriptions, in batches.
func (s *Service) flushRoster(ctx context.Context) error {
	s.lock()
	s.rotate()
	s.mu.Unlock()
	for {
		s.lock()
		taken := pending{roster: map[coordination.PeerKey]struct{}{}}
		w := txnWriter{txn: &Txn{}}
		for k := range s.pending.roster {
			if len(taken.roster) == min(s.store.MaxOperations(), batchUnits) {
				break
			}
			taken.roster[k] = struct{}{}
			delete(s.pending.roster, k)
			if rec, ok := s.core.PeerRecord(k); ok {
				w.put(peerKey(familyPeer, k), rec)
			}
		}
		more := len(s.pending.roster) > 0
		s.mu.Unlock()
		if w.err != nil {
			return w.err
		}
		if len(w.txn.Puts) > 0 {
			if _, err := s.commit(ctx, *w.txn); err != nil {
				s.putBack(taken)
				return fmt.Errorf("flush roster: %w", err)
			}
		}
		if !more {
			return nil
		}
	}
}

// txnWriter collects a transaction.
type txnWriter struct {
	txn *Txn
	err error
}

func (w *txnWriter) put(k string, v any) {
	value, err := json.Marshal(v)
	if err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("encode %s: %w", k, err))
		return
	}
	w.txn.Puts = append(w.txn.Puts, Put{k, value})
}

func (w *txnWriter) putAt(k string, v any, revision uint64) {
	w.txn.Checks = append(w.txn.Checks, Check{k, revision})
	w.put(k, v)
}

func (w *txnWriter) removeAt(k string, revision uint64) {
	w.txn.Checks = append(w.txn.Checks, Check{k, revision})
	w.remove(k)
}

func (w *txnWriter) remove(k string) { w.txn.Deletes = append(w.txn.Deletes, k) }
