package coordination

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// EncodeHeartbeat writes a checked heartbeat in the to_dict form, the additive keys only when set. Subscriptions
// and in_flight_count are left out when the sender left them out, for only present keys can end a drain; the
// original protocol reads a missing key as its default.
func EncodeHeartbeat(h Heartbeat) []byte {
	w := newWireWriter(256 + 64*len(h.Subscriptions))
	w.text("instance_id", h.InstanceID)
	w.timestamp("timestamp", h.Timestamp)
	if h.HasSubscriptions || len(h.Subscriptions) > 0 {
		w.texts("subscriptions", h.Subscriptions)
	}
	if h.HasInFlight || h.InFlightCount != 0 {
		w.integer("in_flight_count", h.InFlightCount)
	}
	w.key("is_leader")
	w.out = strconv.AppendBool(w.out, h.IsLeader)
	w.key("load_factor")
	w.out = appendFloat(w.out, h.LoadFactor)
	w.group(h.Group)
	w.optional("incarnation", h.Incarnation)
	w.labels(h.Labels)
	return w.end()
}

// EncodeShutdown writes a checked shutdown notification in the to_dict form. The form has no relative drain: one
// given as a timeout is written as its end, counted from initiated_at.
func EncodeShutdown(n Shutdown) []byte {
	completion := n.ExpectedCompletionAt
	if n.HasDrainTimeout {
		completion = n.InitiatedAt.Add(n.DrainTimeout)
	}
	w := newWireWriter(384 + 64*len(n.Subscriptions) + len(n.Metadata))
	w.text("instance_id", n.InstanceID)
	w.text("intent", string(n.Intent))
	w.timestamp("initiated_at", n.InitiatedAt)
	w.timestamp("expected_completion_at", completion)
	if n.HasSubscriptions || len(n.Subscriptions) > 0 {
		w.texts("subscriptions", n.Subscriptions)
	}
	w.integer("in_flight_count", n.InFlightCount)
	w.key("metadata")
	if len(n.Metadata) == 0 {
		w.out = append(w.out, "{}"...)
	} else {
		w.out = append(w.out, n.Metadata...)
	}
	w.group(n.Group)
	w.optional("incarnation", n.Incarnation)
	return w.end()
}

// EncodeAssignment writes a checked work assignment in the to_dict form, with id when the service gave it one.
func EncodeAssignment(a Assignment) []byte {
	w := newWireWriter(256 + 64*len(a.Subscriptions))
	w.text("target_instance_id", a.TargetInstanceID)
	w.texts("subscriptions", a.Subscriptions)
	w.text("source_instance_id", a.SourceInstanceID)
	w.timestamp("assigned_at", a.AssignedAt)
	w.integer("priority", a.Priority)
	w.optional("id", a.ID)
	w.group(a.Group)
	return w.end()
}

// wireWriter appends one flat JSON object.
type wireWriter struct{ out []byte }

func newWireWriter(size int) wireWriter {
	return wireWriter{append(make([]byte, 0, size), '{')}
}

func (w *wireWriter) end() []byte { return append(w.out, '}') }

func (w *wireWriter) key(name string) {
	if len(w.out) > 1 {
		w.out = append(w.out, ',')
	}
	w.out = append(appendString(w.out, name), ':')
}

func (w *wireWriter) text(key, value string) {
	w.key(key)
	w.out = appendString(w.out, value)
}

func (w *wireWriter) optional(key, value string) {
	if value != "" {
		w.text(key, value)
	}
}

// group leaves the default out, so that a reader of the original protocol sees its own form.
func (w *wireWriter) group(value string) {
	if value != DefaultGroup {
		w.optional("group", value)
	}
}

func (w *wireWriter) integer(key string, value int64) {
	w.key(key)
	w.out = strconv.AppendInt(w.out, value, 10)
}

func (w *wireWriter) timestamp(key string, value time.Time) {
	w.key(key)
	w.out = append(appendTimestamp(append(w.out, '"'), value), '"')
}

func (w *wireWriter) texts(key string, values []string) {
	w.key(key)
	w.out = append(w.out, '[')
	for i, value := range values {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = appendString(w.out, value)
	}
	w.out = append(w.out, ']')
}

func (w *wireWriter) labels(labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	w.key("labels")
	w.out = append(w.out, '{')
	for i, key := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(appendString(w.out, key), ':')
		w.out = appendString(w.out, labels[key])
	}
	w.out = append(w.out, '}')
}

const hexDigits = "0123456789abcdef"

// appendString quotes s; bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < 0x20 || r == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&0xf])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// appendFloat prints a float as Python's repr does: 0.0 and not 0, for there the point makes it a float.
func appendFloat(dst []byte, f float64) []byte {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if slices.Contains(dst[start:], '.') {
		return dst
	}
	return append(dst, ".0"...)
}
