package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	defaultEventTypes = "orphan.*"
	// redacted stands for a header value in views; sent back, it leaves the value as it is.
	redacted = "[redacted]"

	reasonRequest = "disabled by request"
	reasonGone    = "the receiver answered 410 Gone"
)

// endpoint is the record under webhook/{id}. Secrets are stored as they are: signing needs them.
type endpoint struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	EventTypes     []string          `json:"event_types"`
	Groups         []string          `json:"groups,omitempty"`
	Headers        map[string]string `json:"headers,omitempty"`
	Description    string            `json:"description,omitempty"`
	Enabled        bool              `json:"enabled"`
	DisabledReason string            `json:"disabled_reason,omitempty"`
	DisabledAt     time.Time         `json:"disabled_at,omitzero"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at"`
	Secret         string            `json:"secret"`
	// OldSecret signs beside Secret until OldSecretUntil.
	OldSecret      string    `json:"old_secret,omitempty"`
	OldSecretUntil time.Time `json:"old_secret_until,omitzero"`
	// FailingSince is the first failed attempt with no success after it; LastFailureAt lags by up to an hour, so that
	// a failing endpoint's record is not written at every attempt.
	FailingSince  time.Time `json:"failing_since,omitzero"`
	LastFailureAt time.Time `json:"last_failure_at,omitzero"`
	// Announce: the service disabled it and webhook.disabled has not been raised yet. It commits with the disabling,
	// so that a crash in between cannot lose the event.
	Announce bool `json:"announce,omitempty"`
}

func decodeEndpoint(r service.Record) (endpoint, error) {
	var ep endpoint
	if err := json.Unmarshal(r.Value, &ep); err != nil {
		return endpoint{}, fmt.Errorf("decode %s: %w", r.Key, err)
	}
	return ep, nil
}

func (ep *endpoint) key() string { return keyWebhook + ep.ID }

func (ep *endpoint) put() (service.Put, error) {
	value, err := json.Marshal(ep) //nolint:gosec // the store keeps the secret: signing needs it
	if err != nil {
		return service.Put{}, fmt.Errorf("encode %s: %w", ep.key(), err)
	}
	return service.Put{Key: ep.key(), Value: value}, nil
}

// matches reports whether the endpoint asked for an event. Events of no group match whatever the groups are.
func (ep *endpoint) matches(e *coordination.Event) bool {
	if len(ep.Groups) > 0 && e.Data.Group != "" && !slices.Contains(ep.Groups, e.Data.Group) {
		return false
	}
	return slices.ContainsFunc(ep.EventTypes, func(pattern string) bool {
		return service.MatchEventType(pattern, e.Type)
	})
}

// secrets that sign at now, newest first.
func (ep *endpoint) secrets(now time.Time) []string {
	if ep.oldSecretSigns(now) {
		return []string{ep.Secret, ep.OldSecret}
	}
	return []string{ep.Secret}
}

func (ep *endpoint) oldSecretSigns(now time.Time) bool {
	return ep.OldSecret != "" && now.Before(ep.OldSecretUntil)
}

// enable clears the failure state.
func (ep *endpoint) enable() {
	ep.Enabled = true
	ep.DisabledReason = ""
	ep.DisabledAt = time.Time{}
	ep.FailingSince = time.Time{}
	ep.LastFailureAt = time.Time{}
	ep.Announce = false
}

func (ep *endpoint) disable(now time.Time, reason string, announce bool) {
	ep.Enabled = false
	ep.DisabledReason = reason
	ep.DisabledAt = now
	ep.UpdatedAt = now
	ep.Announce = announce
}

// succeeded notes a successful attempt and reports whether the record changed.
func (ep *endpoint) succeeded() bool {
	if ep.FailingSince.IsZero() {
		return false
	}
	ep.FailingSince = time.Time{}
	ep.LastFailureAt = time.Time{}
	return true
}

// failed notes a failed attempt, disables the endpoint when it has been failing for disableAfter, and reports whether
// the record changed. A failure after more than quiet without any begins a new stretch of failing.
func (ep *endpoint) failed(now time.Time, disableAfter, quiet time.Duration) bool {
	switch {
	case ep.FailingSince.IsZero() || now.Sub(ep.LastFailureAt) > quiet:
		ep.FailingSince = now
		ep.LastFailureAt = now
		return true
	case ep.Enabled && failingTooLong(now, ep.FailingSince, disableAfter):
		ep.LastFailureAt = now
		ep.disable(now, "no attempt has succeeded since "+ep.FailingSince.UTC().Format(time.RFC3339), true)
		return true
	case now.Sub(ep.LastFailureAt) >= time.Hour:
		ep.LastFailureAt = now
		return true
	}
	return false
}

// failingTooLong: from the instant disableAfter has passed.
func failingTooLong(now, since time.Time, disableAfter time.Duration) bool {
	return !now.Before(since.Add(disableAfter))
}

// disabledEvent is the webhook.disabled event of the last disabling; a repeat carries the same id.
func (ep *endpoint) disabledEvent(epoch uint64) coordination.Event {
	at := ep.DisabledAt.UTC()
	return coordination.Event{
		ID:        derivedEventID(string(coordination.EventWebhookDisabled), ep.ID, at.Format(time.RFC3339Nano)),
		Type:      coordination.EventWebhookDisabled,
		Timestamp: at,
		Data: coordination.EventData{
			Epoch:     epoch,
			WebhookID: ep.ID,
			URL:       publicURL(ep.URL),
			Reason:    ep.DisabledReason,
		},
	}
}

func (ep *endpoint) view(now time.Time) service.Webhook {
	v := service.Webhook{
		ID:             ep.ID,
		URL:            redactURL(ep.URL),
		EventTypes:     slices.Clone(ep.EventTypes),
		Groups:         slices.Clone(ep.Groups),
		Headers:        redactHeaders(ep.Headers),
		Description:    ep.Description,
		Enabled:        ep.Enabled,
		DisabledReason: ep.DisabledReason,
		DisabledAt:     ep.DisabledAt,
		CreatedAt:      ep.CreatedAt,
		UpdatedAt:      ep.UpdatedAt,
	}
	if ep.oldSecretSigns(now) {
		v.OldSecretExpiresAt = ep.OldSecretUntil
	}
	v.Counts.FailingSince = ep.FailingSince
	return v
}

// redactURL hides the password.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return redacted
	}
	return u.Redacted()
}

// publicURL is fit for events and logs: no credentials, no query.
func publicURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return redacted
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

func redactHeaders(headers map[string]string) map[string]string {
	shown := maps.Clone(headers)
	for name := range shown {
		shown[name] = redacted
	}
	return shown
}
