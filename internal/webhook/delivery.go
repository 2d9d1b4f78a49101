package webhook

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// maxKeptAttempts bounds a record that is retried by hand again and again.
const maxKeptAttempts = 100

// delivery is the record under delivery/{id}: one event for one endpoint, with its own copy of the event.
type delivery struct {
	ID        string `json:"id"`
	WebhookID string `json:"webhook_id"`
	// Position is the event's place in the journal; zero for a test send.
	Position       service.Position       `json:"position,omitzero"`
	EventID        string                 `json:"event_id"`
	EventType      coordination.EventType `json:"event_type"`
	EventTimestamp time.Time              `json:"event_timestamp"`
	CreatedAt      time.Time              `json:"created_at"`
	Status         service.DeliveryStatus `json:"status"`
	Cause          service.DeliveryCause  `json:"cause,omitempty"`
	Test           bool                   `json:"test,omitempty"`
	NextAttemptAt  time.Time              `json:"next_attempt_at,omitzero"`
	FinishedAt     time.Time              `json:"finished_at,omitzero"`
	// Manual: a person waits for the next attempt (test send or retry); it goes before the queue.
	Manual bool `json:"manual,omitempty"`
	// Series counts the failed attempts since the delivery was created or last retried by hand.
	Series       int       `json:"series,omitempty"`
	AttemptCount int       `json:"attempt_count,omitempty"`
	Attempts     []attempt `json:"attempts,omitempty"`
	// Event is the body. It was encoded once and is compact, so that storing it again leaves its bytes as they are.
	Event json.RawMessage `json:"event"`
}

// attempt is one request as it is stored.
type attempt struct {
	At         time.Time     `json:"at"`
	Status     int           `json:"status,omitempty"`
	Duration   time.Duration `json:"duration_ns"`
	Response   string        `json:"response,omitempty"`
	Error      string        `json:"error,omitempty"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
}

func newDelivery(now time.Time, ep *endpoint, entry *service.JournalEntry, body json.RawMessage) delivery {
	return delivery{
		ID:             deliveryID(entry.Event.ID, ep.ID),
		WebhookID:      ep.ID,
		Position:       entry.Position,
		EventID:        entry.Event.ID,
		EventType:      entry.Event.Type,
		EventTimestamp: entry.Event.Timestamp,
		CreatedAt:      now,
		Status:         service.DeliveryPending,
		NextAttemptAt:  now,
		Event:          body,
	}
}

func newTestDelivery(now time.Time, ep *endpoint, epoch uint64) (delivery, error) {
	event := coordination.Event{
		ID:        newTestEventID(),
		Type:      coordination.EventWebhookTest,
		Timestamp: now.UTC(),
		Data:      coordination.EventData{Epoch: epoch, WebhookID: ep.ID, URL: publicURL(ep.URL)},
	}
	body, err := json.Marshal(&event)
	if err != nil {
		return delivery{}, fmt.Errorf("encode test event: %w", err)
	}
	d := newDelivery(now, ep, &service.JournalEntry{Event: event}, body)
	d.Test = true
	d.Manual = true
	return d, nil
}

// refuse stores a delivery that the endpoint's full queue has no room for.
func (d *delivery) refuse(now time.Time) {
	d.finish(now, service.DeliveryDead, service.CauseQueueFull)
}

func (d *delivery) finish(now time.Time, status service.DeliveryStatus, cause service.DeliveryCause) {
	d.Status = status
	d.Cause = cause
	d.NextAttemptAt = time.Time{}
	d.FinishedAt = now
	d.Manual = false
}

// retry makes the delivery due at once with a fresh schedule.
func (d *delivery) retry(now time.Time) {
	d.Status = service.DeliveryPending
	d.Cause = ""
	d.NextAttemptAt = now
	d.FinishedAt = time.Time{}
	d.Manual = true
	d.Series = 0
}

// verdict is what an attempt means for its delivery and endpoint.
type verdict struct {
	outcome Outcome
	success bool
	// gone: the receiver answered 410.
	gone       bool
	retryAfter time.Duration
}

// record notes an attempt and decides what comes next. superseded says that the delivery was retried by hand while
// the attempt was under way: a failure then leaves it due as the person asked.
func (d *delivery) record(a attempt, v verdict, end time.Time, superseded bool, schedule []time.Duration, random float64) {
	d.AttemptCount++
	d.Attempts = append(d.Attempts, a)
	if excess := len(d.Attempts) - maxKeptAttempts; excess > 0 {
		d.Attempts = d.Attempts[excess:]
	}
	switch {
	case v.success:
		d.finish(end, service.DeliveryDelivered, "")
		return
	case superseded:
		return
	case v.gone:
		d.Series++
		d.finish(end, service.DeliveryDead, service.CauseGone)
		return
	}
	d.Series++
	d.Manual = false
	if d.Test {
		schedule = nil
	}
	next, again := nextAttempt(end, d.Series, schedule, v.retryAfter, random)
	if !again {
		d.finish(end, service.DeliveryDead, service.CauseExhausted)
		return
	}
	d.NextAttemptAt = next
}

// hasAttempt tells whether a commit of unknown outcome happened after all.
func (d *delivery) hasAttempt(a attempt) bool {
	for i := range d.Attempts {
		if d.Attempts[i].At.Equal(a.At) && d.Attempts[i].Duration == a.Duration {
			return true
		}
	}
	return false
}

func decodeDelivery(r service.Record) (delivery, error) {
	var d delivery
	if err := json.Unmarshal(r.Value, &d); err != nil {
		return delivery{}, fmt.Errorf("decode %s: %w", r.Key, err)
	}
	return d, nil
}

func (d *delivery) key() string { return keyDelivery + d.ID }

func (d *delivery) put() (service.Put, error) {
	value, err := json.Marshal(d)
	if err != nil {
		return service.Put{}, fmt.Errorf("encode %s: %w", d.key(), err)
	}
	return service.Put{Key: d.key(), Value: value}, nil
}

func (d *delivery) view() service.Delivery {
	v := service.Delivery{
		ID:            d.ID,
		WebhookID:     d.WebhookID,
		EventID:       d.EventID,
		EventType:     string(d.EventType),
		Status:        d.Status,
		Cause:         d.Cause,
		Test:          d.Test,
		CreatedAt:     d.CreatedAt,
		NextAttemptAt: d.NextAttemptAt,
		FinishedAt:    d.FinishedAt,
		AttemptCount:  d.AttemptCount,
		Attempts:      make([]service.Attempt, len(d.Attempts)),
		Event:         d.Event,
	}
	for i, a := range d.Attempts {
		v.Attempts[i] = service.Attempt{
			At: a.At, Status: a.Status, Duration: a.Duration,
			Response: a.Response, Error: a.Error, RetryAfter: a.RetryAfter,
		}
	}
	return v
}
