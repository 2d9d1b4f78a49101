package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// kind is one kind of problem: a row of the table below.
type kind struct {
	is     error
	status int
	// slug ends the problem's type, urn:coordsvc:problem:<slug>.
	slug  string
	title string
	// detail replaces the error's own text, where that would tell a stranger about the inside of the service.
	detail string
	// retryAfter is sent when the error brings no better one.
	retryAfter time.Duration
}

// kinds is the one table from errors to problems; the first that matches wins. A test requires every sentinel of
// coordination and of service in it.
func kinds() []kind {
	const (
		unavailable = "A part of the service is away. Nothing was promised; try again."
		internal    = "The cause is in the service's log."
	)
	return []kind{
		{is: coordination.ErrInvalid, status: http.StatusUnprocessableEntity, slug: "invalid", title: "A value is out of its range"},
		{is: coordination.ErrNotFound, status: http.StatusNotFound, slug: "not-found", title: "No such record"},
		{is: service.ErrNoRecord, status: http.StatusNotFound, slug: "not-found", title: "No such record", detail: "There is no such record."},
		{is: coordination.ErrPeerTerminated, status: http.StatusConflict, slug: "peer-terminated", title: "The drain is over and cannot be cancelled"},
		{is: coordination.ErrNotDraining, status: http.StatusConflict, slug: "not-draining", title: "There is no drain to cancel"},
		{is: coordination.ErrClaimHeld, status: http.StatusConflict, slug: "claim-held", title: "Another peer holds the claim"},
		{is: coordination.ErrServed, status: http.StatusConflict, slug: "subscription-served", title: "A healthy peer serves the subscription"},
		{is: coordination.ErrHeld, status: http.StatusConflict, slug: "held", title: "Claims must wait", retryAfter: time.Second},
		{is: coordination.ErrEnded, status: http.StatusConflict, slug: "ended", title: "It has ended already"},
		{is: coordination.ErrClaimantUnfit, status: http.StatusConflict, slug: "claimant-unfit", title: "The claimant cannot take work over"},
		{is: service.ErrWebhookDisabled, status: http.StatusConflict, slug: "webhook-disabled", title: "The webhook is disabled"},
		{is: coordination.ErrLimit, status: http.StatusTooManyRequests, slug: "limit-reached", title: "A configured limit is reached", retryAfter: 30 * time.Second},
		{is: service.ErrConflict, status: http.StatusConflict, slug: "conflict", title: "Others changed the record at the same time", detail: "Nothing was written; try again.", retryAfter: time.Second},
		{is: service.ErrFenced, status: http.StatusServiceUnavailable, slug: "unavailable", title: "A part of the service is away", detail: unavailable, retryAfter: time.Second},
		{is: service.ErrUnavailable, status: http.StatusServiceUnavailable, slug: "unavailable", title: "A part of the service is away", detail: unavailable, retryAfter: 5 * time.Second},
		{is: service.ErrGap, status: http.StatusServiceUnavailable, slug: "unavailable", title: "A part of the service is away", detail: unavailable, retryAfter: time.Second},
		{is: service.ErrCorrupt, status: http.StatusInternalServerError, slug: "internal", title: titleInternal, detail: internal},
		{is: service.ErrTooLarge, status: http.StatusInternalServerError, slug: "internal", title: titleInternal, detail: internal},
		{is: errStopping, status: http.StatusServiceUnavailable, slug: "unavailable", title: "A part of the service is away", detail: "This replica is shutting down; try again, at another one if there is one.", retryAfter: time.Second},
		{is: errTooManyStreams, status: http.StatusTooManyRequests, slug: "limit-reached", title: "A configured limit is reached", retryAfter: 30 * time.Second},
		{is: context.DeadlineExceeded, status: http.StatusServiceUnavailable, slug: "unavailable", title: "A part of the service is away", detail: unavailable, retryAfter: 5 * time.Second},
		{is: context.Canceled, status: http.StatusServiceUnavailable, slug: "unavailable", title: "A part of the service is away", detail: unavailable, retryAfter: time.Second},
	}
}

const titleInternal = "The service failed"

var (
	// errStopping: EndStreams was called; there will be no more streams.
	errStopping = errors.New("shutting down")
	// errTooManyStreams: Options.MaxStreams clients are connected.
	errTooManyStreams = errors.New("too many event streams")
)

// invalid is an *coordination.InvalidError with one field.
func invalid(pointer, detail string) error {
	return &coordination.InvalidError{Fields: []coordination.FieldError{{Pointer: pointer, Detail: detail}}}
}
