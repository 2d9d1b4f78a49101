package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/coordsvc/coordsvc/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMetrics(t *testing.T) *telemetry.Metrics {
	t.Helper()
	m, err := telemetry.NewMetrics(telemetry.Options{
		Version: "v1.2.3", Revision: "abc", GoVersion: "go1.26",
		EventTypes: []string{"peer.joined", "peer.stale"}, DropReasons: []string{"peer_limit"}, AttemptOutcomes: []string{"delivered"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Shutdown(t.Context())) })
	return m
}

func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusOK, recorder.Code)
	body, err := io.ReadAll(recorder.Body)
	require.NoError(t, err)
	return string(body)
}

func TestEveryMetricIsShownUnderItsName(t *testing.T) {
	m := newMetrics(t)
	m.Heartbeats("accepted", "http", 3)
	m.Heartbeats("invented", "carrier pigeon", 1)
	m.ClaimGranted()
	m.EventRaised("peer.stale")
	m.WebhookAttempt("delivered", 20*time.Millisecond)
	m.WebhookFirstAttempt(30 * time.Millisecond)
	m.ShutdownReceived("merged")
	m.PauseMadeUpFor()
	m.Dropped("peer_limit", 4)
	m.CommitTook(3 * time.Millisecond)
	m.RequestTook("/v1/heartbeats", "POST", 200, 200*time.Microsecond)
	m.RequestTook("/v1/heartbeats", "BREW", 405, time.Hour)
	m.ReadState(func() telemetry.State {
		return telemetry.State{
			Groups:  []telemetry.GroupState{{Group: "orders", Peers: map[string]int{"healthy": 2, "stale": 1}, OpenOrphans: 5}},
			Leading: true, Epoch: 7, Parts: map[string]bool{"store": true, "bus": false}, WebhookQueueDepth: 9, Streams: 2,
		}
	})
	text := scrape(t, m)
	for _, want := range []string{
		`coordsvc_build_info{go_version="go1.26",revision="abc",version="v1.2.3"} 1`,
		`coordsvc_heartbeats_total{entrance="http",outcome="accepted"} 3`,
		`coordsvc_heartbeats_total{entrance="bus",outcome="rejected"} 0`,
		`coordsvc_heartbeats_total{entrance="other",outcome="other"} 1`,
		`coordsvc_claims_total 1`,
		`coordsvc_events_total{type="peer.stale"} 1`,
		`coordsvc_events_total{type="peer.joined"} 0`,
		`coordsvc_webhook_attempts_total{outcome="delivered"} 1`,
		`coordsvc_webhook_attempt_duration_seconds_sum 0.02`,
		`coordsvc_webhook_first_attempt_delay_seconds_sum 0.03`,
		`coordsvc_shutdowns_total{outcome="merged"} 1`,
		`coordsvc_own_pauses_total 1`,
		`coordsvc_dropped_total{reason="peer_limit"} 4`,
		`coordsvc_peers{group="orders",status="healthy"} 2`,
		`coordsvc_peers{group="orders",status="stale"} 1`,
		`coordsvc_orphans_open{group="orders"} 5`,
		`coordsvc_leader 1`,
		`coordsvc_epoch 7`,
		`coordsvc_part_ready{part="bus"} 0`,
		`coordsvc_webhook_queue_depth 9`,
		`coordsvc_sse_clients 2`,
		`coordsvc_store_commit_duration_seconds_bucket{le="0.0025"} 0`,
		`coordsvc_store_commit_duration_seconds_bucket{le="0.005"} 1`,
		`coordsvc_store_commit_duration_seconds_sum 0.003`,
		`http_server_request_duration_seconds_count{http_route="/v1/heartbeats",method="POST",status="200"} 1`,
		`http_server_request_duration_seconds_bucket{http_route="/v1/heartbeats",method="other",status="405",le="10"} 0`,
		`http_server_request_duration_seconds_bucket{http_route="/v1/heartbeats",method="other",status="405",le="+Inf"} 1`,
		`go_goroutines`,
		`process_open_fds`,
	} {
		assert.Contains(t, text, "\n"+want, want)
	}
	assert.NotContains(t, text, "otel_scope")
}

func TestCountingCostsAHeartbeatNoAllocation(t *testing.T) {
	m := newMetrics(t)
	m.RequestTook("/v1/heartbeats", "POST", 200, time.Millisecond)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		m.Heartbeats("accepted", "http", 1)
		m.RequestTook("/v1/heartbeats", "POST", 200, time.Millisecond)
	}))
}

func TestGroupsBeyondTheLimitAreSummedAsOther(t *testing.T) {
	m := newMetrics(t)
	groups := func(from, n int) []telemetry.GroupState {
		var all []telemetry.GroupState
		for i := from; i < from+n; i++ {
			all = append(all, telemetry.GroupState{Group: fmt.Sprintf("g%04d", i), Peers: map[string]int{"healthy": 1}, OpenOrphans: 2})
		}
		return all
	}
	now := groups(0, telemetry.MaxGroups+30)
	m.ReadState(func() telemetry.State { return telemetry.State{Groups: now} })
	text := scrape(t, m)
	assert.Equal(t, telemetry.MaxGroups+1, strings.Count(text, "\ncoordsvc_peers{"))
	assert.Contains(t, text, `coordsvc_peers{group="other",status="healthy"} 30`)
	assert.Contains(t, text, `coordsvc_orphans_open{group="other"} 60`)

	// New groups that sort first do not push out one that has its series; a place that became free is given away.
	now = append(groups(0, telemetry.MaxGroups-1), telemetry.GroupState{Group: "aaa", Peers: map[string]int{"healthy": 1}},
		telemetry.GroupState{Group: "bbb", Peers: map[string]int{"healthy": 1}})
	text = scrape(t, m)
	assert.Contains(t, text, `coordsvc_peers{group="g0098",status="healthy"} 1`)
	assert.Contains(t, text, `coordsvc_peers{group="aaa",status="healthy"} 1`)
	assert.Contains(t, text, `coordsvc_peers{group="other",status="healthy"} 1`)
	assert.NotContains(t, text, `group="bbb"`)
}

func TestAGroupNamedOtherSharesTheSeriesOfTheRest(t *testing.T) {
	m := newMetrics(t)
	m.ReadState(func() telemetry.State {
		return telemetry.State{Groups: []telemetry.GroupState{{Group: "other", Peers: map[string]int{"stale": 1}}}}
	})
	assert.Contains(t, scrape(t, m), `coordsvc_peers{group="other",status="stale"} 1`)
}

func TestLogsAreWrittenInTheChosenFormatAndLevel(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	logger, err := telemetry.NewLogger(&out, telemetry.LogFormatJSON, level)
	require.NoError(t, err)
	logger.Debug("hidden")
	level.Set(slog.LevelDebug)
	logger.Debug("shown", "peer", "w\n1")
	var record struct {
		Time       time.Time
		Level, Msg string
		Peer       string
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &record), "one record only: %s", out.String())
	assert.Equal(t, "shown", record.Msg)
	assert.Equal(t, "w\n1", record.Peer)
	_, offset := record.Time.Zone()
	assert.Zero(t, offset)

	out.Reset()
	logger, err = telemetry.NewLogger(&out, telemetry.LogFormatText, slog.LevelInfo)
	require.NoError(t, err)
	logger.Info("hello", "peer", "w1")
	assert.Contains(t, out.String(), "level=INFO msg=hello peer=w1")

	_, err = telemetry.NewLogger(&out, "xml", slog.LevelInfo)
	assert.ErrorContains(t, err, `log format "xml" is unknown, use "text" or "json"`)
}
