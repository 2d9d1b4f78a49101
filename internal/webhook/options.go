package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// Journal is the committed event stream.
type Journal interface {
	// After returns up to limit events after pos in commit order with their positions; it blocks until at least one
	// exists or ctx ends. service.ErrGap when pos has left the journal.
	After(ctx context.Context, pos service.Position, limit int) ([]service.JournalEntry, error)
}

// EventRaiser adds an event to the journal of the current term. A nil error promises nothing durable: what does not show
// up in the journal is raised again, under the same id.
type EventRaiser interface {
	Raise(ctx context.Context, e coordination.Event) error
}

// Leadership is what the package asks of the elector.
type Leadership interface {
	Fence() (service.Fence, bool)
	Epoch() uint64
	OnLeaderChange(listener func(service.LeaderChange)) (handle int)
	RemoveLeaderChangeCallback(handle int)
}

// Resolver looks host names up at registration; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options configures Webhooks. Store, Journal, Elector and Events are required; a zero value elsewhere means the default.
type Options struct {
	Store   service.Store
	Journal Journal
	Elector Leadership
	Events  EventRaiser
	Logger  *slog.Logger
	Metrics Metrics
	Now     func() time.Time
	// Random yields jitter in [0, 1).
	Random func() float64

	// RetrySchedule holds the waits between attempts; after the last a delivery is dead. nil: DefaultRetrySchedule;
	// empty, but not nil: one attempt.
	RetrySchedule []time.Duration
	// Timeout bounds one attempt (15 s).
	Timeout time.Duration
	// RetryAfterLimit caps what a receiver may ask for with Retry-After (1 h).
	RetryAfterLimit time.Duration
	// DisableAfter is how long an endpoint may fail before it is disabled (5 days).
	DisableAfter time.Duration
	// AttemptsPerEndpoint bounds one endpoint's attempts under way (4).
	AttemptsPerEndpoint int
	// SharedAttempts bounds the attempts under way beyond each endpoint's first (64).
	SharedAttempts int
	// MaxWebhooks bounds the endpoints (1,000).
	MaxWebhooks int
	// QueueLimit bounds one endpoint's pending deliveries (10,000).
	QueueLimit int
	// LogLimit bounds one endpoint's finished deliveries (1,000).
	LogLimit int
	// SecretOverlap is how long an old secret signs beside its successor unless the request says otherwise (24 h).
	SecretOverlap time.Duration
	// StopGrace is how long attempts under way may go on when stopping or when the term is lost (500 ms).
	StopGrace time.Duration
	// MaxTxnOperations and MaxTxnBytes bound one store transaction (60 operations, 256 KiB).
	MaxTxnOperations int
	MaxTxnBytes      int

	// DenyNetworks are refused besides link-local, multicast and unspecified addresses. AllowNetworks are exempt from
	// both: an address in one of them may always be called.
	DenyNetworks  []netip.Prefix
	AllowNetworks []netip.Prefix
	// Proxy, when set, carries all attempts; it then does the name look-ups and must do the filtering. The environment's
	// proxy settings are never used.
	Proxy *url.URL
	// TLS is the base of the client's TLS settings; TLS 1.2 is the least in any case.
	TLS       *tls.Config
	UserAgent string
	Resolver  Resolver
}

const maxSecretOverlap = 7 * 24 * time.Hour

// quiet: failures further apart than this, twice the longest wait, are not one stretch of failing.
func (o *Options) quiet() time.Duration {
	longest := 24 * time.Hour
	for _, wait := range o.RetrySchedule {
		longest = max(longest, wait)
	}
	return 2 * longest
}

func (o Options) withDefaults() Options {
	setDefault(&o.Timeout, 15*time.Second)
	setDefault(&o.RetryAfterLimit, time.Hour)
	setDefault(&o.DisableAfter, 5*24*time.Hour)
	setDefault(&o.AttemptsPerEndpoint, 4)
	setDefault(&o.SharedAttempts, 64)
	setDefault(&o.MaxWebhooks, 1000)
	setDefault(&o.QueueLimit, 10_000)
	setDefault(&o.LogLimit, 1000)
	setDefault(&o.SecretOverlap, 24*time.Hour)
	setDefault(&o.StopGrace, 500*time.Millisecond)
	setDefault(&o.MaxTxnOperations, 60)
	setDefault(&o.MaxTxnBytes, 256<<10)
	setDefault(&o.UserAgent, "coordsvc")
	if o.RetrySchedule == nil {
		o.RetrySchedule = DefaultRetrySchedule()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NoMetrics{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o Options) validate() error {
	switch {
	case o.Store == nil:
		return errors.New("webhook options: Store is missing")
	case o.Journal == nil:
		return errors.New("webhook options: Journal is missing")
	case o.Elector == nil:
		return errors.New("webhook options: Elector is missing")
	case o.Events == nil:
		return errors.New("webhook options: Events is missing")
	case o.MaxTxnOperations < 4:
		return fmt.Errorf("webhook options: MaxTxnOperations is %d, at least 4 are needed", o.MaxTxnOperations)
	}
	for _, l := range []struct {
		name  string
		value int64
	}{
		{"Timeout", int64(o.Timeout)},
		{"RetryAfterLimit", int64(o.RetryAfterLimit)},
		{"DisableAfter", int64(o.DisableAfter)},
		{"SecretOverlap", int64(o.SecretOverlap)},
		{"StopGrace", int64(o.StopGrace)},
		{"AttemptsPerEndpoint", int64(o.AttemptsPerEndpoint)},
		{"SharedAttempts", int64(o.SharedAttempts)},
		{"MaxWebhooks", int64(o.MaxWebhooks)},
		{"QueueLimit", int64(o.QueueLimit)},
		{"LogLimit", int64(o.LogLimit)},
		{"MaxTxnBytes", int64(o.MaxTxnBytes)},
	} {
		if l.value < 0 {
			return fmt.Errorf("webhook options: %s is negative", l.name)
		}
	}
	for i, d := range o.RetrySchedule {
		if d <= 0 {
			return fmt.Errorf("webhook options: RetrySchedule: wait %d is %s, it must be above 0", i+1, d)
		}
	}
	return nil
}

// DefaultRetrySchedule is dense at first: an orphan cannot wait minutes for its second try.
func DefaultRetrySchedule() []time.Duration {
	return []time.Duration{
		time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 5 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// ParseRetrySchedule reads a comma-separated list of Go durations, the form of the setting.
func ParseRetrySchedule(s string) ([]time.Duration, error) {
	schedule := []time.Duration{}
	for part := range strings.SplitSeq(s, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("retry schedule: %q is not a duration such as 30s or 5m", strings.TrimSpace(part))
		}
		if d <= 0 || d > 30*24*time.Hour {
			return nil, fmt.Errorf("retry schedule: %s is not above 0 and at most 720h", d)
		}
		schedule = append(schedule, d)
	}
	return schedule, nil
}
