package coordination

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const intentDetail = "must be one of graceful, maintenance, preemption, health_failure"

// Limits bounds what one message may hold.
type Limits struct {
	// IDBytes bounds ids, groups, subscriptions and incarnations.
	IDBytes int
	// Subscriptions and SubscriptionsBytes bound one peer's list: how many, and how long together.
	Subscriptions      int
	SubscriptionsBytes int
	Labels             int
	LabelKeyBytes      int
	LabelValueBytes    int
	MetadataBytes      int
	// MaxInFlight is the largest count; the default is what every JSON reader can hold exactly.
	MaxInFlight int64
	// MaxDrain is the longest drain window.
	MaxDrain    time.Duration
	MinPriority int64
	MaxPriority int64
}

// DefaultLimits are the limits of a service that sets none.
func DefaultLimits() Limits {
	return Limits{
		IDBytes:            255,
		Subscriptions:      1000,
		SubscriptionsBytes: 64 << 10,
		Labels:             64,
		LabelKeyBytes:      255,
		LabelValueBytes:    255,
		MetadataBytes:      16 << 10,
		MaxInFlight:        1<<53 - 1,
		MaxDrain:           24 * time.Hour,
		MinPriority:        math.MinInt32,
		MaxPriority:        math.MaxInt32,
	}
}

// Validate names the first limit that no message could keep.
func (l Limits) Validate() error {
	switch {
	case l.IDBytes < 1:
		return fmt.Errorf("id limit is %d bytes; it must be at least 1", l.IDBytes)
	case l.Subscriptions < 1 || l.SubscriptionsBytes < 1:
		return errors.New("subscription limits must be at least 1")
	case l.Labels < 0 || l.LabelKeyBytes < 1 || l.LabelValueBytes < 0:
		return errors.New("label limits must not be negative, and keys need at least 1 byte")
	case l.MetadataBytes < len("{}"):
		return fmt.Errorf("metadata limit is %d bytes; it must be at least 2", l.MetadataBytes)
	case l.MaxInFlight < 0:
		return fmt.Errorf("in-flight limit is %d; it must not be negative", l.MaxInFlight)
	case l.MaxDrain <= 0:
		return fmt.Errorf("longest drain is %s; it must be positive", l.MaxDrain)
	case l.MinPriority > l.MaxPriority:
		return fmt.Errorf("lowest priority %d is above the highest %d", l.MinPriority, l.MaxPriority)
	}
	return nil
}

// CheckHeartbeat reports all fields that are out of range in one *InvalidError. It does not allocate when there are none.
func (l Limits) CheckHeartbeat(h *Heartbeat) error {
	var wrong fieldErrors
	l.id(&wrong, "/instance_id", h.InstanceID)
	l.id(&wrong, "/group", h.Group)
	l.subscriptions(&wrong, h.Subscriptions)
	l.inFlight(&wrong, h.InFlightCount)
	if !(h.LoadFactor >= 0) || math.IsInf(h.LoadFactor, 1) {
		wrong.add("/load_factor", "must be a finite number of at least 0")
	}
	l.incarnation(&wrong, h.Incarnation)
	l.labels(&wrong, h.Labels)
	return wrong.err()
}

// CheckShutdown reports all fields that are out of range in one *InvalidError. Exactly one of ExpectedCompletionAt
// and DrainTimeout must be given: the entrance puts the default in before.
func (l Limits) CheckShutdown(n *Shutdown) error {
	var wrong fieldErrors
	l.shutdown(&wrong, n)
	if !n.HasDrainTimeout && windowEndsBeforeStart(n) {
		wrong.add("/expected_completion_at", "is before initiated_at; a drain ends at or after its start")
	}
	return wrong.err()
}

// CheckShutdownFromBus is CheckShutdown without the order of start and end: on the bus, where nobody hears a
// refusal, a window that ends before it starts is a drain of no time.
func (l Limits) CheckShutdownFromBus(n *Shutdown) error {
	var wrong fieldErrors
	l.shutdown(&wrong, n)
	return wrong.err()
}

// CheckAssignment reports all fields that are out of range in one *InvalidError. The source may be empty:
// work that nobody served has none.
func (l Limits) CheckAssignment(a *Assignment) error {
	var wrong fieldErrors
	l.id(&wrong, "/target_instance_id", a.TargetInstanceID)
	l.id(&wrong, "/group", a.Group)
	l.subscriptions(&wrong, a.Subscriptions)
	if a.SourceInstanceID != "" {
		l.id(&wrong, "/source_instance_id", a.SourceInstanceID)
	}
	if a.Priority < l.MinPriority || a.Priority > l.MaxPriority {
		wrong.add("/priority", fmt.Sprintf("is %d; it must be from %d to %d", a.Priority, l.MinPriority, l.MaxPriority))
	}
	if a.ID != "" {
		l.id(&wrong, "/id", a.ID)
	}
	return wrong.err()
}

// CheckID judges one id, group or subscription under the given JSON pointer.
func (l Limits) CheckID(pointer, value string) error {
	var wrong fieldErrors
	l.id(&wrong, pointer, value)
	return wrong.err()
}

