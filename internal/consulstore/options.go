package consulstore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

// Options configures New. Client, Root and LeaderKey are required.
type Options struct {
	// Client talks to a Consul agent; its token needs write on Root and read on LeaderKey.
	Client *api.Client
	// Root is the prefix of all keys of this store, for example "coordsvc/main/store/". It ends in a slash, does not
	// begin with one, and no other program writes under it.
	Root string
	// LeaderKey is the key that the elector's session locks. Fences are checked against it.
	LeaderKey string
	// MaxChanges is how many change records are kept for watchers that lag (512), at least 16.
	MaxChanges int
	// MaxChangeBytes bounds their size together (16 MiB).
	MaxChangeBytes int
	// Timeout bounds one request to Consul (5 s). A Commit with large values and a List take several requests' time.
	Timeout time.Duration
	// ProbeInterval is how often Run asks whether Consul answers (500 ms).
	ProbeInterval time.Duration
	// PartsGrace is how long parts that no record refers to stay, as this replica sees it (5 min): who has
	// just read the record that referred to them may still fetch them.
	PartsGrace time.Duration
	// MaxInFlight bounds the writing requests in flight (4). One is at most 512 KiB, so that an
	// elector's renewal on the same agent never waits behind more than a few of them.
	MaxInFlight int
	Logger      *slog.Logger
	Now         func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Client == nil:
		return o, errors.New("consul store: Client is nil")
	case o.Root == "" || !strings.HasSuffix(o.Root, "/") || strings.HasPrefix(o.Root, "/"):
		return o, fmt.Errorf("consul store: Root is %q, it must end in a slash and not begin with one", o.Root)
	case o.LeaderKey == "" || strings.HasPrefix(o.LeaderKey, o.Root):
		return o, fmt.Errorf("consul store: LeaderKey is %q, it must be set and lie outside of Root %q", o.LeaderKey, o.Root)
	case o.MaxChanges != 0 && o.MaxChanges < minChanges:
		return o, fmt.Errorf("consul store: MaxChanges is %d, it must be at least %d", o.MaxChanges, minChanges)
	case o.MaxChangeBytes < 0 || o.MaxInFlight < 0 || o.Timeout < 0 || o.ProbeInterval < 0 || o.PartsGrace < 0:
		return o, errors.New("consul store: MaxChangeBytes, MaxInFlight, Timeout, ProbeInterval and PartsGrace must not be negative")
	}
	orDefault(&o.MaxChanges, 512)
	orDefault(&o.MaxChangeBytes, 16<<20)
	orDefault(&o.Timeout, 5*time.Second)
	orDefault(&o.ProbeInterval, 500*time.Millisecond)
	orDefault(&o.PartsGrace, 5*time.Minute)
	orDefault(&o.MaxInFlight, 4)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	} else {
		o.Logger = o.Logger.With("component", "store")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

func orDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}
