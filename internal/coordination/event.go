package coordination

import (
	"encoding/json"
	"strings"
	"time"
)

// EventType names an event. The set only grows.
type EventType string

// The event types. There is none per heartbeat, on purpose.
const (
	EventPeerJoined      EventType = "peer.joined"
	EventPeerDraining    EventType = "peer.draining"
	EventPeerTerminated  EventType = "peer.terminated"
	EventPeerStale       EventType = "peer.stale"
	EventPeerRecovered   EventType = "peer.recovered"
	EventPeerRejoined    EventType = "peer.rejoined"
	EventPeerRemoved     EventType = "peer.removed"
	EventPeerIDConflict  EventType = "peer.id_conflict"
	EventOrphanDetected  EventType = "orphan.detected"
	EventOrphanEscalated EventType = "orphan.escalated"
	EventOrphanClaimed   EventType = "orphan.claimed"
	EventOrphanResolved  EventType = "orphan.resolved"

	EventSubscriptionConflict         EventType = "subscription.conflict"
	EventSubscriptionConflictResolved EventType = "subscription.conflict_resolved"

	EventAssignmentCreated      EventType = "assignment.created"
	EventAssignmentDelivered    EventType = "assignment.delivered"
	EventAssignmentAcknowledged EventType = "assignment.acknowledged"
	EventAssignmentExpired      EventType = "assignment.expired"

	EventGroupMassStaleness      EventType = "group.mass_staleness"
	EventGroupMassStalenessEnded EventType = "group.mass_staleness_ended"

	EventLeaderChanged EventType = "leader.changed"

	// EventWebhookDisabled: an endpoint was disabled by the service (410, or five days of failures).
	EventWebhookDisabled EventType = "webhook.disabled"
	// EventWebhookTest is sent by a test send only; it is never in the journal.
	EventWebhookTest EventType = "webhook.test"
)

// EventTypes lists every type that can stand in the journal, in the order of the documentation.
func EventTypes() []EventType {
	return []EventType{
		EventPeerJoined, EventPeerDraining, EventPeerTerminated, EventPeerStale, EventPeerRecovered,
		EventPeerRejoined, EventPeerRemoved, EventPeerIDConflict,
		EventOrphanDetected, EventOrphanEscalated, EventOrphanClaimed, EventOrphanResolved,
		EventSubscriptionConflict, EventSubscriptionConflictResolved,
		EventAssignmentCreated, EventAssignmentDelivered, EventAssignmentAcknowledged, EventAssignmentExpired,
		EventGroupMassStaleness, EventGroupMassStalenessEnded, EventLeaderChanged, EventWebhookDisabled,
	}
}

