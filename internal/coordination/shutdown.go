package coordination

import (
	"encoding/json"
	"time"
)

// clockTolerance is the skew up to which a sender's deadline is taken as it is.
const clockTolerance = 2 * time.Second

// How a shutdown fact was closed.
const (
	ClosedCancelled = "cancelled"
	ClosedRejoined  = "rejoined"
)

// ShutdownRecord is the durable fact that a peer announced its shutdown: one record a peer, the newest drain.
type ShutdownRecord struct {
	Group      string    `json:"group"`
	InstanceID string    `json:"instance_id"`
	FirstSeen  time.Time `json:"first_seen"`
	// Drain numbers the drains of this peer, from 1.
	Drain       uint64    `json:"drain"`
	Intent      Intent    `json:"intent"`
	InitiatedAt time.Time `json:"initiated_at"`
	// ExpectedCompletionAt is in the sender's clock, Deadline in the service's.
	ExpectedCompletionAt time.Time `json:"expected_completion_at"`
	Deadline             time.Time `json:"deadline"`
	ReceivedAt           time.Time `json:"received_at"`
	// Subscriptions are those the peer leaves behind: the notification's, or the heartbeat's frozen on arrival.
	Subscriptions []string        `json:"subscriptions"`
	InFlightCount int64           `json:"in_flight_count"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	Incarnation   string          `json:"incarnation,omitempty"`
	// Closed is "", ClosedCancelled or ClosedRejoined.
	Closed   string    `json:"closed,omitempty"`
	ClosedAt time.Time `json:"closed_at,omitzero"`

	// Revision is the store revision this record was read or written at; not part of the value.
	Revision uint64 `json:"-"`
}

// Key is the peer the record belongs to.
func (r *ShutdownRecord) Key() PeerKey { return PeerKey{r.Group, r.InstanceID} }

// ShutdownPlan is what a notification would do. Nothing has changed yet: the record must be committed
// on the condition that the peer's shutdown record is still at Base, then applied.
type ShutdownPlan struct {
	Outcome Outcome
	// Record is nil when there is nothing to commit.
	Record *ShutdownRecord
	// Base is the revision of the record that the plan was made from, 0 for none.
	Base uint64
}

// PlanShutdown decides what a notification does. Rules apply top to bottom; what belongs to the past is
// recognised in the sender's own clock, before any shift.
func (c *Core) PlanShutdown(now time.Time, n *Shutdown, entrance Entrance) (ShutdownPlan, error) {
	c.begin(now)
	p := c.peer(n.Key())
	if p == nil {
		if c.full(n.Group) {
			return ShutdownPlan{}, ErrLimit
		}
		p = &peer{key: n.Key(), group: newGroup(n.Group, c.settings(n.Group)), firstSeen: now}
	}
	rec := p.newRecord(now, n)
	plan := ShutdownPlan{Outcome: OutcomeAccepted, Record: rec, Base: p.shutdownRevision()}
	if p.isPast(n, rec) {
		plan.Outcome, plan.Record = OutcomeIgnoredStale, nil
		return plan, nil
	}
	rec.Deadline = c.deadline(p, now, n, rec, entrance)
	if held := p.shutdown; held != nil && c.statusAt(p, now) == StatusDraining && sameProcess(held, rec) {
		plan.Outcome = OutcomeMerged
		merge(rec, held)
	}
	return plan, nil
}

// knownOffset is what the peer's heartbeats tell about its clock, 0 within the tolerance.
func (p *peer) knownOffset() time.Duration {
	offset, _ := p.clock.smallest()
	if offset <= clockTolerance && offset >= -clockTolerance {
		return 0
	}
	return offset
}

func (p *peer) shutdownRevision() uint64 {
	switch {
	case p.shutdown != nil:
		return p.shutdown.Revision
	case p.closed != nil:
		return p.closed.Revision
	}
	return 0
}

// ShutdownRevision is the revision of the shutdown fact held of a peer, 0 for none.
func (c *Core) ShutdownRevision(k PeerKey) uint64 {
	if p := c.peer(k); p != nil {
		return p.shutdownRevision()
	}
	return 0
}

func (p *peer) newRecord(now time.Time, n *Shutdown) *ShutdownRecord {
	rec := &ShutdownRecord{
		Group: n.Group, InstanceID: n.InstanceID, FirstSeen: p.firstSeen, Drain: p.drains + 1,
		Intent: n.Intent, InitiatedAt: n.InitiatedAt, ExpectedCompletionAt: n.ExpectedCompletionAt, ReceivedAt: now,
		Subscriptions: n.Subscriptions, InFlightCount: n.InFlightCount, Metadata: n.Metadata, Incarnation: n.Incarnation,
	}
	if rec.InitiatedAt.IsZero() {
		rec.InitiatedAt = now.Add(-p.knownOffset()) // as the sender's clock reads now
	}
	if n.HasDrainTimeout {
		rec.ExpectedCompletionAt = rec.InitiatedAt.Add(n.DrainTimeout)
	}
	if !n.HasSubscriptions {
		rec.Subscriptions = p.subs
	}
	if rec.Incarnation == "" {
		rec.Incarnation = p.incarnation
	}
	return rec
}

// isPast: a repeated notification, one of a superseded incarnation, or one whose window ended more than one timeout
// before the peer's latest heartbeat was stamped.
func (p *peer) isPast(n *Shutdown, rec *ShutdownRecord) bool {
	if p.isSuperseded(n.Incarnation) {
		return true
	}
	if held := p.shutdown; held != nil && !n.InitiatedAt.IsZero() &&
		held.InitiatedAt.Equal(n.InitiatedAt) && sameProcess(held, rec) {
		return true
	}
	if held := p.closed; held != nil && !n.InitiatedAt.IsZero() &&
		!n.InitiatedAt.After(held.InitiatedAt) && (n.Incarnation == "" || n.Incarnation == held.Incarnation) {
		return true
	}
	return !n.HasDrainTimeout && !p.stamp.IsZero() &&
		p.stamp.Sub(rec.ExpectedCompletionAt) > p.group.settings.HeartbeatTimeout
}

func sameProcess(a, b *ShutdownRecord) bool {
	return a.Incarnation == b.Incarnation || a.Incarnation == "" || b.Incarnation == ""
}

// deadline is the window's end in the service's clock.
func (c *Core) deadline(p *peer, now time.Time, n *Shutdown, rec *ShutdownRecord, entrance Entrance) time.Time {
	switch {
	case n.HasDrainTimeout:
		return now.Add(n.DrainTimeout)
	case rec.ExpectedCompletionAt.Before(rec.InitiatedAt) || rec.ExpectedCompletionAt.Equal(rec.InitiatedAt):
		return now
	}
	if _, known := p.clock.smallest(); known {
		return rec.ExpectedCompletionAt.Add(p.knownOffset())
	}
	// Arrival minus initiation includes transit: it can show that a clock is ahead, never that it is behind.
	if ahead := n.InitiatedAt.Sub(now); entrance == EntranceHTTP && p.lastSeen.IsZero() && !n.InitiatedAt.IsZero() && ahead > clockTolerance {
		return rec.ExpectedCompletionAt.Add(-ahead)
	}
	return rec.ExpectedCompletionAt
}

// merge folds a notification into the drain that is live: the newest initiated_at sets window and counts, the most
// urgent intent stays.
func merge(rec, held *ShutdownRecord) {
	intent := rec.Intent
	if held.Intent.Urgency() > intent.Urgency() {
		intent = held.Intent
	}
	if rec.InitiatedAt.Before(held.InitiatedAt) {
		revision := rec.Revision
		*rec = *held
		rec.Revision = revision
	}
	rec.Drain, rec.Intent = held.Drain, intent
}

// ApplyShutdown takes a committed shutdown fact, this replica's own or another's. Facts older than the
// one held change nothing.
func (c *Core) ApplyShutdown(now time.Time, rec *ShutdownRecord) *Output {
	out := c.begin(now)
	p := c.peer(rec.Key())
	if p == nil {
		p = c.create(rec.Key(), rec.FirstSeen)
		p.since = now
	}
	if rec.Revision != 0 && rec.Revision <= p.shutdownRevision() {
		return out
	}
	out.Touched = true
	p.drains = max(p.drains, rec.Drain)
	if rec.Closed != "" {
		c.applyClosed(p, now, rec)
		return out
	}
	if p.shutdown == nil || p.shutdown.Drain != rec.Drain {
		p.finished, p.idleAt, p.busyAt = false, time.Time{}, time.Time{}
		c.setOverdue(p, false)
	}
	p.shutdown = rec
	p.busy = p.busy || rec.InFlightCount > 0 || len(rec.Subscriptions) > 0
	if p.incarnation == "" {
		// Another one than that of the heartbeats may be newer or older: only a heartbeat shows which of them lives.
		p.incarnation = rec.Incarnation
	}
	c.moveTo(p, rec.Subscriptions, now)
	return out
}

func (c *Core) applyClosed(p *peer, now time.Time, rec *ShutdownRecord) {
	live := p.shutdown
	p.closed = rec
	if live == nil || live.Drain > rec.Drain {
		return
	}
	p.shutdown = nil
	p.finished, p.idleAt, p.busyAt = false, time.Time{}, time.Time{}
	if rec.Closed == ClosedRejoined {
		p.rejoins++
	}
	c.setOverdue(p, false)
	c.moveTo(p, p.content.Subscriptions, now)
}

// PlanCancel decides whether a drain can be cancelled, and returns the closed record to commit at Base.
func (c *Core) PlanCancel(now time.Time, k PeerKey) (ShutdownPlan, error) {
	c.begin(now)
	p := c.peer(k)
	switch {
	case p == nil:
		return ShutdownPlan{}, ErrNotFound
	case p.shutdown == nil:
		return ShutdownPlan{}, ErrNotDraining
	case p.status == StatusTerminated:
		return ShutdownPlan{}, ErrPeerTerminated
	}
	rec := *p.shutdown
	rec.Closed, rec.ClosedAt = ClosedCancelled, now
	return ShutdownPlan{Outcome: OutcomeAccepted, Record: &rec, Base: p.shutdown.Revision}, nil
}

// ClosedRecord is the shutdown fact of a peer that rejoined, to be written at its Revision.
func (c *Core) ClosedRecord(k PeerKey) (ShutdownRecord, bool) {
	p := c.peer(k)
	if p == nil || p.closed == nil || p.shutdown != nil {
		return ShutdownRecord{}, false
	}
	return *p.closed, true
}

// StampShutdown tells at which revision the peer's shutdown fact now stands in the store.
func (c *Core) StampShutdown(k PeerKey, revision uint64) {
	p := c.peer(k)
	if p == nil {
		return
	}
	for _, rec := range []*ShutdownRecord{p.shutdown, p.closed} {
		if rec != nil && rec.Revision < revision && (rec == p.shutdown || p.shutdown == nil) {
			rec.Revision = revision
		}
	}
}
