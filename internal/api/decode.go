package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
)

// decode reads data into one of the generated request bodies. Heartbeats have their own functions below.
func (r *reader) decode(data []byte, into any) error {
	r.reset(data)
	switch b := into.(type) {
	case *apigen.ShutdownRequest:
		r.shutdown(b)
	case *apigen.ClaimRequest:
		r.claim(b)
	case *apigen.AssignmentRequest:
		r.assignment(b)
	case *apigen.DismissRequest:
		r.dismissal(b)
	case *apigen.WebhookRequest:
		r.webhook(b)
	case *apigen.WebhookPatch:
		r.webhookPatch(b)
	case *apigen.RotateSecretRequest:
		r.rotation(b)
	default:
		return fmt.Errorf("no decoder for a body of type %T", into)
	}
	return r.end()
}

// decodeHeartbeat reads data straight into the core's message: this body is read thousands of times a second, and
// the generated type would cost an allocation for every optional field. What only the entrance can judge (a timestamp
// that cannot be read) is an *coordination.InvalidError, which comes after all that is wrong with form and type.
func (r *reader) decodeHeartbeat(data []byte, hb *coordination.Heartbeat) error {
	r.reset(data)
	wrong := r.heartbeat(hb)
	if err := r.end(); err != nil {
		return err
	}
	return wrong.err()
}

// batchItem is one heartbeat of a batch and what the entrance finds wrong with it.
type batchItem struct {
	hb  coordination.Heartbeat
	err error
}

