package app

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coordsvc/coordsvc/internal/telemetry"
)

// Fault is one setting that cannot be used.
type Fault struct {
	// Setting is its name as on the command line, without dashes in front; groups.NAME.KEY for a group's.
	Setting string
	// Detail says what is wrong and what would be right.
	Detail string
}

// InvalidOptionsError lists every setting that cannot be used.
type InvalidOptionsError struct{ Faults []Fault }

func (e *InvalidOptionsError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.Setting + ": " + f.Detail
	}
	return "invalid options: " + strings.Join(lines, "; ")
}

// Validate answers an *InvalidOptionsError that names every bad setting, or nil.
func (o *Options) Validate() error {
	v := &validator{}
	v.serving(o)
	v.naming(o)
	v.liveness(o)
	v.limits(o)
	v.webhooks(o)
	v.groups(o)
	v.logs(o)
	v.engines(o)
	if len(v.faults) > 0 {
		return &InvalidOptionsError{v.faults}
	}
	return nil
}

type validator struct{ faults []Fault }

func (v *validator) fault(setting, format string, args ...any) {
	v.faults = append(v.faults, Fault{setting, fmt.Sprintf(format, args...)})
}

func (v *validator) serving(o *Options) {
	if o.BasePath != "" && (!strings.HasPrefix(o.BasePath, "/") || strings.HasSuffix(o.BasePath, "/") || !cleanPath(o.BasePath)) {
		v.fault("base-path", "%q is not a path such as /coordination: it starts with a slash and does not end with one", o.BasePath)
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		v.fault("listen", "%q is not HOST:PORT, for example 127.0.0.1:8080", o.Listen)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		v.fault("listen", "%q has no port from 0 to 65535 behind its last colon", o.Listen)
		return
	}
	if !isLoopback(host) && !o.InsecureNoAuth {
		v.fault("listen", "%s can be reached from other machines and this version asks nobody for credentials: anyone who connects "+
			"could drain peers and read webhooks. Listen on 127.0.0.1, or add --insecure-no-auth if the network keeps strangers out", o.Listen)
	}
}

// isLoopback reports whether only this machine can reach the host; any name but localhost may resolve elsewhere.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func cleanPath(path string) bool {
	for segment := range strings.SplitSeq(path[1:], "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, needsEscape) {
			return false
		}
	}
	return true
}

func needsEscape(r rune) bool {
	return r >= utf8.RuneSelf || r != '-' && r != '_' && r != '.' && r != '~' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

func (v *validator) naming(o *Options) {
	for _, name := range []struct{ setting, text string }{{"identity", o.Identity}, {"cluster", o.Cluster}} {
		if !validName(name.text) {
			v.fault(name.setting, "must be 1 to 255 bytes of UTF-8 without control characters")
		}
	}
	if o.DataDir == "" {
		v.fault("data-dir", "must name a directory; it is made when absent")
	}
}

// validName is the rule for ids, groups and subscriptions.
func validName(s string) bool {
	return s != "" && len(s) <= 255 && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

const (
	minHeartbeatTimeout = 100 * time.Millisecond
	maxHeartbeatTimeout = 24 * time.Hour
)

func (v *validator) liveness(o *Options) {
	v.between("heartbeat-timeout", o.HeartbeatTimeout, minHeartbeatTimeout, maxHeartbeatTimeout)
	v.between("peer-retention", o.PeerRetention, time.Second, 10*365*24*time.Hour)
	v.between("max-drain", o.MaxDrain, time.Second, 365*24*time.Hour)
}

func (v *validator) between(setting string, d, least, most time.Duration) {
	if d < least || d > most {
		v.fault(setting, "%s is out of range, it may be %s to %s", d, short(least), short(most))
	}
}

// short prints a duration without the zeros that Duration.String adds: 24h, not 24h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (v *validator) limits(o *Options) {
	for _, l := range []struct {
		setting      string
		value, least int64
	}{
		{"max-body", o.Limits.Body, 1024},
		{"max-batch-body", o.Limits.BatchBody, 1024},
		{"max-subscriptions", int64(o.Limits.Subscriptions), 1},
		{"max-labels", int64(o.Limits.Labels), 0},
		{"max-metadata", o.Limits.Metadata, 2},
		{"max-peers", int64(o.Limits.Peers), 1},
		{"max-peers-per-group", int64(o.Limits.PeersPerGroup), 1},
		{"max-sse-clients", int64(o.Limits.SSEClients), 0},
		{"journal-size", int64(o.JournalSize), 100},
		{"webhook-queue-limit", int64(o.Webhooks.QueueLimit), 1},
	} {
		if l.value < l.least {
			v.fault(l.setting, "%d is too small, it must be at least %d", l.value, l.least)
		}
		if l.value > math.MaxInt32 {
			v.fault(l.setting, "%d is too large, it may be at most %d", l.value, math.MaxInt32)
		}
	}
}

func (v *validator) webhooks(o *Options) {
	v.between("webhook-timeout", o.Webhooks.Timeout, 100*time.Millisecond, 5*time.Minute)
	for i, wait := range o.Webhooks.RetrySchedule {
		if wait <= 0 || wait > 30*24*time.Hour {
			v.fault("webhook-retry-schedule", "wait %d is %s, every wait must be above 0 and at most 720h", i+1, wait)
		}
	}
	if p := o.Webhooks.Proxy; p != nil && (!slices.Contains([]string{"http", "https", "socks5"}, p.Scheme) || p.Host == "") {
		v.fault("webhook-proxy", "%s is not a proxy's URL such as http://proxy:3128 (http, https or socks5)", p.Redacted())
	}
}

func (v *validator) groups(o *Options) {
	names := make([]string, 0, len(o.Groups))
	for name := range o.Groups {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		g, prefix := o.Groups[name], "groups."+name
		if !validName(name) {
			v.fault(prefix, "a group's name must be 1 to 255 bytes of UTF-8 without control characters")
		}
		if g.HeartbeatTimeout != 0 {
			v.between(prefix+".heartbeat-timeout", g.HeartbeatTimeout, minHeartbeatTimeout, maxHeartbeatTimeout)
		}
		for _, later := range []struct{ key, value string }{{"auto-assign", g.AutoAssign}, {"stuck-after", g.StuckAfter}} {
			if later.value != "" && later.value != "off" {
				v.fault(prefix+"."+later.key, "%q is not available yet: this version accepts only off", later.value)
			}
		}
	}
}

func (v *validator) logs(o *Options) {
	if o.LogFormat != telemetry.LogFormatText && o.LogFormat != telemetry.LogFormatJSON {
		v.fault("log-format", "%q is unknown, use %s or %s", o.LogFormat, telemetry.LogFormatText, telemetry.LogFormatJSON)
	}
}

func (v *validator) engines(o *Options) {
	if o.AMQPURL != "" {
		v.fault("amqp-url", "this build does not include the RabbitMQ bus; leave it unset, workers send their heartbeats over HTTP")
	}
	if o.ConsulAddr != "" {
		v.fault("consul-addr", "this build does not include the Consul store; leave it unset, the embedded store in data-dir is used")
	}
	if o.AMQPExchange == "" || len(o.AMQPExchange) > 127 {
		v.fault("amqp-exchange", "must be 1 to 127 bytes")
	}
	v.between("consul-session-ttl", o.ConsulSessionTTL, 10*time.Second, 24*time.Hour)
}
