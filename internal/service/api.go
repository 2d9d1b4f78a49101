package service

import (
	"context"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// Page asks for one page of an ordered list.
type Page struct {
	// Limit is 1–1,000; 0 means 100.
	Limit int
	// Cursor is the next_cursor of the page before; "" for the first. An unreadable one is an InvalidError on /cursor.
	Cursor string
}

// List is one page. Total counts everything that matches.
type List[T any] struct {
	Items      []T
	NextCursor string
	Total      int
}

// HeartbeatReply is what a worker learns from its heartbeat.
type HeartbeatReply struct {
	Status           coordination.Status
	Outcome          coordination.Outcome
	ReceivedAt       time.Time
	HeartbeatTimeout time.Duration
	// NextHeartbeat is a third of the timeout, jittered.
	NextHeartbeat time.Duration
	// Leader is the identity of the replica that leads, "" for none.
	Leader string
	// Claims are this peer's active claims, Assignments those it has not acknowledged, by priority.
	Claims      []Claim
	Assignments []Assignment
	Directives  []Directive
}

// Directive is an operator's request to a worker, handed out in its heartbeat replies.
type Directive struct {
	// Type is "drain".
	Type        string
	RequestedAt time.Time
	Reason      string
}

// BatchItem is the fate of one heartbeat of a batch: Err nil means accepted.
type BatchItem struct {
	Reply HeartbeatReply
	Err   error
}

// ShutdownReply is what a worker learns from its shutdown notification.
type ShutdownReply struct {
	Notification  ShutdownView
	Status        coordination.Status
	Outcome       coordination.Outcome
	TimeRemaining time.Duration
}

// HeartbeatView is a peer's newest heartbeat as the seed's message.
type HeartbeatView struct {
	Timestamp     time.Time
	ReceivedAt    time.Time
	Subscriptions []string
	InFlightCount int64
	IsLeader      bool
	LoadFactor    float64
}

// ShutdownView is the notification that a peer is draining or terminated by.
type ShutdownView struct {
	Group                string
	InstanceID           string
	Intent               coordination.Intent
	InitiatedAt          time.Time
	ExpectedCompletionAt time.Time
	// Deadline is ExpectedCompletionAt in the service's clock: shifted by a known skew.
	Deadline      time.Time
	ReceivedAt    time.Time
	Subscriptions []string
	InFlightCount int64
	// Metadata is a JSON object.
	Metadata    []byte
	Incarnation string
}

// Peer is one peer as every reader sees it.
type Peer struct {
	Group      string
	InstanceID string
	Status     coordination.Status
	Overdue    bool
	// OverdueSince is the drain deadline that passed, while Overdue.
	OverdueSince time.Time
	// LastSeen is the service's clock at the newest heartbeat; zero when none was ever heard.
	LastSeen      time.Time
	LastHeartbeat *HeartbeatView
	Shutdown      *ShutdownView
	// TimeRemaining is set (≥ 0) while a shutdown notification is held.
	TimeRemaining *time.Duration
	Subscriptions []string
	// ClockSkew is the sender's clock minus the service's, from the smallest transit seen; nil when unknown.
	ClockSkew   *time.Duration
	Labels      map[string]string
	Incarnation string
	FirstSeen   time.Time
	// Intervals are the newest heartbeat intervals, oldest first (at most 32), for sparklines.
	Intervals []time.Duration
	// IDConflict: two incarnations of this id are alive.
	IDConflict bool
	// OpenOrphans counts this peer's open orphans.
	OpenOrphans int
	Directives  []Directive
}

// PeerQuery filters and pages peers. Order is by group, then instance id.
type PeerQuery struct {
	Page
	Group        string
	Status       []coordination.Status
	Subscription string
	// Q matches a substring of the instance id, case-insensitively.
	Q      string
	Labels map[string]string
}

type (
	// OrphanState is the core's.
	OrphanState = coordination.OrphanState
	// ClaimState is the core's.
	ClaimState = coordination.ClaimState
	// AssignmentState is the core's.
	AssignmentState = coordination.AssignmentState
)

// The states, as the core explains them.
const (
	OrphanOpen     = coordination.OrphanOpen
	OrphanHeld     = coordination.OrphanHeld
	OrphanResolved = coordination.OrphanResolved

	ClaimActive   = coordination.ClaimActive
	ClaimDone     = coordination.ClaimDone
	ClaimReleased = coordination.ClaimReleased
	ClaimExpired  = coordination.ClaimExpired
	ClaimRevoked  = coordination.ClaimRevoked

	AssignmentPending      = coordination.AssignmentPending
	AssignmentDelivered    = coordination.AssignmentDelivered
	AssignmentAcknowledged = coordination.AssignmentAcknowledged
	AssignmentExpired      = coordination.AssignmentExpired
	AssignmentCovered      = coordination.AssignmentCovered
)

// Orphan is one subscription of one peer's episode.
type Orphan struct {
	ID           string
	Group        string
	Subscription string
	// InstanceID is the peer that left.
	InstanceID string
	Episode    uint64
	Cause      coordination.Status
	Intent     coordination.Intent
	State      OrphanState
	Resolution coordination.Resolution
	OpenedAt   time.Time
	ResolvedAt time.Time
	// Deadline is the drain deadline, zero for a stale peer.
	Deadline  time.Time
	LastSeen  time.Time
	CoveredBy []string
	HeldUntil time.Time
	// Claim is the active claim on the subscription.
	Claim *Claim
	// DismissReason is what the person who dismissed it wrote.
	DismissReason string
}

// OrphanQuery filters and pages orphans, newest episode first.
type OrphanQuery struct {
	Page
	Group        string
	State        []OrphanState
	Cause        coordination.Status
	Subscription string
	InstanceID   string
	// Claimable keeps open ones that nobody claims.
	Claimable bool
}

// Claim is one peer's exclusive right to take over one subscription.
type Claim struct {
	ID           string
	Group        string
	Subscription string
	InstanceID   string
	// FencingToken is larger than every earlier one for this subscription.
	FencingToken uint64
	State        ClaimState
	// Ready: the holder may start now.
	Ready bool
	// NotBefore is an estimate of when it turns ready; zero when it may start now or nothing is known.
	NotBefore time.Time
	ClaimedAt time.Time
	EndedAt   time.Time
	OrphanID  string
}

// ClaimRequest asks for the right to take over one subscription.
type ClaimRequest struct {
	Group        string
	Subscription string
	InstanceID   string
}

// ClaimQuery filters and pages claims.
type ClaimQuery struct {
	Page
	Group        string
	InstanceID   string
	Subscription string
	State        []ClaimState
}

// Assignment addresses subscriptions to one target.
type Assignment struct {
	ID               string
	Group            string
	TargetInstanceID string
	Subscriptions    []string
	SourceInstanceID string
	AssignedAt       time.Time
	Priority         int64
	State            AssignmentState
	ExpiresAt        time.Time
	DeliveredAt      time.Time
	EndedAt          time.Time
}

// AssignmentQuery filters and pages assignments.
type AssignmentQuery struct {
	Page
	Group            string
	TargetInstanceID string
	State            []AssignmentState
}

// Leader says who leads.
type Leader struct {
	// Identity is "" when nobody leads.
	Identity string
	// IsLeader: this replica.
	IsLeader bool
	Epoch    uint64
	// Replica is this replica's identity.
	Replica string
}

// GroupSummary counts one group.
type GroupSummary struct {
	Group   string
	Peers   map[coordination.Status]int
	Overdue int
	// OpenOrphans counts open and held ones.
	OpenOrphans      int
	Conflicts        int
	HeartbeatTimeout time.Duration
	// MassStaleUntil is the end of the hold, zero when the group is not in mass staleness.
	MassStaleUntil time.Time
	Shared         bool
}

// Summary is the state of the whole at a glance; reading it costs nothing per peer.
type Summary struct {
	Now         time.Time
	Groups      []GroupSummary
	Peers       map[coordination.Status]int
	TotalPeers  int
	Overdue     int
	OpenOrphans int
	OpenClaims  int
	Leader      Leader
	Parts       []PartHealth
	// GraceUntil: after an interruption of the service's own observation nobody turns stale before this.
	GraceUntil time.Time
	// Revision grows with every change a reader could see; equal revisions mean an equal picture, but for the passing of time.
	Revision uint64
}

// Conflict is one subscription that more than one healthy peer reports for longer than a timeout.
type Conflict struct {
	Group        string
	Subscription string
	Peers        []string
	Since        time.Time
}

// Position is a place in the journal: commit revision, then index in the transaction. The zero Position is before everything.
type Position struct {
	Revision uint64
	Index    int
}

// JournalEntry is one event with its place.
type JournalEntry struct {
	Position
	Event coordination.Event
	// Raw is the event's JSON exactly as committed.
	Raw []byte
}

// EventQuery filters and pages the journal.
type EventQuery struct {
	Page
	// Types are patterns: exact, "orphan.*" or "*". Empty means all.
	Types      []string
	Group      string
	InstanceID string
	// OldestFirst turns the default order, newest first, around.
	OldestFirst bool
}

// Matches reports whether an event passes the filter (patterns, group, instance).
func (q EventQuery) Matches(e *coordination.Event) bool {
	if q.Group != "" && e.Data.Group != q.Group {
		return false
	}
	if q.InstanceID != "" && e.Data.InstanceID != q.InstanceID {
		return false
	}
	if len(q.Types) == 0 {
		return true
	}
	for _, p := range q.Types {
		if MatchEventType(p, e.Type) {
			return true
		}
	}
	return false
}

// MatchEventType matches one pattern: "*", an exact type, or a family like "orphan.*".
func MatchEventType(pattern string, t coordination.EventType) bool {
	if pattern == "*" || pattern == string(t) {
		return true
	}
	n := len(pattern)
	return n > 2 && pattern[n-2:] == ".*" && len(t) >= n && string(t[:n-1]) == pattern[:n-1]
}

// Invalidation tells a live reader that something in a scope changed. It never carries rows.
type Invalidation struct {
	// Scope is peers, orphans, claims, assignments, events, leader or health.
	Scope    string
	Revision uint64
}

// Coordinator is what the entrances and the pages call. *Service implements it; there is no other implementation.
// Every error is one of the sentinels of coordination or of this package, wrapped.
type Coordinator interface {
	Heartbeat(ctx context.Context, hb coordination.Heartbeat) (HeartbeatReply, error)
	HeartbeatBatch(ctx context.Context, hbs []coordination.Heartbeat) []BatchItem
	Shutdown(ctx context.Context, n coordination.Shutdown) (ShutdownReply, error)
	CancelDrain(ctx context.Context, key coordination.PeerKey) (Peer, error)
	RemovePeer(ctx context.Context, key coordination.PeerKey) error

	Peer(key coordination.PeerKey) (Peer, error)
	Peers(q PeerQuery) (List[Peer], error)
	// OrphanedSubscriptions is the seed's map for one group: every draining, terminated or stale peer, covered or not.
	OrphanedSubscriptions(group string) map[string][]string
	Conflicts(group string) []Conflict

	Orphan(id string) (Orphan, error)
	Orphans(q OrphanQuery) (List[Orphan], error)
	DismissOrphan(ctx context.Context, id, reason string) (Orphan, error)

	// Claim answers created false when the caller holds it already.
	Claim(ctx context.Context, r ClaimRequest) (c Claim, created bool, err error)
	ClaimByID(id string) (Claim, error)
	Claims(q ClaimQuery) (List[Claim], error)
	ReleaseClaim(ctx context.Context, id string) (Claim, error)

	Assign(ctx context.Context, a coordination.Assignment) (Assignment, error)
	AssignmentByID(id string) (Assignment, error)
	Assignments(q AssignmentQuery) (List[Assignment], error)
	AcknowledgeAssignment(ctx context.Context, id string) (Assignment, error)

	Leader() Leader
	// Handoff releases leadership; false when this replica did not lead.
	Handoff(ctx context.Context) (bool, error)
	Summary() Summary
	// Ready reports the parts; the service is ready when it can answer, degraded parts are named.
	Health() []PartHealth

	Events(q EventQuery) (List[JournalEntry], error)
	// After returns up to limit events after pos, waiting for the first one until ctx ends. ErrGap when pos has left the journal.
	After(ctx context.Context, pos Position, limit int) ([]JournalEntry, error)
	// Head is the position of the newest event.
	Head() Position
	// Invalidations delivers coalesced change notices (at most one pending per scope) until ctx ends.
	Invalidations(ctx context.Context, deliver func(Invalidation) error) error
}
