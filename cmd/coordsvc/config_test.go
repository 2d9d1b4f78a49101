package main

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/app"
)

// execute runs one command line and answers its exit code and what it wrote.
func execute(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	root := rootCommand(&streams{out: &out, err: &errOut, environ: environ})
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		return exitCode(err), out.String(), err.Error()
	}
	return exitOK, out.String(), errOut.String()
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "coordsvc.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func load(t *testing.T, file string, environ []string, flags map[string]string) (loaded, error) {
	t.Helper()
	if file != "" {
		withFile := map[string]string{"config": writeFile(t, file)}
		for k, v := range flags {
			withFile[k] = v
		}
		flags = withFile
	}
	l := &loader{all: settings(), flags: flags, environ: environ}
	return l.load()
}

func TestEverySettingReadsWhatItWrites(t *testing.T) {
	defaults := app.Defaults()
	seen := map[string]bool{}
	for _, s := range settings() {
		assert.False(t, seen[s.name], "%s is there twice", s.name)
		seen[s.name] = true
		assert.NotEmpty(t, s.usage, s.name)
		text := s.get(&defaults)
		read := app.Defaults()
		if text == "" && strings.HasPrefix(s.kind, "<url") {
			continue
		}
		require.NoError(t, s.set(&read, text), s.name)
		assert.Equal(t, text, s.get(&read), s.name)
	}
	// Other programs rely on these names.
	for _, name := range []string{
		"listen", "data-dir", "identity", "cluster", "heartbeat-timeout", "amqp-url", "amqp-exchange",
		"consul-addr", "consul-session-ttl", "log-level", "log-format", "base-path", "trusted-proxies", "webhook-retry-schedule",
	} {
		assert.True(t, seen[name], name)
	}
}

func TestFlagsWinOverEnvironmentOverFileOverDefaults(t *testing.T) {
	file := "heartbeat_timeout: 20s\npeer_retention: 2h\nmax_drain: 1h\n"
	environ := []string{"COORDSVC_PEER_RETENTION=3h", "COORDSVC_MAX_DRAIN=2h", "HOME=/"}
	got, err := load(t, file, environ, map[string]string{"max-drain": "3h"})
	require.NoError(t, err)
	assert.Equal(t, 20*time.Second, got.options.HeartbeatTimeout)
	assert.Equal(t, 3*time.Hour, got.options.PeerRetention)
	assert.Equal(t, 3*time.Hour, got.options.MaxDrain)
	assert.Equal(t, 10_000, got.options.JournalSize)
	assert.Equal(t, fromFlag, got.origins["max-drain"].from)
	assert.Equal(t, fromEnvironment, got.origins["peer-retention"].from)
	assert.True(t, strings.HasSuffix(got.origins["heartbeat-timeout"].from, "coordsvc.yaml:1"), got.origins["heartbeat-timeout"].from)
	assert.NotContains(t, got.origins, "journal-size")
}

func TestTheFileMayBeNamedByTheEnvironment(t *testing.T) {
	path := writeFile(t, "cluster: blue\n")
	got, err := load(t, "", []string{"COORDSVC_CONFIG=" + path}, nil)
	require.NoError(t, err)
	assert.Equal(t, "blue", got.options.Cluster)
}

func TestEveryKindOfValueIsRead(t *testing.T) {
	got, err := load(t, `
listen: 127.0.0.1:9090
trusted_proxies: [10.0.0.0/8, 192.168.1.7]
insecure_no_auth: true
max_body: 2MiB
max_metadata: 4096
max_peers: 5_000
journal_size: 500
webhook_retry_schedule: [1s, 1m]
webhook_proxy: http://user:secret@proxy:3128
webhook_deny_networks: "10.1.2.3/8, fd00::/8"
log_level: WARN
groups:
  orders: {heartbeat_timeout: 5s, shared_subscriptions: yes, auto_assign: off, stuck_after: "off"}
  empty:
`, nil, nil)
	require.NoError(t, err)
	o := got.options
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.1.7/32")}, o.TrustedProxies)
	assert.True(t, o.InsecureNoAuth)
	assert.Equal(t, int64(2<<20), o.Limits.Body)
	assert.Equal(t, int64(4096), o.Limits.Metadata)
	assert.Equal(t, 5000, o.Limits.Peers)
	assert.Equal(t, 500, o.JournalSize)
	assert.Equal(t, []time.Duration{time.Second, time.Minute}, o.Webhooks.RetrySchedule)
	assert.Equal(t, "proxy:3128", o.Webhooks.Proxy.Host)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, o.Webhooks.DenyNetworks)
	assert.Equal(t, slog.LevelWarn, o.LogLevel)
	assert.Equal(t, map[string]app.GroupOptions{
		"orders": {HeartbeatTimeout: 5 * time.Second, SharedSubscriptions: true, AutoAssign: "off", StuckAfter: "off"}, "empty": {},
	}, o.Groups)
}

