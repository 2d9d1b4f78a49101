package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// maxRaces bounds how often a compare-and-set is tried again when others win.
const maxRaces = 16

// Heartbeat applies one heartbeat that came in over HTTP. The answer promises memory only; a new peer and
// changed subscriptions are on disk within a second.
func (s *Service) Heartbeat(_ context.Context, hb coordination.Heartbeat) (HeartbeatReply, error) {
	reply, err := s.beat(&hb, coordination.Arrival{Entrance: coordination.EntranceHTTP})
	if err != nil {
		return reply, err
	}
	s.opts.Bus.PublishHeartbeat(hb, reply.ReceivedAt)
	return reply, nil
}

// HeartbeatBatch applies many; each stands for itself.
func (s *Service) HeartbeatBatch(ctx context.Context, hbs []coordination.Heartbeat) []BatchItem {
	items := make([]BatchItem, len(hbs))
	for i := range hbs {
		items[i].Reply, items[i].Err = s.Heartbeat(ctx, hbs[i])
	}
	return items
}

// ReceiveHeartbeat applies a heartbeat from the bus.
func (s *Service) ReceiveHeartbeat(_ context.Context, hb coordination.Heartbeat, a coordination.Arrival) error {
	_, err := s.beat(&hb, a)
	return err
}

// beat is the one way in for heartbeats.
func (s *Service) beat(hb *coordination.Heartbeat, a coordination.Arrival) (HeartbeatReply, error) {
	if hb.Group == "" {
		hb.Group = coordination.DefaultGroup
	}
	hb.Subscriptions = coordination.FoldDuplicates(hb.Subscriptions)
	if err := s.opts.Limits.CheckHeartbeat(hb); err != nil {
		s.opts.Metrics.Heartbeat(coordination.OutcomeRejected, a.Entrance)
		return HeartbeatReply{}, err
	}
	now := s.lock()
	out, res, err := s.core.Heartbeat(now, hb, a)
	s.collect(out)
	if err != nil {
		s.mu.Unlock()
		s.opts.Metrics.Heartbeat(coordination.OutcomeRejected, a.Entrance)
		s.opts.Metrics.Dropped("peer_limit", 1)
		return HeartbeatReply{}, err
	}
	reply := s.reply(now, hb.Key(), res, a)
	s.mu.Unlock()
	s.feed.touch(scopePeers)
	s.opts.Metrics.Heartbeat(res.Outcome, a.Entrance)
	return reply, nil
}

// reply tells the worker what it needs to know. Under the lock.
func (s *Service) reply(now time.Time, k coordination.PeerKey, res coordination.HeartbeatResult, a coordination.Arrival) HeartbeatReply {
	timeout := s.core.HeartbeatTimeout(k.Group)
	reply := HeartbeatReply{
		Status: res.Status, Outcome: res.Outcome, ReceivedAt: now, HeartbeatTimeout: timeout,
		NextHeartbeat: s.nextHeartbeat(timeout), Leader: s.opts.Elector.CurrentLeader(),
	}
	if a.Entrance != coordination.EntranceHTTP {
		return reply
	}
	for _, c := range s.core.ClaimsOf(k) {
		reply.Claims = append(reply.Claims, claimOf(c))
	}
	if handOut := s.core.NotDelivered(k); len(handOut) > 0 {
		s.pending.handedOut = append(s.pending.handedOut, handOut...)
		s.wake()
	}
	for _, rec := range s.core.PendingFor(k) {
		reply.Assignments = append(reply.Assignments, assignmentOf(rec))
	}
	return reply
}

// nextHeartbeat is a third of the timeout, up to 10 % earlier, so that a fleet started together spreads.
func (s *Service) nextHeartbeat(timeout time.Duration) time.Duration {
	third := timeout / 3
	return third - time.Duration(float64(third)*0.1*s.opts.Jitter())
}

// Shutdown commits a shutdown notification that came in over HTTP. A nil error means that it is durable.
func (s *Service) Shutdown(ctx context.Context, n coordination.Shutdown) (ShutdownReply, error) {
	if n.Group == "" {
		n.Group = coordination.DefaultGroup
	}
	n.Subscriptions = coordination.FoldDuplicates(n.Subscriptions)
	if !n.HasDrainTimeout && n.ExpectedCompletionAt.IsZero() {
		n.DrainTimeout, n.HasDrainTimeout = defaultDrain, true
	}
	if err := s.opts.Limits.CheckShutdown(&n); err != nil {
		return ShutdownReply{}, err
	}
	reply, err := s.shutdown(ctx, &n, coordination.EntranceHTTP)
	if err != nil {
		return reply, err
	}
	if err := s.opts.Bus.PublishShutdown(ctx, n); err != nil {
		// The fact is committed and reaches every replica through the store; the bus only tells workers sooner.
		s.log.Warn("shutdown notification not published", "group", n.Group, "instance_id", n.InstanceID, "error", err)
	}
	return reply, nil
}

const defaultDrain = 30 * time.Second

