package app

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/coordsvc/coordsvc/internal/telemetry"
	"github.com/coordsvc/coordsvc/internal/webhook"
)

// Options is every setting of the service. Defaults has a value for all of them; a zero Options is not valid.
type Options struct {
	// Listen is the address to serve HTTP on.
	Listen string
	// BasePath is where a proxy in front of the service shows it, for example /coordination; "" for the root.
	BasePath string
	// TrustedProxies may say on whose behalf they ask (X-Forwarded-For and its kin).
	TrustedProxies []netip.Prefix
	// InsecureNoAuth allows listening elsewhere than on loopback although anybody who connects may do anything.
	InsecureNoAuth bool

	// Identity is this replica's stable unique name.
	Identity string
	// Cluster is the name that replicas which belong together share.
	Cluster string
	// DataDir is where the embedded store keeps its file.
	DataDir string

	HeartbeatTimeout time.Duration
	PeerRetention    time.Duration
	MaxDrain         time.Duration
	// Groups overrides settings for single groups.
	Groups map[string]GroupOptions

	Limits      Limits
	JournalSize int
	Webhooks    WebhookOptions

	LogLevel  slog.Level
	LogFormat string

	// Engines that this build does not include yet: their names are settings already, setting them is refused.
	AMQPURL          string
	AMQPExchange     string
	ConsulAddr       string
	ConsulSessionTTL time.Duration

	// The rest is not configuration: it is what the caller brings along.

	// Build tells which build this is.
	Build Build
	// LogOutput takes the log (standard error).
	LogOutput io.Writer
	// Level, when set, is the level the logger looks at; the caller may change it while the service runs.
	Level *slog.LevelVar
	// OnListening is called once with the address in use, when the service answers.
	OnListening func(net.Addr)
}

// Build tells which build this is.
type Build struct {
	Version   string
	Revision  string
	GoVersion string
}

// GroupOptions overrides settings for one group; zero values leave the service's own.
type GroupOptions struct {
	HeartbeatTimeout time.Duration
	// SharedSubscriptions: several healthy peers may serve one subscription; that is no conflict.
	SharedSubscriptions bool
	// AutoAssign and StuckAfter are names for what a later version offers; only "off" and "" are accepted.
	AutoAssign string
	StuckAfter string
}

// Limits bound what one client, one peer and all of them together can take.
type Limits struct {
	Body          int64
	BatchBody     int64
	Subscriptions int
	Labels        int
	Metadata      int64
	Peers         int
	PeersPerGroup int
	SSEClients    int
}

// WebhookOptions rule deliveries.
type WebhookOptions struct {
	RetrySchedule []time.Duration
	Timeout       time.Duration
	QueueLimit    int
	AllowNetworks []netip.Prefix
	DenyNetworks  []netip.Prefix
	// Proxy carries all attempts; nil for none. The environment's proxy settings are never used.
	Proxy *url.URL
}

// Defaults are the settings of a service that was told nothing.
func Defaults() Options {
	return Options{
		Listen:           "127.0.0.1:8080",
		Identity:         defaultIdentity(),
		Cluster:          "coordsvc",
		DataDir:          "./coordsvc-data",
		HeartbeatTimeout: 15 * time.Second,
		PeerRetention:    time.Hour,
		MaxDrain:         24 * time.Hour,
		Limits: Limits{
			Body: 1 << 20, BatchBody: 8 << 20, Subscriptions: 1000, Labels: 64, Metadata: 16 << 10,
			Peers: 1_000_000, PeersPerGroup: 1_000_000, SSEClients: 1000,
		},
		JournalSize: 10_000,
		Webhooks: WebhookOptions{
			RetrySchedule: webhook.DefaultRetrySchedule(), Timeout: 15 * time.Second, QueueLimit: 10_000,
		},
		LogLevel:         slog.LevelInfo,
		LogFormat:        telemetry.LogFormatText,
		AMQPExchange:     "__eventsource_coordination",
		ConsulSessionTTL: 10 * time.Second,
	}
}

// defaultIdentity is the host's name, which stays the same over restarts.
func defaultIdentity() string {
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "coordsvc"
}