// decodeBatch reads at most limit heartbeats.
func (r *reader) decodeBatch(data []byte, limit int) ([]batchItem, error) {
	r.reset(data)
	var items []batchItem
	present := false
	count := 0
	if !r.object() {
		return nil, r.end()
	}
	for r.next() {
		if string(r.name()) != "heartbeats" {
			r.skip()
			continue
		}
		if r.absent() || !r.array("heartbeats") {
			continue
		}
		present = true
		for r.element() {
			if count++; count > limit {
				r.skip()
				continue
			}
			items = append(items, r.batchItem())
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if !present {
		return nil, invalid("/heartbeats", "is required")
	}
	if count > limit {
		return nil, invalid("/heartbeats", "has "+strconv.Itoa(count)+" heartbeats; a batch may have "+strconv.Itoa(limit))
	}
	return items, nil
}

// batchItem reads one heartbeat of a batch. What has a wrong type is wrong with this one alone: others must not
// turn stale because of it.
func (r *reader) batchItem() (item batchItem) {
	before := len(r.faults)
	wrong := r.heartbeat(&item.hb)
	item.err = wrong.err()
	if r.broken == nil && len(r.faults) > before {
		item.err = &typeError{slices.Clone(r.faults[before:])}
		r.faults = r.faults[:before]
	}
	return item
}

func (r *reader) heartbeat(hb *coordination.Heartbeat) (wrong wrongFields) {
	hb.Group = coordination.DefaultGroup
	if !r.object() {
		return wrong
	}
	for r.next() {
		name := r.name()
		if r.absent() {
			continue
		}
		switch string(name) {
		case "instance_id":
			hb.InstanceID, _ = r.text()
		case "group":
			if text, ok := r.text(); ok {
				hb.Group = wrong.group(&text)
			}
		case "timestamp":
			if text, ok := r.text(); ok {
				hb.Timestamp = wrong.time("/timestamp", &text)
			}
		case "subscriptions":
			hb.Subscriptions, hb.HasSubscriptions = r.texts()
		case "in_flight_count":
			hb.InFlightCount, hb.HasInFlight = r.integer()
		case "is_leader":
			hb.IsLeader, _ = r.boolean()
		case "load_factor":
			hb.LoadFactor, _ = r.float()
		case "incarnation":
			hb.Incarnation, _ = r.text()
		case "labels":
			hb.Labels, _ = r.textMap()
		default:
			r.skip()
		}
	}
	return wrong
}

func (r *reader) shutdown(b *apigen.ShutdownRequest) {
	r.fields(func(name []byte) {
		switch string(name) {
		case "instance_id":
			b.InstanceID, _ = r.text()
		case "intent":
			text, _ := r.text()
			b.Intent = apigen.Intent(text)
		case "expected_completion_at":
			set(&b.ExpectedCompletionAt, r.text)
		case "drain_timeout_seconds":
			set(&b.DrainTimeoutSeconds, r.float)
		case "initiated_at":
			set(&b.InitiatedAt, r.text)
		case "subscriptions":
			set(&b.Subscriptions, r.texts)
		case "in_flight_count":
			set(&b.InFlightCount, r.integer)
		case "metadata":
			set(&b.Metadata, r.compact)
		case "group":
			set(&b.Group, r.text)
		case "incarnation":
			set(&b.Incarnation, r.text)
		default:
			r.skip()
		}
	})
}

func (r *reader) claim(b *apigen.ClaimRequest) {
	r.fields(func(name []byte) {
		switch string(name) {
		case "subscription":
			b.Subscription, _ = r.text()
		case "instance_id":
			b.InstanceID, _ = r.text()
		case "group":
			set(&b.Group, r.text)
		default:
			r.skip()
		}
	})
}

func (r *reader) assignment(b *apigen.AssignmentRequest) {
	r.fields(func(name []byte) {
		switch string(name) {
		case "target_instance_id":
			b.TargetInstanceID, _ = r.text()
		case "subscriptions":
			b.Subscriptions, _ = r.texts()
		case "source_instance_id":
			set(&b.SourceInstanceID, r.text)
		case "assigned_at":
			set(&b.AssignedAt, r.text)
		case "priority":
			set(&b.Priority, r.integer)
		case "group":
			set(&b.Group, r.text)
		default:
			r.skip()
		}
	})
}

func (r *reader) dismissal(b *apigen.DismissRequest) {
	r.fields(func(name []byte) {
		switch string(name) {
		case "reason":
			set(&b.Reason, r.text)
		default:
			r.skip()
		}
	})
}

func (r *reader) webhook(b *apigen.WebhookRequest) {
	r.fields(func(name []byte) {
		switch string(name) {
		case "url":
			b.URL, _ = r.text()
		case "event_types":
			set(&b.EventTypes, r.texts)
		case "groups":
			set(&b.Groups, r.texts)
		case "enabled":
			set(&b.Enabled, r.boolean)
		case "secret":
			set(&b.Secret, r.text)
		case "headers":
			set(&b.Headers, r.textMap)
		case "description":
			set(&b.Description, r.text)
		default:
			r.skip()
		}
	})
}

func (r *reader) webhookPatch(b *apigen.WebhookPatch) {
	r.fields(func(name []byte) {
		switch string(name) {
		case "url":
			set(&b.URL, r.text)
		case "event_types":
			set(&b.EventTypes, r.texts)
		case "groups":
			set(&b.Groups, r.texts)
		case "enabled":
			set(&b.Enabled, r.boolean)
		case "headers":
			set(&b.Headers, r.textMap)
		case "description":
			set(&b.Description, r.text)
		default:
			r.skip()
		}
	})
}

func (r *reader) rotation(b *apigen.RotateSecretRequest) {
	r.fields(func(name []byte) {
		switch string(name) {
		case "secret":
			set(&b.Secret, r.text)
		case "overlap_seconds":
			set(&b.OverlapSeconds, r.float)
		default:
			r.skip()
		}
	})
}

// fields calls read with the cursor at each value of an object that is not null.
func (r *reader) fields(read func(name []byte)) {
	if !r.object() {
		return
	}
	for r.next() {
		if !r.absent() {
			read(r.name())
		}
	}
}

// set points to at what read finds, if that has the right type.
func set[T any](to **T, read func() (T, bool)) {
	if value, ok := read(); ok {
		*to = &value
	}
}

// texts reads an array of strings; never nil when there is one.
func (r *reader) texts() ([]string, bool) {
	if !r.array("strings") {
		return nil, false
	}
	values := []string{}
	for r.element() {
		if value, ok := r.text(); ok {
			values = append(values, value)
		}
	}
	return coordination.FoldDuplicates(values), r.broken == nil
}

// textMap reads an object of strings; never nil when there is one.
func (r *reader) textMap() (map[string]string, bool) {
	if !r.object() {
		return nil, false
	}
	values := map[string]string{}
	for r.next() {
		name := string(r.name())
		if value, ok := r.text(); ok {
			values[name] = value
		}
	}
	return values, r.broken == nil
}

// compact reads any object and keeps a copy of its text without white space.
func (r *reader) compact() (json.RawMessage, bool) {
	raw, ok := r.raw()
	if !ok {
		return nil, false
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		r.fault("is not JSON")
		return nil, false
	}
	return b.Bytes(), true
}
