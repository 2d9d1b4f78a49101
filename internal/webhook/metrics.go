package webhook

import "time"

// Outcome labels an attempt in the metrics.
type Outcome string

// The outcomes of attempts.
const (
	OutcomeSuccess Outcome = "success"
	// OutcomeStatus: an answer came, with a status that is no success.
	OutcomeStatus  Outcome = "bad_status"
	OutcomeTimeout Outcome = "timeout"
	// OutcomeRefused: the address may not be called.
	OutcomeRefused Outcome = "address_refused"
	// OutcomeError: no answer for any other reason.
	OutcomeError Outcome = "error"
	// OutcomeCut: ended by stopping or by a lost term; recorded as not made.
	OutcomeCut Outcome = "cut"
)

// DropReason labels deliveries that will not be made (unless by hand) in the metrics.
type DropReason string

// The reasons.
const (
	DropQueueFull DropReason = "queue_full"
	DropExhausted DropReason = "attempts_exhausted"
	DropGone      DropReason = "gone"
	// DropGap: the journal no longer held events that had not been dispatched.
	DropGap DropReason = "journal_gap"
)

// Metrics hears what happens. Its methods are called from many goroutines and must not block.
type Metrics interface {
	// Attempt: one request ended.
	Attempt(outcome Outcome, took time.Duration)
	// FirstAttempt: the time from an event's timestamp to the start of a delivery's first attempt.
	FirstAttempt(delay time.Duration)
	// QueueDepth is the number of pending deliveries of all endpoints after a change.
	QueueDepth(pending int)
	Dropped(reason DropReason)
}

// NoMetrics hears nothing.
type NoMetrics struct{}

// Attempt does nothing.
func (NoMetrics) Attempt(Outcome, time.Duration) {}

// FirstAttempt does nothing.
func (NoMetrics) FirstAttempt(time.Duration) {}

// QueueDepth does nothing.
func (NoMetrics) QueueDepth(int) {}

// Dropped does nothing.
func (NoMetrics) Dropped(DropReason) {}
