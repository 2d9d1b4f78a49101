package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/app"
	"github.com/coordsvc/coordsvc/internal/webhook"
)

// setting is one setting of `coordsvc serve`, in its three forms: --name, COORDSVC_NAME and the file's key.
type setting struct {
	name    string
	section string
	// kind stands in the help for the value and says its form: <duration>, <address>.
	kind  string
	usage string
	// set reads the value's text; its error says what would be right.
	set func(*app.Options, string) error
	// get writes the value as set would read it.
	get func(*app.Options) string
	// redact replaces what get wrote where people see it; nil when there is nothing to hide.
	redact func(string) string
}

func (s *setting) env() string { return envPrefix + strings.ToUpper(s.key()) }

// key is the setting's key in the file.
func (s *setting) key() string { return strings.ReplaceAll(s.name, "-", "_") }

// isSwitch: given without a value it is turned on.
func (s *setting) isSwitch() bool { return s.kind == "" }

func (s *setting) shown(o *app.Options) string {
	text := s.get(o)
	if s.redact != nil && text != "" {
		return s.redact(text)
	}
	return text
}

const envPrefix = "COORDSVC_"

// The sections of the help, in its order.
const (
	sectionServing  = "Serving"
	sectionIdentity = "Identity and storage"
	sectionLiveness = "Liveness"
	sectionLimits   = "Limits"
	sectionEvents   = "Events and webhooks"
	sectionLogs     = "Logs"
	sectionEngines  = "Engines (not in this build: setting them stops the start)"
)

// settings is the one list that flags, environment, file, help and `config check` are made from.
func settings() []*setting {
	var all []*setting
	in := func(section string, list ...*setting) {
		for _, s := range list {
			s.section = section
		}
		all = append(all, list...)
	}
	in(sectionServing,
		text("listen", "<host:port>", "Address to serve HTTP on; port 0 picks a free one.", func(o *app.Options) *string { return &o.Listen }),
		text("base-path", "<path>", "Path under which a proxy shows the service, for example /coordination.",
			func(o *app.Options) *string { return &o.BasePath }),
		networks("trusted-proxies", "Networks of proxies whose X-Forwarded headers are believed.",
			func(o *app.Options) *[]netip.Prefix { return &o.TrustedProxies }),
		toggle("insecure-no-auth", "Allow --listen on an address other machines reach, although nobody is asked for credentials.",
			func(o *app.Options) *bool { return &o.InsecureNoAuth }),
	)
	in(sectionIdentity,
		text("identity", "<name>", "This replica's stable, unique name; the host's name unless set.",
			func(o *app.Options) *string { return &o.Identity }),
		text("cluster", "<name>", "Name that replicas which belong together share.", func(o *app.Options) *string { return &o.Cluster }),
		text("data-dir", "<directory>", "Where the embedded store keeps its file; made when absent, used by one process at a time.",
			func(o *app.Options) *string { return &o.DataDir }),
	)
	in(sectionLiveness,
		duration("heartbeat-timeout", "Silence after which a peer is stale. Workers are told to beat three times as often.",
			func(o *app.Options) *time.Duration { return &o.HeartbeatTimeout }),
		duration("peer-retention", "How long a stale or terminated peer without open orphans is remembered.",
			func(o *app.Options) *time.Duration { return &o.PeerRetention }),
		duration("max-drain", "The longest drain window a shutdown notification may ask for.",
			func(o *app.Options) *time.Duration { return &o.MaxDrain }),
	)
	in(sectionLimits, limitSettings()...)
	in(sectionEvents, eventSettings()...)
	in(sectionLogs,
		&setting{
			name: "log-level", kind: "<level>", usage: "Least level that is logged: debug, info, warn or error. SIGUSR1 switches to debug and back.",
			set: setLogLevel, get: func(o *app.Options) string { return strings.ToLower(o.LogLevel.String()) },
		},
		text("log-format", "<format>", "text or json; the log goes to standard error.", func(o *app.Options) *string { return &o.LogFormat }),
	)
	in(sectionEngines,
		secretURL("amqp-url", "RabbitMQ to exchange messages through; unset: inside the process.", func(o *app.Options) *string { return &o.AMQPURL }),
		text("amqp-exchange", "<name>", "Topic exchange that carries the messages.", func(o *app.Options) *string { return &o.AMQPExchange }),
		text("consul-addr", "<host:port>", "Consul that holds what must last; unset: the embedded store.",
			func(o *app.Options) *string { return &o.ConsulAddr }),
		duration("consul-session-ttl", "Lifetime of the leader's Consul session without renewal.",
			func(o *app.Options) *time.Duration { return &o.ConsulSessionTTL }),
	)
	return all
}