func TestWhatIsWrongIsNamedWithItsPlaceAndWhatWouldBeRight(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		environ []string
		flags   map[string]string
		want    []string
	}{
		"unknown key, nearly right":  {file: "hearbeat_timeout: 5s", want: []string{"coordsvc.yaml:1: hearbeat_timeout: there is no such setting; did you mean heartbeat_timeout?"}},
		"a flag's spelling":          {file: "data-dir: /x", want: []string{"coordsvc.yaml:1: data-dir: there is no such setting; did you mean data_dir?"}},
		"unknown key":                {file: "\nfoo_bar_baz_qux: 5s", want: []string{"coordsvc.yaml:2: foo_bar_baz_qux: there is no such setting"}},
		"unknown variable":           {environ: []string{"COORDSVC_LISTN=x"}, want: []string{"COORDSVC_LISTN: there is no such setting; did you mean COORDSVC_LISTEN?"}},
		"duration without unit":      {flags: map[string]string{"heartbeat-timeout": "15"}, want: []string{`--heartbeat-timeout: "15" is not a duration with a unit, such as`}},
		"duration out of range":      {environ: []string{"COORDSVC_HEARTBEAT_TIMEOUT=1ms"}, want: []string{"COORDSVC_HEARTBEAT_TIMEOUT: 1ms is out of range, it may be 100ms to 24h"}},
		"size":                       {flags: map[string]string{"max-body": "1MB"}, want: []string{`--max-body: "1MB" is not a size such as 65536, 16KiB or 1MiB`}},
		"count":                      {file: "max_peers: many", want: []string{`coordsvc.yaml:1: max_peers: "many" is not a whole number`}},
		"count too small":            {file: "max_peers: 0", want: []string{"coordsvc.yaml:1: max_peers: 0 is too small, it must be at least 1"}},
		"switch":                     {file: "insecure_no_auth: maybe", want: []string{`"maybe" is neither true nor false`}},
		"network":                    {file: "trusted_proxies: [10.0.0.0/40]", want: []string{`"10.0.0.0/40" is not a network such as`}},
		"level":                      {flags: map[string]string{"log-level": "loud"}, want: []string{`"loud" is not a level; use debug, info, warn or error`}},
		"format":                     {flags: map[string]string{"log-format": "xml"}, want: []string{`--log-format: "xml" is unknown, use text or json`}},
		"retry schedule":             {flags: map[string]string{"webhook-retry-schedule": "1s,soon"}, want: []string{`--webhook-retry-schedule`, `"soon" is not a duration`}},
		"proxy":                      {flags: map[string]string{"webhook-proxy": "ftp://u:secret@x"}, want: []string{"--webhook-proxy: ftp://u:xxxxx@x is not a proxy's URL"}}, //nolint:gosec // a password that must not be shown
		"listen":                     {flags: map[string]string{"listen": "8080"}, want: []string{`--listen: "8080" is not HOST:PORT`}},
		"listen port":                {flags: map[string]string{"listen": "127.0.0.1:99999"}, want: []string{"no port from 0 to 65535"}},
		"open to the world":          {flags: map[string]string{"listen": ":8080"}, want: []string{"--listen: :8080 can be reached from other machines", "--insecure-no-auth"}},
		"a name may resolve outside": {file: "listen: myhost:8080", want: []string{"coordsvc.yaml:1: listen: myhost:8080 can be reached"}},
		"base path":                  {file: "base_path: coord/", want: []string{`"coord/" is not a path such as /coordination`}},
		"identity":                   {flags: map[string]string{"identity": "a\nb"}, want: []string{"--identity: must be 1 to 255 bytes"}},
		"rabbitmq":                   {environ: []string{"COORDSVC_AMQP_URL=amqp://u:secret@h"}, want: []string{"COORDSVC_AMQP_URL: this build does not include the RabbitMQ bus"}},
		"consul":                     {file: "consul_addr: 127.0.0.1:8500", want: []string{"consul_addr: this build does not include the Consul store"}},
		"group, unknown key":         {file: "groups:\n  a:\n    heartbeat: 5s", want: []string{"coordsvc.yaml:3: groups.a.heartbeat: there is no such setting of a group"}},
		"group, bad value":           {file: "groups: {a: {heartbeat_timeout: 5}}", want: []string{`groups.a.heartbeat_timeout: "5" is not a duration`}},
		"group, out of range":        {file: "groups: {a: {heartbeat_timeout: 1ns}}", want: []string{"coordsvc.yaml:1: groups.a.heartbeat_timeout: 1ns is out of range"}},
		"group, later feature":       {file: "groups: {a: {auto_assign: on}}", want: []string{`groups.a.auto_assign: "on" is not available yet`}},
		"group, stuck_after":         {file: "groups: {a: {stuck_after: 5m}}", want: []string{`groups.a.stuck_after: "5m" is not available yet`}},
		"group, no mapping":          {file: "groups: [a]", want: []string{"groups must be a mapping"}},
		"group name":                 {file: `groups: {"": {}}`, want: []string{"a group's name must be 1 to 255 bytes"}},
		"no mapping":                 {file: "- a", want: []string{"coordsvc.yaml:1: the file must be a mapping of keys to values"}},
		"twice":                      {file: "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2", want: []string{"coordsvc.yaml:2: listen is there twice"}},
		"no value":                   {file: "listen:", want: []string{"listen has no value"}},
		"nested value":               {file: "listen: {a: b}", want: []string{"listen must be a value, not a mapping"}},
		"two documents":              {file: "listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2", want: []string{"more than one document"}},
		"not YAML":                   {file: "listen: [", want: []string{"coordsvc.yaml"}},
		"missing file":               {flags: map[string]string{"config": "/no/such/file"}, want: []string{"--config", "no such file"}},
		"everything at once": {
			file: "foo_bar_baz: 1\nmax_peers: x", environ: []string{"COORDSVC_LISTEN=:1"}, flags: map[string]string{"log-format": "xml"},
			want: []string{"foo_bar_baz", "max_peers", "COORDSVC_LISTEN", "--log-format"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.file, c.environ, c.flags)
			var wrong *configError
			require.ErrorAs(t, err, &wrong)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
			assert.NotContains(t, err.Error(), "secret")
			assert.Equal(t, exitUsage, exitCode(err))
		})
	}
}

