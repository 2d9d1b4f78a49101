package coordination

import (
	"errors"
	"strings"
	"time"
)

// The sentinels every entrance maps: HTTP to a status, the bus to ack or dead-letter.
var (
	// ErrInvalid: a value is out of its range; see InvalidError for the fields.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: no such peer, orphan, claim or assignment.
	ErrNotFound = errors.New("not found")
	// ErrPeerTerminated: the drain is over and cannot be cancelled.
	ErrPeerTerminated = errors.New("peer is terminated")
	// ErrNotDraining: there is no drain to cancel.
	ErrNotDraining = errors.New("peer is not draining")
	// ErrClaimHeld: another peer holds the claim; see HeldError.
	ErrClaimHeld = errors.New("claim is held")
	// ErrServed: a healthy peer serves the subscription; see HeldError.
	ErrServed = errors.New("subscription is served")
	// ErrHeld: orphan events of the group are held (mass staleness or grace); claims must wait; see HeldError.
	ErrHeld = errors.New("held")
	// ErrEnded: the claim, orphan or assignment has ended already.
	ErrEnded = errors.New("has ended")
	// ErrNotLeaving: a claimant must be able to serve; a draining, terminated or stale one cannot claim.
	ErrClaimantUnfit = errors.New("claimant cannot take work over")
	// ErrLimit: a configured limit is reached (peers, claims, webhooks).
	ErrLimit = errors.New("limit reached")
)

// FieldError names one wrong field. Pointer is a JSON pointer into the request (RFC 6901).
type FieldError struct {
	Pointer string
	Detail  string
}

// InvalidError lists what was wrong with a message, and what would be right. It is an ErrInvalid.
type InvalidError struct{ Fields []FieldError }

func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Pointer + ": " + f.Detail
	}
	return "invalid: " + strings.Join(parts, "; ")
}

// Unwrap makes errors.Is(err, ErrInvalid) hold.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// HeldError says who stands in a claim's way and when to ask again. It unwraps to ErrClaimHeld, ErrServed or ErrHeld.
type HeldError struct {
	Reason error
	// Holder is the instance that holds the claim or serves the subscription; "" for ErrHeld.
	Holder string
	// RetryAfter is 0 when waiting would not help.
	RetryAfter time.Duration
}

func (e *HeldError) Error() string {
	if e.Holder == "" {
		return e.Reason.Error()
	}
	return e.Reason.Error() + " by " + e.Holder
}

// Unwrap exposes the reason.
func (e *HeldError) Unwrap() error { return e.Reason }