func limitSettings() []*setting {
	return []*setting{
		size("max-body", "Largest request body.", func(o *app.Options) *int64 { return &o.Limits.Body }),
		size("max-batch-body", "Largest body of a heartbeat batch.", func(o *app.Options) *int64 { return &o.Limits.BatchBody }),
		count("max-subscriptions", "Subscriptions one peer may report.", func(o *app.Options) *int { return &o.Limits.Subscriptions }),
		count("max-labels", "Labels one peer may carry.", func(o *app.Options) *int { return &o.Limits.Labels }),
		size("max-metadata", "Largest metadata object of a shutdown notification.", func(o *app.Options) *int64 { return &o.Limits.Metadata }),
		count("max-peers", "Peers in all groups together.", func(o *app.Options) *int { return &o.Limits.Peers }),
		count("max-peers-per-group", "Peers in one group.", func(o *app.Options) *int { return &o.Limits.PeersPerGroup }),
		count("max-sse-clients", "Event streams open at a time.", func(o *app.Options) *int { return &o.Limits.SSEClients }),
	}
}

func eventSettings() []*setting {
	return []*setting{
		count("journal-size", "Events kept for reading and resuming.", func(o *app.Options) *int { return &o.JournalSize }),
		{
			name: "webhook-retry-schedule", kind: "<durations>",
			usage: "Waits between the attempts of a delivery, comma-separated; after the last one it is given up.",
			set:   setRetrySchedule, get: retrySchedule,
		},
		duration("webhook-timeout", "How long a receiver may take to answer.", func(o *app.Options) *time.Duration { return &o.Webhooks.Timeout }),
		count("webhook-queue-limit", "Deliveries that may wait for one endpoint.", func(o *app.Options) *int { return &o.Webhooks.QueueLimit }),
		networks("webhook-allow-networks", "Networks webhooks may call although they are link-local, multicast or denied.",
			func(o *app.Options) *[]netip.Prefix { return &o.Webhooks.AllowNetworks }),
		networks("webhook-deny-networks", "Networks webhooks may not call, besides link-local, multicast and unspecified addresses.",
			func(o *app.Options) *[]netip.Prefix { return &o.Webhooks.DenyNetworks }),
		{
			name: "webhook-proxy", kind: "<url>", usage: "Proxy for all webhook calls; the environment's proxy settings are never used.",
			set: setWebhookProxy, get: webhookProxy, redact: redactURL,
		},
	}
}

func text(name, kind, usage string, field func(*app.Options) *string) *setting {
	return &setting{
		name: name, kind: kind, usage: usage,
		set: func(o *app.Options, s string) error {
			*field(o) = s
			return nil
		},
		get: func(o *app.Options) string { return *field(o) },
	}
}

func secretURL(name, usage string, field func(*app.Options) *string) *setting {
	s := text(name, "<url>", usage, field)
	s.redact = redactURL
	return s
}

func duration(name, usage string, field func(*app.Options) *time.Duration) *setting {
	return &setting{
		name: name, kind: "<duration>", usage: usage,
		set: func(o *app.Options, s string) error {
			d, err := parseDuration(s)
			if err == nil {
				*field(o) = d
			}
			return err
		},
		get: func(o *app.Options) string { return shortDuration(*field(o)) },
	}
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration with a unit, such as 500ms, 15s or 2h", s)
	}
	return d, nil
}