func (l Limits) shutdown(wrong *fieldErrors, n *Shutdown) {
	l.id(wrong, "/instance_id", n.InstanceID)
	l.id(wrong, "/group", n.Group)
	if !n.Intent.Valid() {
		wrong.add("/intent", intentDetail)
	}
	l.window(wrong, n)
	l.subscriptions(wrong, n.Subscriptions)
	l.inFlight(wrong, n.InFlightCount)
	if len(n.Metadata) > l.MetadataBytes {
		wrong.add("/metadata", fmt.Sprintf("has %d bytes; at most %d are kept", len(n.Metadata), l.MetadataBytes))
	}
	l.incarnation(wrong, n.Incarnation)
}

func (l Limits) window(wrong *fieldErrors, n *Shutdown) {
	hasCompletion := !n.ExpectedCompletionAt.IsZero()
	switch {
	case n.HasDrainTimeout && hasCompletion:
		wrong.add("/drain_timeout_seconds", "cannot stand beside expected_completion_at; give one of the two")
	case n.HasDrainTimeout && n.DrainTimeout < 0:
		wrong.add("/drain_timeout_seconds", "is negative; a drain lasts 0 seconds or more")
	case n.HasDrainTimeout && n.DrainTimeout > l.MaxDrain:
		wrong.add("/drain_timeout_seconds", l.drainDetail())
	case !n.HasDrainTimeout && !hasCompletion:
		wrong.add("/expected_completion_at", "is required unless drain_timeout_seconds is given")
	case hasCompletion && windowTooLong(n, l.MaxDrain):
		wrong.add("/expected_completion_at", l.drainDetail())
	}
}

func (l Limits) drainDetail() string {
	return fmt.Sprintf("makes the drain longer than %s seconds", strconv.FormatFloat(l.MaxDrain.Seconds(), 'f', -1, 64))
}

// windowEndsBeforeStart compares the two ends in the sender's own clock; without a start there is nothing to compare.
func windowEndsBeforeStart(n *Shutdown) bool {
	return !n.InitiatedAt.IsZero() && !n.ExpectedCompletionAt.IsZero() && n.ExpectedCompletionAt.Before(n.InitiatedAt)
}

func windowTooLong(n *Shutdown, longest time.Duration) bool {
	return !n.InitiatedAt.IsZero() && n.ExpectedCompletionAt.Sub(n.InitiatedAt) > longest
}

func (l Limits) inFlight(wrong *fieldErrors, count int64) {
	if count < 0 || count > l.MaxInFlight {
		wrong.add("/in_flight_count", fmt.Sprintf("is %d; it must be from 0 to %d", count, l.MaxInFlight))
	}
}

func (l Limits) incarnation(wrong *fieldErrors, value string) {
	if value != "" {
		l.id(wrong, "/incarnation", value)
	}
}

func (l Limits) id(wrong *fieldErrors, pointer, value string) {
	if fault := l.idFault(value, l.IDBytes); fault != "" {
		wrong.add(pointer, fault)
	}
}

func (l Limits) idFault(value string, limit int) string {
	if value == "" {
		return fmt.Sprintf("is empty; it must have 1 to %d bytes", limit)
	}
	return textFault(value, limit)
}

func (l Limits) subscriptions(wrong *fieldErrors, subscriptions []string) {
	if len(subscriptions) > l.Subscriptions {
		wrong.add("/subscriptions", fmt.Sprintf("has %d entries; a peer may have %d", len(subscriptions), l.Subscriptions))
	}
	total := 0
	for i, subscription := range subscriptions {
		total += len(subscription)
		if fault := l.idFault(subscription, l.IDBytes); fault != "" {
			wrong.add("/subscriptions/"+strconv.Itoa(i), fault)
		}
	}
	if total > l.SubscriptionsBytes {
		wrong.add("/subscriptions", fmt.Sprintf("has %d bytes together; a peer may have %d", total, l.SubscriptionsBytes))
	}
}

func (l Limits) labels(wrong *fieldErrors, labels map[string]string) {
	if len(labels) > l.Labels {
		wrong.add("/labels", fmt.Sprintf("has %d labels; a peer may have %d", len(labels), l.Labels))
	}
	for key, value := range labels {
		if fault := l.idFault(key, l.LabelKeyBytes); fault != "" {
			wrong.add("/labels"+pointer(key), "has a key that "+fault)
		}
		if fault := textFault(value, l.LabelValueBytes); fault != "" {
			wrong.add("/labels"+pointer(key), fault)
		}
	}
}

// textFault says why a text is not 0 to limit bytes of UTF-8 without control characters; "" when it is.
func textFault(text string, limit int) string {
	if len(text) > limit {
		return fmt.Sprintf("has %d bytes; it may have %d", len(text), limit)
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f {
			return unusualFault(text[i:])
		}
	}
	return ""
}

// unusualFault is textFault's slow half, from the first byte that is not printable ASCII.
func unusualFault(text string) string {
	if !utf8.ValidString(text) {
		return "is not UTF-8"
	}
	if at := strings.IndexFunc(text, unicode.IsControl); at >= 0 {
		r, _ := utf8.DecodeRuneInString(text[at:])
		return fmt.Sprintf("holds the control character %U; send printable characters", r)
	}
	return ""
}
