package service

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ErrWebhookDisabled says that the webhook takes no deliveries until it is enabled again (HTTP 409).
var ErrWebhookDisabled = errors.New("webhook is disabled")

// Webhooks is what the API and the dashboard call to manage webhook endpoints and to read their delivery log. Any
// replica takes any call; the deliveries themselves are made by the leader. A nil error on Create, Patch, Delete,
// Test, RotateSecret and Retry means the change is durable.
//
// Errors: coordination.ErrNotFound (no such webhook or delivery), *coordination.InvalidError (field pointers into the
// request, or /limit, /cursor, /status … for query parameters), coordination.ErrLimit, ErrWebhookDisabled, ErrConflict
// (lost the race for the record several times over: worth a retry), ErrUnavailable.
type Webhooks interface {
	// Create registers an endpoint. Its answer, and RotateSecret's, are the only ones that show the secret.
	Create(ctx context.Context, req WebhookCreate) (Webhook, error)
	Get(ctx context.Context, id string) (Webhook, error)
	// List pages through the endpoints in order of registration.
	List(ctx context.Context, page Page) (List[Webhook], error)
	// Patch changes the fields that are present. Enabling a webhook again clears its failure state.
	Patch(ctx context.Context, id string, req WebhookPatch) (Webhook, error)
	// Delete removes the endpoint with its delivery log; deliveries that are due are not made any more.
	Delete(ctx context.Context, id string) error
	// Test queues one webhook.test event for the endpoint, enabled or not: one attempt, signed and recorded like any
	// other. The answer is the delivery as queued; Delivery(id) tells what became of it.
	Test(ctx context.Context, id string) (Delivery, error)
	// RotateSecret gives the endpoint a new secret; for the overlap both sign.
	RotateSecret(ctx context.Context, id string, req RotateSecret) (Webhook, error)
	// Deliveries pages through an endpoint's delivery log, newest first.
	Deliveries(ctx context.Context, id string, req DeliveriesRequest) (List[Delivery], error)
	Delivery(ctx context.Context, id string) (Delivery, error)
	// Retry makes a delivery due at once, with a fresh retry schedule under the same id. ErrWebhookDisabled while its
	// endpoint is disabled.
	Retry(ctx context.Context, id string) (Delivery, error)
}

// WebhookCreate registers an endpoint.
type WebhookCreate struct {
	// URL is http or https. Credentials in it are used and never shown again.
	URL string
	// EventTypes are event types or patterns (`orphan.*`, `*`); empty: `orphan.*`.
	EventTypes []string
	// Groups narrow the events to those of these groups; empty: every group. Events without a group
	// (leader.changed, webhook.disabled) always match.
	Groups []string
	// Headers are sent with every attempt.
	Headers     map[string]string
	Description string
	// Secret is `whsec_` and base64 of 24 to 64 bytes; "": one is made.
	Secret string
	// Disabled registers without delivering yet.
	Disabled bool
}

// WebhookPatch changes what is not nil. An empty EventTypes sets the default again, an empty Groups every group, an
// empty Headers none. A URL or header value sent back as a view shows it (redacted) stays as it is.
type WebhookPatch struct {
	URL         *string
	EventTypes  *[]string
	Groups      *[]string
	Headers     *map[string]string
	Description *string
	Enabled     *bool
}

// RotateSecret asks for a new secret.
type RotateSecret struct {
	// Secret as in WebhookCreate; "": one is made.
	Secret string
	// Overlap is how long the old secret goes on signing beside the new one; nil: 24 h, 0: not at all, at most 7 days.
	Overlap *time.Duration
}

// Webhook is an endpoint as it is shown.
type Webhook struct {
	ID string
	// URL has its password redacted.
	URL        string
	EventTypes []string
	// Groups is empty for every group.
	Groups []string
	// Headers has every value redacted.
	Headers     map[string]string
	Description string
	Enabled     bool
	// DisabledReason says why the service disabled it, or "disabled by request"; "" while enabled.
	DisabledReason string
	DisabledAt     time.Time
	CreatedAt      time.Time
	UpdatedAt      time.Time
	// Secret is present in the answers of Create and RotateSecret only.
	Secret string
	// OldSecretExpiresAt is set while two secrets sign.
	OldSecretExpiresAt time.Time
	Counts             WebhookCounts
}

// WebhookCounts sums up an endpoint's delivery log. Finished deliveries leave the log by age, so delivered and dead
// count what the log still holds.
type WebhookCounts struct {
	Pending   int
	Delivered int
	Dead      int
	// FailingSince is the first failed attempt with no successful one after it; zero when the last one succeeded.
	FailingSince time.Time
	// NextAttemptAt is when the earliest pending delivery is due; zero without one.
	NextAttemptAt time.Time
}

// DeliveryStatus says where a delivery stands.
type DeliveryStatus string

// The statuses of a delivery.
const (
	// DeliveryPending: due at NextAttemptAt; held while the endpoint is disabled.
	DeliveryPending DeliveryStatus = "pending"
	// DeliveryDelivered: the receiver answered 2xx.
	DeliveryDelivered DeliveryStatus = "delivered"
	// DeliveryDead: given up, see Cause; can be retried by hand.
	DeliveryDead DeliveryStatus = "dead"
)

// DeliveryCause says why a delivery is dead.
type DeliveryCause string

// The causes.
const (
	// CauseExhausted: the last attempt of the retry schedule failed.
	CauseExhausted DeliveryCause = "attempts_exhausted"
	// CauseQueueFull: the endpoint had too many pending deliveries when the event came; never attempted.
	CauseQueueFull DeliveryCause = "queue_full"
	// CauseGone: the receiver answered 410, which disabled the endpoint.
	CauseGone DeliveryCause = "gone"
)

// DeliveriesRequest asks for one page of an endpoint's log.
type DeliveriesRequest struct {
	Page
	// Status narrows to one status; "" for all.
	Status DeliveryStatus
}

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	// ID is the webhook-id header: the event's and endpoint's, the same on every attempt.
	ID        string
	WebhookID string
	EventID   string
	EventType string
	Status    DeliveryStatus
	Cause     DeliveryCause
	// Test marks a test send.
	Test      bool
	CreatedAt time.Time
	// NextAttemptAt is set while pending.
	NextAttemptAt time.Time
	FinishedAt    time.Time
	// AttemptCount counts all attempts; Attempts holds the newest hundred, oldest first.
	AttemptCount int
	Attempts     []Attempt
	// Event is the body exactly as it is sent.
	Event json.RawMessage
}

// Attempt is one request to an endpoint.
type Attempt struct {
	At time.Time
	// Status is the HTTP status; 0 when no answer came, see Error.
	Status   int
	Duration time.Duration
	// Response is the first kilobyte of the answer's body, control characters escaped.
	Response string
	Error    string
	// RetryAfter is what the receiver asked for, capped.
	RetryAfter time.Duration
}