func count(name, usage string, field func(*app.Options) *int) *setting {
	return &setting{
		name: name, kind: "<count>", usage: usage,
		set: func(o *app.Options, s string) error {
			n, err := strconv.Atoi(strings.ReplaceAll(s, "_", ""))
			if err != nil {
				return fmt.Errorf("%q is not a whole number such as 1000", s)
			}
			*field(o) = n
			return nil
		},
		get: func(o *app.Options) string { return strconv.Itoa(*field(o)) },
	}
}

func size(name, usage string, field func(*app.Options) *int64) *setting {
	return &setting{
		name: name, kind: "<size>", usage: usage,
		set: func(o *app.Options, s string) error {
			n, err := parseSize(s)
			if err != nil {
				return err
			}
			*field(o) = n
			return nil
		},
		get: func(o *app.Options) string { return formatSize(*field(o)) },
	}
}

func toggle(name, usage string, field func(*app.Options) *bool) *setting {
	return &setting{
		name: name, usage: usage,
		set: func(o *app.Options, s string) error {
			on, err := parseSwitch(s)
			if err == nil {
				*field(o) = on
			}
			return err
		},
		get: func(o *app.Options) string { return strconv.FormatBool(*field(o)) },
	}
}

func parseSwitch(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func networks(name, usage string, field func(*app.Options) *[]netip.Prefix) *setting {
	return &setting{
		name: name, kind: "<networks>", usage: usage + " Comma-separated, in CIDR form.",
		set: func(o *app.Options, s string) error {
			list, err := parseNetworks(s)
			if err != nil {
				return err
			}
			*field(o) = list
			return nil
		},
		get: func(o *app.Options) string {
			parts := make([]string, len(*field(o)))
			for i, p := range *field(o) {
				parts[i] = p.String()
			}
			return strings.Join(parts, ",")
		},
	}
}

func parseNetworks(s string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if addr, addrErr := netip.ParseAddr(part); addrErr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8 or fd00::/8", part)
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}

func setLogLevel(o *app.Options, s string) error {
	switch strings.ToLower(s) {
	case "debug", "info", "warn", "error":
		return o.LogLevel.UnmarshalText([]byte(s))
	case "warning":
		o.LogLevel = slog.LevelWarn
		return nil
	}
	return fmt.Errorf("%q is not a level; use debug, info, warn or error", s)
}

func setRetrySchedule(o *app.Options, s string) error {
	schedule, err := webhook.ParseRetrySchedule(s)
	if err != nil {
		return err
	}
	o.Webhooks.RetrySchedule = schedule
	return nil
}

func retrySchedule(o *app.Options) string {
	parts := make([]string, len(o.Webhooks.RetrySchedule))
	for i, d := range o.Webhooks.RetrySchedule {
		parts[i] = shortDuration(d)
	}
	return strings.Join(parts, ",")
}

func setWebhookProxy(o *app.Options, s string) error {
	if s == "" {
		o.Webhooks.Proxy = nil
		return nil
	}
	proxy, err := url.Parse(s)
	if err != nil {
		return errors.New("this is not a URL such as http://proxy:3128") // the parser's error would repeat a password
	}
	o.Webhooks.Proxy = proxy
	return nil
}

func webhookProxy(o *app.Options) string {
	if o.Webhooks.Proxy == nil {
		return ""
	}
	return o.Webhooks.Proxy.String()
}

// redactURL hides the password, or everything when it cannot be told where that is.
func redactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(redacted)"
	}
	return u.Redacted()
}

// shortDuration leaves out the zeros that Duration.String adds: 24h, not 24h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sizeUnits are binary: 1 KiB is 1024 bytes. Decimal ones would invite mistakes and are refused.
func sizeUnits() []struct {
	suffix string
	bytes  int64
} {
	return []struct {
		suffix string
		bytes  int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}
}

func parseSize(s string) (int64, error) {
	for _, unit := range sizeUnits() {
		digits, found := strings.CutSuffix(s, unit.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err == nil && n >= 0 && n <= math.MaxInt64/unit.bytes {
			return n * unit.bytes, nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not a size such as 65536, 16KiB or 1MiB", s)
}

func formatSize(n int64) string {
	for _, unit := range sizeUnits() {
		if unit.suffix != "B" && n > 0 && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
