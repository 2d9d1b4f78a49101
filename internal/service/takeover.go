package service

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// dismissal is the durable fact that somebody dismissed an orphan; it goes once the leader concluded it.
type dismissal struct {
	ID     string    `json:"id"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

func orphanOf(v coordination.OrphanView) Orphan {
	o := Orphan{
		ID: v.ID, Group: v.Episode.Group, Subscription: v.Subscription, InstanceID: v.Episode.InstanceID, Episode: v.Episode.Number,
		Cause: v.Episode.Cause, Intent: v.Episode.Intent, State: v.State, Resolution: v.Resolution,
		OpenedAt: v.OpenedAt, ResolvedAt: v.ResolvedAt, Deadline: v.Episode.Deadline, LastSeen: v.Episode.LastSeen,
		CoveredBy: v.CoveredBy, HeldUntil: v.HeldUntil, DismissReason: v.DismissReason,
	}
	if v.Claim != nil {
		c := claimOf(*v.Claim)
		o.Claim = &c
	}
	return o
}

// Orphan reads one orphan.
func (s *Service) Orphan(id string) (Orphan, error) {
	s.lock()
	defer s.mu.Unlock()
	v, ok := s.core.Orphan(id)
	if !ok {
		return Orphan{}, coordination.ErrNotFound
	}
	return orphanOf(v), nil
}

// Orphans pages orphans, newest first.
func (s *Service) Orphans(q OrphanQuery) (List[Orphan], error) {
	s.lock()
	defer s.mu.Unlock()
	tree := s.index.orphans
	if q.Claimable || (len(q.State) > 0 && !slices.Contains(q.State, OrphanResolved)) {
		tree = s.index.unresolved
	}
	return newest(q.Page, "o", tree, func(id string) (Orphan, bool) {
		v, ok := s.core.Orphan(id)
		if !ok || !q.matches(&v) || s.hidden(v.Episode.Key().PeerKey) {
			return Orphan{}, false
		}
		return orphanOf(v), true
	})
}

func (q *OrphanQuery) matches(v *coordination.OrphanView) bool {
	switch {
	case q.Group != "" && q.Group != v.Episode.Group,
		q.InstanceID != "" && q.InstanceID != v.Episode.InstanceID,
		q.Subscription != "" && q.Subscription != v.Subscription,
		q.Cause != "" && q.Cause != v.Episode.Cause,
		len(q.State) > 0 && !slices.Contains(q.State, v.State),
		q.Claimable && (v.State != coordination.OrphanOpen || v.Claim != nil):
		return false
	}
	return true
}

// maxReason bounds what a person writes, in bytes.
const maxReason = 1024

// DismissOrphan ends an open orphan because somebody says so.
func (s *Service) DismissOrphan(ctx context.Context, id, reason string) (Orphan, error) {
	if len(reason) > maxReason {
		return Orphan{}, invalid("/reason", fmt.Sprintf("is %d bytes; at most %d are kept", len(reason), maxReason))
	}
	now := s.lock()
	v, ok := s.core.Orphan(id)
	s.mu.Unlock()
	switch {
	case !ok:
		return Orphan{}, coordination.ErrNotFound
	case v.State == coordination.OrphanResolved && v.Resolution == coordination.ResolvedDismissed:
		return orphanOf(v), nil
	case v.State == coordination.OrphanResolved:
		return Orphan{}, coordination.ErrEnded
	}
	d := dismissal{ID: id, Reason: reason, At: now.UTC()}
	value, err := json.Marshal(d)
	if err != nil {
		return Orphan{}, err
	}
	if _, err := s.commit(ctx, Txn{Puts: []Put{{key(familyDismissal, id), value}}}); err != nil {
		return Orphan{}, err
	}
	s.applyDismissal(d)
	return s.Orphan(id)
}

func (s *Service) applyDismissal(d dismissal) {
	now := s.lock()
	defer s.mu.Unlock()
	s.concludeDismissal(now, d)
}

// concludeDismissal is the leader's part; one that comes too late is dropped with its record.
func (s *Service) concludeDismissal(now time.Time, d dismissal) {
	if !s.leading {
		return
	}
	s.pending.about(subject{kind: aboutDismissal, id: d.ID})
	out, err := s.core.Dismiss(now, d.ID, d.Reason)
	if err != nil && !errors.Is(err, coordination.ErrEnded) && !errors.Is(err, coordination.ErrNotFound) {
		s.log.Warn("dismissal not concluded", "orphan_id", d.ID, "error", err)
	}
	s.collect(out)
	s.wake()
}

func claimOf(r coordination.ClaimRecord) Claim {
	return Claim{
		ID: r.ID, Group: r.Group, Subscription: r.Subscription, InstanceID: r.InstanceID, FencingToken: r.Token,
		State: r.State, Ready: r.Ready, NotBefore: r.NotBefore, ClaimedAt: r.ClaimedAt, EndedAt: r.EndedAt, OrphanID: r.OrphanID,
	}
}

// Claim asks for the right to take over a subscription: of any number that ask, one gets it.
func (s *Service) Claim(ctx context.Context, r ClaimRequest) (Claim, bool, error) {
	if r.Group == "" {
		r.Group = coordination.DefaultGroup
	}
	if err := s.checkClaim(r); err != nil {
		return Claim{}, false, err
	}
	for range maxRaces {
		c, created, err := s.tryClaim(ctx, r)
		if errors.Is(err, ErrConflict) {
			continue
		}
		s.opts.Metrics.Claim(claimResult(created, err))
		return c, created, err
	}
	return Claim{}, false, ErrConflict
}

func claimResult(created bool, err error) string {
	switch {
	case err != nil:
		return "refused"
	case created:
		return "granted"
	}
	return "repeated"
}

func (s *Service) checkClaim(r ClaimRequest) error {
	all := &coordination.InvalidError{}
	for _, f := range []struct{ pointer, value string }{
		{"/subscription", r.Subscription}, {"/instance_id", r.InstanceID}, {"/group", r.Group},
	} {
		var wrong *coordination.InvalidError
		if errors.As(s.opts.Limits.CheckID(f.pointer, f.value), &wrong) {
			all.Fields = append(all.Fields, wrong.Fields...)
		}
	}
	if len(all.Fields) > 0 {
		return all
	}
	return nil
}

func (s *Service) tryClaim(ctx context.Context, r ClaimRequest) (Claim, bool, error) {
	k := coordination.SubscriptionKey{Group: r.Group, Subscription: r.Subscription}
	now := s.lock()
	plan, err := s.core.PlanClaim(now, k, r.InstanceID)
	s.mu.Unlock()
	if err != nil {
		return Claim{}, false, err
	}
	if plan.Held != nil {
		return claimOf(*plan.Held), false, nil
	}
	rec, err := s.commitClaim(ctx, plan)
	if err != nil {
		return Claim{}, false, err
	}
	s.log.Info("claim granted", "group", r.Group, "subscription", r.Subscription, "instance_id", r.InstanceID,
		"claim_id", rec.ID, "fencing_token", rec.Token, "ready", rec.Ready)
	return claimOf(rec), true, nil
}

// commitClaim makes a planned claim fact durable, then applies it; it returns the claim as it stands afterwards.
func (s *Service) commitClaim(ctx context.Context, plan coordination.ClaimPlan) (coordination.ClaimRecord, error) {
	rec := *plan.Record
	k := subscriptionKey(familyClaim, rec.Key())
	value, err := json.Marshal(rec)
	if err != nil {
		return rec, fmt.Errorf("encode claim: %w", err)
	}
	revision, err := s.commit(ctx, Txn{Checks: []Check{{k, plan.Base}}, Puts: []Put{{k, value}}})
	if errors.Is(err, ErrConflict) {
		if catchUp := s.catchUp(ctx, k); catchUp != nil {
			return rec, catchUp
		}
		return rec, err
	}
	if err != nil {
		return rec, err
	}
	rec.Revision = revision
	s.with(func(now time.Time) *coordination.Output { return s.core.ApplyClaim(now, rec) })
	s.lock()
	defer s.mu.Unlock()
	if held, ok := s.core.ClaimByID(rec.ID); ok {
		return held, nil
	}
	return rec, nil
}

// ClaimByID reads a claim: the newest of its subscription.
func (s *Service) ClaimByID(id string) (Claim, error) {
	s.lock()
	defer s.mu.Unlock()
	rec, ok := s.core.ClaimByID(id)
	if !ok {
		return Claim{}, coordination.ErrNotFound
	}
	return claimOf(rec), nil
}

// Claims pages claims, newest first.
func (s *Service) Claims(q ClaimQuery) (List[Claim], error) {
	s.lock()
	defer s.mu.Unlock()
	return newest(q.Page, "c", s.index.claims, func(id string) (Claim, bool) {
		r, ok := s.core.ClaimByID(id)
		if !ok || (q.Group != "" && q.Group != r.Group) || (q.InstanceID != "" && q.InstanceID != r.InstanceID) ||
			(q.Subscription != "" && q.Subscription != r.Subscription) ||
			(len(q.State) > 0 && !slices.Contains(q.State, r.State)) {
			return Claim{}, false
		}
		return claimOf(r), true
	})
}

// ReleaseClaim gives a claim back; releasing a released one answers the same again.
func (s *Service) ReleaseClaim(ctx context.Context, id string) (Claim, error) {
	for range maxRaces {
		now := s.lock()
		plan, err := s.core.PlanRelease(now, id)
		s.mu.Unlock()
		if err != nil {
			return Claim{}, err
		}
		if plan.Held != nil {
			return claimOf(*plan.Held), nil
		}
		rec, err := s.commitClaim(ctx, plan)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return Claim{}, err
		}
		s.log.Info("claim released", "group", rec.Group, "subscription", rec.Subscription, "instance_id", rec.InstanceID, "claim_id", id)
		return claimOf(rec), nil
	}
	return Claim{}, ErrConflict
}

func assignmentOf(r coordination.AssignmentRecord) Assignment {
	return Assignment{
		ID: r.ID, Group: r.Group, TargetInstanceID: r.TargetInstanceID, Subscriptions: r.Subscriptions, SourceInstanceID: r.SourceInstanceID,
		AssignedAt: r.AssignedAt, Priority: r.Priority, State: r.State, ExpiresAt: r.ExpiresAt,
		DeliveredAt: r.DeliveredAt, EndedAt: r.EndedAt,
	}
}

// Assign addresses subscriptions to one target. A nil error means that it is durable.
func (s *Service) Assign(ctx context.Context, a coordination.Assignment) (Assignment, error) {
	if a.Group == "" {
		a.Group = coordination.DefaultGroup
	}
	a.Subscriptions = coordination.FoldDuplicates(a.Subscriptions)
	if err := s.opts.Limits.CheckAssignment(&a); err != nil {
		return Assignment{}, err
	}
	if len(a.Subscriptions) == 0 {
		return Assignment{}, invalid("/subscriptions", "is empty; name at least one subscription")
	}
	now := s.lock()
	s.mu.Unlock()
	if a.AssignedAt.IsZero() {
		a.AssignedAt = now
	}
	a.ID = "asg_" + strings.ToLower(rand.Text()[:20])
	rec := coordination.AssignmentRecord{
		ID: a.ID, Group: a.Group, TargetInstanceID: a.TargetInstanceID, Subscriptions: a.Subscriptions, SourceInstanceID: a.SourceInstanceID,
		AssignedAt: a.AssignedAt, Priority: a.Priority, State: coordination.AssignmentPending, ExpiresAt: now.Add(s.opts.AssignmentTTL),
	}
	if err := s.commitAssignment(ctx, rec); err != nil {
		return Assignment{}, err
	}
	if err := s.opts.Bus.PublishAssignment(ctx, a); err != nil {
		// It is handed out in the target's heartbeat reply all the same.
		s.log.Warn("assignment not published", "assignment_id", a.ID, "error", err)
	}
	return s.AssignmentByID(a.ID)
}

func (s *Service) commitAssignment(ctx context.Context, rec coordination.AssignmentRecord) error {
	k := key(familyAssignment, rec.ID)
	value, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode assignment: %w", err)
	}
	revision, err := s.commit(ctx, Txn{Checks: []Check{{k, rec.Revision}}, Puts: []Put{{k, value}}})
	if errors.Is(err, ErrConflict) {
		if catchUp := s.catchUp(ctx, k); catchUp != nil {
			return catchUp
		}
	}
	if err != nil {
		return err
	}
	rec.Revision = revision
	s.with(func(now time.Time) *coordination.Output {
		out := s.core.ApplyAssignment(now, rec)
		s.noteEnded(rec.ID)
		return out
	})
	return nil
}

// ReceiveAssignment hears of an assignment published on the reserved topic: one of this service's own is known from the
// store, one from elsewhere is between its sender and its target.
func (s *Service) ReceiveAssignment(_ context.Context, a coordination.Assignment) error {
	s.log.Debug("assignment heard", "group", a.Group, "target_instance_id", a.TargetInstanceID, "source_instance_id", a.SourceInstanceID)
	return nil
}

// AssignmentByID reads one assignment.
func (s *Service) AssignmentByID(id string) (Assignment, error) {
	s.lock()
	defer s.mu.Unlock()
	rec, ok := s.core.AssignmentRecord(id)
	if !ok {
		return Assignment{}, coordination.ErrNotFound
	}
	return assignmentOf(rec), nil
}

// Assignments pages assignments, newest first.
func (s *Service) Assignments(q AssignmentQuery) (List[Assignment], error) {
	s.lock()
	defer s.mu.Unlock()
	return newest(q.Page, "a", s.index.assignments, func(id string) (Assignment, bool) {
		r, ok := s.core.AssignmentRecord(id)
		if !ok || (q.Group != "" && q.Group != r.Group) || (q.TargetInstanceID != "" && q.TargetInstanceID != r.TargetInstanceID) ||
			(len(q.State) > 0 && !slices.Contains(q.State, r.State)) {
			return Assignment{}, false
		}
		return assignmentOf(r), true
	})
}

// AcknowledgeAssignment notes that the target took the work; doing so again answers the same.
func (s *Service) AcknowledgeAssignment(ctx context.Context, id string) (Assignment, error) {
	for range maxRaces {
		now := s.lock()
		rec, again, err := s.core.PlanAcknowledge(now, id)
		s.mu.Unlock()
		if err != nil {
			return Assignment{}, err
		}
		if again {
			return assignmentOf(rec), nil
		}
		err = s.commitAssignment(ctx, rec)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return Assignment{}, err
		}
		return s.AssignmentByID(id)
	}
	return Assignment{}, ErrConflict
}
