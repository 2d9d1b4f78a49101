package coordination

import "time"

// DefaultGroup is the group of a message that names none.
const DefaultGroup = "default"

// Reserved topics of the original protocol; on RabbitMQ they are the routing keys.
const (
	TopicPrefix         = "__eventsource_coordination"
	TopicShutdown       = TopicPrefix + ".shutdown"
	TopicHeartbeat      = TopicPrefix + ".heartbeat"
	TopicWorkAssignment = TopicPrefix + ".work_assignment"
)

// PeerKey names a peer: ids are unique within a group.
type PeerKey struct {
	Group      string
	InstanceID string
}

// Intent says why an instance is leaving (the seed's ShutdownIntent).
type Intent string

// The four intents, from least to most urgent.
const (
	IntentGraceful      Intent = "graceful"
	IntentMaintenance   Intent = "maintenance"
	IntentPreemption    Intent = "preemption"
	IntentHealthFailure Intent = "health_failure"
)

// Urgency orders intents: health_failure > preemption > maintenance > graceful; -1 for an unknown intent.
func (i Intent) Urgency() int {
	switch i {
	case IntentGraceful:
		return 0
	case IntentMaintenance:
		return 1
	case IntentPreemption:
		return 2
	case IntentHealthFailure:
		return 3
	}
	return -1
}

// Valid reports whether i is one of the four intents.
func (i Intent) Valid() bool { return i.Urgency() >= 0 }

// Heartbeat is the seed's HeartbeatMessage with this service's additive keys.
type Heartbeat struct {
	Group      string
	InstanceID string
	// Timestamp is the sender's clock; it orders one peer's heartbeats and shows skew, and never decides
	// liveness. Zero: the sender gave none, the heartbeat is stamped on arrival.
	Timestamp time.Time
	// Subscriptions is what the peer serves, without duplicates, in the sender's order.
	Subscriptions []string
	// HasSubscriptions and HasInFlight tell a present key from a default: only present keys can end a drain early.
	HasSubscriptions bool
	InFlightCount    int64
	HasInFlight      bool
	IsLeader         bool
	// LoadFactor is finite and ≥ 0.
	LoadFactor float64
	// Incarnation is new for every process start; "" when the worker sends none.
	Incarnation string
	Labels      map[string]string
}

// Key is the peer the heartbeat belongs to.
func (h *Heartbeat) Key() PeerKey { return PeerKey{h.Group, h.InstanceID} }

// Shutdown is the seed's ShutdownNotification with this service's additive keys.
type Shutdown struct {
	Group      string
	InstanceID string
	Intent     Intent
	// InitiatedAt and ExpectedCompletionAt are in the sender's clock. InitiatedAt zero: stamped on arrival.
	InitiatedAt          time.Time
	ExpectedCompletionAt time.Time
	// DrainTimeout, when HasDrainTimeout, counts from arrival and replaces ExpectedCompletionAt.
	DrainTimeout     time.Duration
	HasDrainTimeout  bool
	Subscriptions    []string
	HasSubscriptions bool
	InFlightCount    int64
	// Metadata is the sender's JSON object, kept as it came (raw JSON); nil means {}.
	Metadata    []byte
	Incarnation string
}

// Key is the peer the notification belongs to.
func (n *Shutdown) Key() PeerKey { return PeerKey{n.Group, n.InstanceID} }

// Assignment is the seed's WorkAssignment.
type Assignment struct {
	// ID is this service's; "" on a message from elsewhere.
	ID               string
	Group            string
	TargetInstanceID string
	Subscriptions    []string
	SourceInstanceID string
	AssignedAt       time.Time
	Priority         int64
}

// Entrance says which door a message came through.
type Entrance string

// The entrances.
const (
	EntranceHTTP Entrance = "http"
	EntranceBus  Entrance = "bus"
)

// Arrival is what the service itself observed of a message.
type Arrival struct {
	Entrance Entrance
	// Relayed marks a heartbeat that another replica received; Age is how long ago, by that replica's
	// clock. Relayed heartbeats never set skew.
	Relayed bool
	Age     time.Duration
}

// Status is one of the seed's five.
type Status string

// The five statuses of a peer.
const (
	StatusHealthy    Status = "healthy"
	StatusStale      Status = "stale"
	StatusDraining   Status = "draining"
	StatusTerminated Status = "terminated"
	StatusUnknown    Status = "unknown"
)

// Outcome says what became of an accepted message.
type Outcome string

// Outcomes of heartbeats and shutdown notifications.
const (
	// OutcomeAccepted: it is the newest of its peer and counts in full.
	OutcomeAccepted Outcome = "accepted"
	// OutcomeIgnoredOlder: a heartbeat older than the newest one held; refreshes liveness, not content.
	OutcomeIgnoredOlder Outcome = "ignored_older"
	// OutcomeIgnoredStale: it belongs to the past (a superseded incarnation, a window long over, a message that
	// waited in a queue longer than the heartbeat timeout); recorded, changes nothing.
	OutcomeIgnoredStale Outcome = "ignored_stale"
	// OutcomeRejoined: the heartbeat closed a shutdown notification; the peer is back.
	OutcomeRejoined Outcome = "rejoined"
	// OutcomeRejected: a message out of range, or beyond a limit; it changed nothing. Only counted, never answered.
	OutcomeRejected Outcome = "rejected"
	// OutcomeMerged: a notification that joined a live drain.
	OutcomeMerged Outcome = "merged"
)