// ReceiveShutdown commits a shutdown notification from the bus.
func (s *Service) ReceiveShutdown(ctx context.Context, n coordination.Shutdown) error {
	if n.Group == "" {
		n.Group = coordination.DefaultGroup
	}
	n.Subscriptions = coordination.FoldDuplicates(n.Subscriptions)
	if err := s.opts.Limits.CheckShutdownFromBus(&n); err != nil {
		return err
	}
	_, err := s.shutdown(ctx, &n, coordination.EntranceBus)
	return err
}

// shutdown is the one way in for shutdown notifications: plan, commit by compare-and-set, apply.
func (s *Service) shutdown(ctx context.Context, n *coordination.Shutdown, e coordination.Entrance) (ShutdownReply, error) {
	for range maxRaces {
		now := s.lock()
		plan, err := s.core.PlanShutdown(now, n, e)
		s.mu.Unlock()
		if err == nil {
			err = s.checkWindow(now, plan)
		}
		if err != nil {
			return ShutdownReply{}, err
		}
		err = s.commitShutdown(ctx, plan)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return ShutdownReply{}, err
		}
		s.opts.Metrics.Shutdown(plan.Outcome)
		return s.shutdownReply(n, plan), nil
	}
	return ShutdownReply{}, ErrConflict
}

// checkWindow bounds the drain window as the service sees it, from arrival to the deadline in its own clock.
func (s *Service) checkWindow(now time.Time, plan coordination.ShutdownPlan) error {
	longest := s.opts.Limits.MaxDrain
	if plan.Record == nil || plan.Record.Deadline.Sub(now) <= longest {
		return nil
	}
	return invalid("/expected_completion_at", fmt.Sprintf("ends the drain window %s from now; at most %s are allowed",
		plan.Record.Deadline.Sub(now).Round(time.Second), longest))
}

func (s *Service) shutdownReply(n *coordination.Shutdown, plan coordination.ShutdownPlan) ShutdownReply {
	now := s.lock()
	defer s.mu.Unlock()
	v, _ := s.core.Peer(n.Key())
	reply := ShutdownReply{Status: v.Status, Outcome: plan.Outcome}
	if reply.Status == "" {
		reply.Status = coordination.StatusUnknown
	}
	rec := plan.Record
	if rec == nil {
		rec = v.Shutdown
	}
	if rec == nil {
		rec = &coordination.ShutdownRecord{
			Group: n.Group, InstanceID: n.InstanceID, Intent: n.Intent, InitiatedAt: n.InitiatedAt, ReceivedAt: now,
			ExpectedCompletionAt: n.ExpectedCompletionAt, Deadline: n.ExpectedCompletionAt, Subscriptions: n.Subscriptions,
			InFlightCount: n.InFlightCount, Metadata: n.Metadata, Incarnation: n.Incarnation,
		}
	}
	reply.Notification = shutdownOf(rec)
	if v.Status == coordination.StatusDraining {
		reply.TimeRemaining = max(rec.Deadline.Sub(now), 0)
	}
	s.log.Info("shutdown notification", "group", n.Group, "instance_id", n.InstanceID, "intent", n.Intent,
		"outcome", plan.Outcome, "status", reply.Status, "time_remaining_seconds", reply.TimeRemaining.Seconds())
	return reply
}

// commitShutdown makes a planned shutdown fact durable, then applies it. On a lost race it catches up first.
func (s *Service) commitShutdown(ctx context.Context, plan coordination.ShutdownPlan) error {
	if plan.Record == nil {
		return nil
	}
	k := peerKey(familyShutdown, plan.Record.Key())
	value, err := json.Marshal(plan.Record)
	if err != nil {
		return fmt.Errorf("encode shutdown record: %w", err)
	}
	revision, err := s.commit(ctx, Txn{Checks: []Check{{k, plan.Base}}, Puts: []Put{{k, value}}})
	if errors.Is(err, ErrConflict) {
		if catchUp := s.catchUp(ctx, k); catchUp != nil {
			return catchUp
		}
		return err
	}
	if err != nil {
		return err
	}
	rec := *plan.Record
	rec.Revision = revision
	s.with(func(now time.Time) *coordination.Output { return s.core.ApplyShutdown(now, &rec) })
	return nil
}

// commit writes one transaction of facts.
func (s *Service) commit(ctx context.Context, txn Txn) (uint64, error) {
	start := s.opts.Now()
	revision, err := s.store.Commit(ctx, txn)
	s.opts.Metrics.Commit(s.opts.Now().Sub(start), err)
	return revision, err
}

// BusUp tells that consuming (re)started.
func (s *Service) BusUp() {
	s.with(s.core.BusUp)
	s.feed.touch(scopeHealth)
	s.log.Info("bus consuming")
}

// BusDown tells that consuming stopped.
func (s *Service) BusDown(reason error) {
	s.with(s.core.BusDown)
	s.feed.touch(scopeHealth)
	s.log.Warn("bus away: peers heard over it do not turn stale meanwhile", "error", reason)
}