// Event is one object, the same wherever it shows: API, SSE, dashboard, webhook body, log.
// Its ID derives from peer, episode and type, so that a repeat by the next leader carries the same one.
type Event struct {
	ID        string    `json:"id"`
	Type      EventType `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData is the union of what the types carry; absent keys do not apply. Keys are only ever added.
type EventData struct {
	Group string `json:"group,omitempty"`
	// InstanceID is the peer the event is about; for orphan.* always the peer that left.
	InstanceID string `json:"instance_id,omitempty"`
	// Epoch is the term of the leader that raised the event.
	Epoch uint64 `json:"epoch"`

	Status         Status `json:"status,omitempty"`
	PreviousStatus Status `json:"previous_status,omitempty"`
	Incarnation    string `json:"incarnation,omitempty"`

	// Cause is draining, terminated or stale.
	Cause  Status `json:"cause,omitempty"`
	Intent Intent `json:"intent,omitempty"`
	// Subscriptions are all of this event; Uncovered those without a healthy co-owner.
	Subscriptions []string `json:"subscriptions,omitempty"`
	Uncovered     []string `json:"uncovered,omitempty"`
	// CoveredBy maps a subscription to the healthy peers that report it.
	CoveredBy map[string][]string `json:"covered_by,omitempty"`
	// Deadline is the end of the drain window, in the service's clock.
	Deadline      *time.Time      `json:"deadline,omitempty"`
	LastSeen      *time.Time      `json:"last_seen,omitempty"`
	InFlightCount *int64          `json:"in_flight_count,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	OrphanIDs     []string        `json:"orphan_ids,omitempty"`
	// Claimant and Resolution stand in orphan.claimed and orphan.resolved.
	Claimant     string     `json:"claimant,omitempty"`
	Resolution   Resolution `json:"resolution,omitempty"`
	ClaimID      string     `json:"claim_id,omitempty"`
	FencingToken uint64     `json:"fencing_token,omitempty"`

	// Subscription and Peers stand in subscription.conflict*: one subscription, everybody who reports it.
	Subscription string   `json:"subscription,omitempty"`
	Peers        []string `json:"peers,omitempty"`

	// Incarnations stand in peer.id_conflict.
	Incarnations []string `json:"incarnations,omitempty"`

	// AssignmentID, SourceInstanceID and Priority stand in assignment.*; InstanceID is the target.
	AssignmentID     string `json:"assignment_id,omitempty"`
	SourceInstanceID string `json:"source_instance_id,omitempty"`
	Priority         *int64 `json:"priority,omitempty"`

	// StaleCount, PeerCount and HeldUntil stand in group.mass_staleness*.
	StaleCount int        `json:"stale_count,omitempty"`
	PeerCount  int        `json:"peer_count,omitempty"`
	HeldUntil  *time.Time `json:"held_until,omitempty"`

	// Identity and PreviousIdentity stand in leader.changed.
	Identity         string `json:"identity,omitempty"`
	PreviousIdentity string `json:"previous_identity,omitempty"`

	// WebhookID, URL (without credentials and query) and Reason stand in webhook.*.
	WebhookID string `json:"webhook_id,omitempty"`
	URL       string `json:"url,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// orphanData is the data of an orphan.* event: its keys always stand, null or empty where they do not apply, so
// that a receiver that reads them does not stumble over the commonest one.
type orphanData struct {
	EventData

	InstanceID    *string             `json:"instance_id"`
	Cause         *Status             `json:"cause"`
	Intent        *Intent             `json:"intent"`
	Subscriptions []string            `json:"subscriptions"`
	Uncovered     []string            `json:"uncovered"`
	CoveredBy     map[string][]string `json:"covered_by"`
	Deadline      *time.Time          `json:"deadline"`
	LastSeen      *time.Time          `json:"last_seen"`
	OrphanIDs     []string            `json:"orphan_ids"`
}

// MarshalJSON writes the one public form of an event.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	if !strings.HasPrefix(string(e.Type), "orphan.") {
		return json.Marshal(plain(e))
	}
	d := &e.Data
	return json.Marshal(struct {
		plain
		Data orphanData `json:"data"`
	}{plain(e), orphanData{
		EventData: *d, InstanceID: given(d.InstanceID), Cause: given(d.Cause), Intent: given(d.Intent),
		Subscriptions: listed(d.Subscriptions), Uncovered: listed(d.Uncovered), CoveredBy: mapped(d.CoveredBy),
		Deadline: d.Deadline, LastSeen: d.LastSeen, OrphanIDs: listed(d.OrphanIDs),
	}})
}

func given[T ~string](v T) *T {
	if v == "" {
		return nil
	}
	return &v
}

func listed(v []string) []string {
	if v == nil {
		return []string{}
	}
	return v
}

func mapped(v map[string][]string) map[string][]string {
	if v == nil {
		return map[string][]string{}
	}
	return v
}

// Resolution says how an orphan ended.
type Resolution string

// The resolutions.
const (
	ResolvedRecovered Resolution = "recovered"
	ResolvedTakenOver Resolution = "taken_over"
	ResolvedDismissed Resolution = "dismissed"
	ResolvedRemoved   Resolution = "removed"
)