func TestOtherVariablesWithOurPrefixAreLeftAlone(t *testing.T) {
	_, err := load(t, "", []string{
		"COORDSVC_SERVER=http://x", "COORDSVC_SERVICE_HOST=10.0.0.1", "COORDSVC_SERVICE_PORT=8080", "COORDSVC_SERVICE_PORT_HTTP=8080",
		"COORDSVC_PORT=tcp://10.0.0.1:8080", "COORDSVC_PORT_8080_TCP_ADDR=10.0.0.1", "COORDSVC_HEADLESS_SERVICE_HOST=10.0.0.2",
		"COORDSVC_LISTEN=", "COORDSVCX=1",
	}, nil)
	assert.NoError(t, err)
}

func TestConfigCheckShowsWhatIsInForceAndItIsAConfiguration(t *testing.T) {
	file := writeFile(t, "webhook_proxy: http://u:secret@proxy:3128\ngroups:\n  my orders:\n    shared_subscriptions: true\n    heartbeat_timeout: 2s\n")
	code, out, errOut := execute(t, []string{"COORDSVC_DATA_DIR=/data"}, "config", "check", "--config", file, "--identity", "a: b # c")
	require.Equal(t, exitOK, code, errOut)
	for _, want := range []string{
		`identity: "a: b # c"`, "# flag --identity", "data_dir: /data", "# environment COORDSVC_DATA_DIR",
		"http://u:xxxxx@proxy:3128", file + ":1", "listen: 127.0.0.1:8080", "# default", `"my orders":`, file + ":5",
	} {
		assert.Contains(t, out, want)
	}
	assert.NotContains(t, out, "secret")

	again := writeFile(t, strings.ReplaceAll(out, `amqp_url: ""`, "#"))
	code, second, errOut := execute(t, nil, "config", "check", "--config", again)
	require.Equal(t, exitOK, code, errOut)
	strip := func(text string) (lines []string) {
		for line := range strings.Lines(text) {
			value, _, _ := strings.Cut(line, "  # ")
			lines = append(lines, strings.TrimRight(value, " \n"))
		}
		return lines
	}
	assert.Equal(t, strip(out), strip(second))
}

func TestServeHelpListsEverySettingWithItsDefault(t *testing.T) {
	code, out, _ := execute(t, nil, "serve", "--help")
	require.Equal(t, exitOK, code)
	for _, s := range settings() {
		assert.Contains(t, out, "--"+s.name)
		assert.Contains(t, out, s.usage)
	}
	for _, want := range []string{"(default 15s)", "(default 1MiB)", "(default 24h)", "(default 127.0.0.1:8080)", "COORDSVC_DATA_DIR", "--config <file>", sectionLimits} {
		assert.Contains(t, out, want)
	}
}

func TestWrongUsageHasItsExitCode(t *testing.T) {
	for _, args := range [][]string{
		{"serve", "--no-such-flag"},
		{"serve", "surplus"},
		{"serve", "--listen", "nowhere"},
		{"heartbeat"},
		{"shutdown", "--instance-id", "a", "--metadata", "[1]"},
		{"heartbeat", "--instance-id", "a", "--label", "x"},
		{"heartbeat", "--instance-id", "a", "--server", "nonsense"},
		{"demo", "--heartbeat-timeout", "1ms"},
	} {
		code, _, errOut := execute(t, nil, args...)
		assert.Equal(t, exitUsage, code, "%v: %s", args, errOut)
	}
}

func TestVersionTellsTheBuild(t *testing.T) {
	code, out, _ := execute(t, nil, "version")
	require.Equal(t, exitOK, code)
	assert.Regexp(t, `^coordsvc \S+\nrevision \S+\ngo1\.\S+ \w+/\w+\n$`, out)
	code, out, _ = execute(t, nil, "version", "--json")
	require.Equal(t, exitOK, code)
	assert.Contains(t, out, `"go_version":"go1.`)
}
