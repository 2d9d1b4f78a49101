package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/coordsvc/coordsvc/internal/app"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instance is a service under test.
type instance struct {
	t      *testing.T
	url    string
	client *http.Client
	log    *lockedBuffer
	stop   context.CancelFunc
	result chan error
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func options(t *testing.T) app.Options {
	t.Helper()
	o := app.Defaults()
	o.Listen, o.DataDir = "127.0.0.1:0", t.TempDir()
	return o
}

func start(t *testing.T, o app.Options) *instance {
	t.Helper()
	s := &instance{t: t, client: &http.Client{Timeout: 10 * time.Second}, log: &lockedBuffer{}, result: make(chan error, 1)}
	o.LogOutput = s.log
	listening := make(chan net.Addr, 1)
	o.OnListening = func(a net.Addr) { listening <- a }
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.stop = cancel
	go func() { s.result <- app.Run(ctx, o) }()
	select {
	case a := <-listening:
		s.url = "http://" + a.String()
	case err := <-s.result:
		cancel()
		require.NoError(t, err, "the service did not start")
	}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		cancel()
	})
	return s
}

// end stops the service as a signal would.
func (s *instance) end() {
	s.t.Helper()
	s.stop()
	select {
	case err := <-s.result:
		require.NoError(s.t, err)
	case <-time.After(10 * time.Second):
		require.Fail(s.t, "the service did not stop within ten seconds", s.log.String())
	}
}

func (s *instance) call(method, path string, body any) (status int, answer map[string]any) {
	s.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(s.t, err)
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(text))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	if len(content) > 0 {
		require.NoError(s.t, json.Unmarshal(content, &answer), "%s", content)
	}
	return resp.StatusCode, answer
}

func (s *instance) text(path string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, http.NoBody)
	require.NoError(s.t, err)
	resp, err := s.client.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, resp.StatusCode, "%s: %s", path, content)
	return string(content)
}

func TestTheFirstHeartbeatIsAnsweredWithinTwoSecondsOfTheStart(t *testing.T) {
	began := time.Now()
	s := start(t, options(t))
	status, answer := s.call(http.MethodPost, "/v1/heartbeats", map[string]any{"instance_id": "w1", "subscriptions": []string{"a"}})
	took := time.Since(began)
	require.Equal(t, http.StatusOK, status)
	assert.Equal(t, "healthy", answer["status"])
	assert.InDelta(t, 15, answer["heartbeat_timeout_seconds"], 0)
	assert.Less(t, took, 2*time.Second)
	assert.Contains(t, s.text("/readyz"), `"ready":true`)
	assert.Contains(t, s.text("/"), "w1")
	assert.Contains(t, s.text("/openapi.yaml"), "openapi: 3.0.3")
	assert.Contains(t, s.log.String(), "curl "+s.url+"/v1/summary")
	s.end()
}

func TestMetricsShowWhatTheServiceDoes(t *testing.T) {
	o := options(t)
	o.Build = app.Build{Version: "v9"}
	s := start(t, o)
	s.call(http.MethodPost, "/v1/heartbeats", map[string]any{"instance_id": "w1", "group": "orders"})
	s.call(http.MethodPost, "/v1/shutdowns", map[string]any{"instance_id": "w1", "group": "orders", "intent": "graceful"})
	s.call(http.MethodGet, "/no/such/path", nil)
	text := s.text("/metrics")
	for _, want := range []string{
		`coordsvc_build_info{go_version="",revision="",version="v9"} 1`,
		`coordsvc_heartbeats_total{entrance="http",outcome="accepted"} 1`,
		`coordsvc_shutdowns_total{outcome="accepted"} 1`,
		`coordsvc_peers{group="orders",status="draining"} 1`,
		`coordsvc_leader 1`,
		`coordsvc_epoch 1`,
		`coordsvc_part_ready{part="store"} 1`,
		`coordsvc_webhook_queue_depth 0`,
		`http_server_request_duration_seconds_count{http_route="/v1/heartbeats",method="POST",status="200"} 1`,
		`http_server_request_duration_seconds_count{http_route="/v1/shutdowns",method="POST",status="202"} 1`,
	} {
		assert.Contains(t, text, "\n"+want+"\n")
	}
	assert.NotContains(t, text, "w1")
	assert.NotContains(t, text, "/no/such/path")
	s.end()
}

func TestGroupsHaveTheirOwnTimeout(t *testing.T) {
	o := options(t)
	o.Groups = map[string]app.GroupOptions{"fast": {HeartbeatTimeout: time.Second}, "shared": {SharedSubscriptions: true}}
	s := start(t, o)
	_, fast := s.call(http.MethodPost, "/v1/heartbeats", map[string]any{"instance_id": "w1", "group": "fast"})
	_, shared := s.call(http.MethodPost, "/v1/heartbeats", map[string]any{"instance_id": "w1", "group": "shared"})
	assert.InDelta(t, 1, fast["heartbeat_timeout_seconds"], 0)
	assert.InDelta(t, 15, shared["heartbeat_timeout_seconds"], 0)
	_, summary := s.call(http.MethodGet, "/v1/summary", nil)
	groups, ok := summary["groups"].([]any)
	require.True(t, ok)
	assert.Contains(t, fmt.Sprint(groups...), "group:shared heartbeat_timeout_seconds:15 mass_staleness_until:<nil> open_orphans:0")
	assert.Contains(t, fmt.Sprint(groups...), "shared_subscriptions:true")
	s.end()
}

func TestLimitsReachTheParts(t *testing.T) {
	o := options(t)
	o.Limits.Body, o.Limits.Subscriptions, o.Limits.Labels, o.Limits.Metadata = 1024, 2, 1, 20
	o.Limits.Peers, o.Limits.SSEClients, o.MaxDrain = 1, 1, time.Minute
	s := start(t, o)
	heartbeat := func(id string, extra map[string]any) int {
		body := map[string]any{"instance_id": id}
		for k, v := range extra {
			body[k] = v
		}
		status, _ := s.call(http.MethodPost, "/v1/heartbeats", body)
		return status
	}
	shutdown := func(extra map[string]any) int {
		body := map[string]any{"instance_id": "w1", "intent": "graceful"}
		for k, v := range extra {
			body[k] = v
		}
		status, _ := s.call(http.MethodPost, "/v1/shutdowns", body)
		return status
	}
	assert.Equal(t, http.StatusOK, heartbeat("w1", nil))
	assert.Equal(t, http.StatusTooManyRequests, heartbeat("w2", nil))
	assert.Equal(t, http.StatusUnprocessableEntity, heartbeat("w1", map[string]any{"subscriptions": []string{"a", "b", "c"}}))
	assert.Equal(t, http.StatusUnprocessableEntity, heartbeat("w1", map[string]any{"labels": map[string]string{"a": "1", "b": "2"}}))
	assert.Equal(t, http.StatusRequestEntityTooLarge, heartbeat("w1", map[string]any{"ignored": strings.Repeat("x", 1024)}))
	assert.Equal(t, http.StatusUnprocessableEntity, shutdown(map[string]any{"metadata": map[string]string{"key": strings.Repeat("x", 20)}}))
	assert.Equal(t, http.StatusUnprocessableEntity, shutdown(map[string]any{"drain_timeout_seconds": 61}))
	assert.Equal(t, http.StatusAccepted, shutdown(map[string]any{"drain_timeout_seconds": 60}))
	s.openStream("/v1/events")
	status, _ := s.call(http.MethodGet, "/v1/events?last_event_id=0-0", nil)
	assert.Equal(t, http.StatusOK, status, "pages are no streams")
	assert.Equal(t, http.StatusTooManyRequests, s.statusOfStream("/v1/events"))
	text := s.text("/metrics")
	assert.Contains(t, text, `coordsvc_dropped_total{reason="body_too_large"} 1`)
	assert.Contains(t, text, `coordsvc_dropped_total{reason="stream_limit"} 1`)
	assert.Contains(t, text, `coordsvc_dropped_total{reason="stream_too_slow"} 0`)
	s.end()
}

func TestABasePathIsServedBehindAProxy(t *testing.T) {
	o := options(t)
	o.BasePath = "/coordination"
	o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s := start(t, o)
	status, _ := s.call(http.MethodPost, "/coordination/v1/heartbeats", map[string]any{"instance_id": "w1"})
	assert.Equal(t, http.StatusOK, status)
	status, _ = s.call(http.MethodPost, "/v1/heartbeats", map[string]any{"instance_id": "w2"})
	assert.Equal(t, http.StatusOK, status, "an ingress may have cut the prefix")
	for _, path := range []string{"/livez", "/readyz", "/coordination/readyz", "/metrics"} {
		assert.NotEmpty(t, s.text(path))
	}
	status, _ = s.call(http.MethodGet, "/coordinationx/v1/peers", nil)
	assert.Equal(t, http.StatusNotFound, status)
	assert.Contains(t, s.text("/coordination/"), `href="/coordination/`)
	s.end()
}

func TestWhatWasSaidLastsOverARestart(t *testing.T) {
	o := options(t)
	s := start(t, o)
	s.call(http.MethodPost, "/v1/heartbeats", map[string]any{"instance_id": "w1", "subscriptions": []string{"a"}})
	status, _ := s.call(http.MethodPost, "/v1/shutdowns", map[string]any{"instance_id": "w1", "intent": "preemption", "drain_timeout_seconds": 600})
	require.Equal(t, http.StatusAccepted, status)
	s.call(http.MethodPost, "/v1/heartbeats", map[string]any{"instance_id": "w2"})
	s.end()

	s = start(t, o)
	_, peer := s.call(http.MethodGet, "/v1/peers/w1", nil)
	assert.Equal(t, "draining", peer["status"])
	_, peer = s.call(http.MethodGet, "/v1/peers/w2", nil)
	assert.Equal(t, "unknown", peer["status"])
	_, leader := s.call(http.MethodGet, "/v1/leader", nil)
	assert.Positive(t, leader["epoch"])
	s.end()
}

func TestASecondOneOnTheSameDirectoryOrPortIsRefused(t *testing.T) {
	o := options(t)
	s := start(t, o)
	err := app.Run(t.Context(), func() app.Options {
		second := o
		second.LogOutput = io.Discard
		return second
	}())
	assert.ErrorContains(t, err, "is open in another process; stop that one")

	second := options(t)
	second.Listen, second.LogOutput = strings.TrimPrefix(s.url, "http://"), io.Discard
	assert.ErrorContains(t, app.Run(t.Context(), second), "address already in use")
	s.end()
}

func TestAStopBeforeTheStartIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := options(t)
	o.LogOutput = io.Discard
	assert.NoError(t, app.Run(ctx, o))
}

func TestBadOptionsStopTheStart(t *testing.T) {
	o := options(t)
	o.HeartbeatTimeout = 0
	var invalid *app.InvalidOptionsError
	require.ErrorAs(t, app.Run(t.Context(), o), &invalid)
	assert.Equal(t, "heartbeat-timeout", invalid.Faults[0].Setting)
}

// statusOfStream asks for a stream and answers only the status.
func (s *instance) statusOfStream(path string) int {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, http.NoBody)
	require.NoError(s.t, err)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := s.client.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// openStream opens an event stream and answers once it has its first bytes; ended is closed when the service ends it.
func (s *instance) openStream(path string) (ended chan struct{}) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, http.NoBody)
	require.NoError(s.t, err)
	req.Header.Set("Accept", "text/event-stream")
	client := &http.Client{}
	resp, err := client.Do(req) //nolint:bodyclose // closed by the goroutine below
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, resp.StatusCode)
	require.Contains(s.t, resp.Header.Get("Content-Type"), "text/event-stream")
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		client.CloseIdleConnections()
	}()
	return ended
}

func TestStoppingEndsStreamsAndHangingWebhooksInTime(t *testing.T) {
	called, release := make(chan struct{}, 8), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer receiver.Close()
	defer close(release)

	s := start(t, options(t))
	status, _ := s.call(http.MethodPost, "/v1/webhooks", map[string]any{"url": receiver.URL, "event_types": []string{"*"}})
	require.Equal(t, http.StatusCreated, status)
	s.call(http.MethodPost, "/v1/heartbeats", map[string]any{"instance_id": "w1", "subscriptions": []string{"a"}})
	<-called
	events, live := s.openStream("/v1/events"), s.openStream("/live")
	began := time.Now()
	s.end()
	took := time.Since(began)
	<-events
	<-live
	assert.Less(t, took, 4*time.Second, s.log.String())
	assert.GreaterOrEqual(t, took, 400*time.Millisecond, "a running attempt gets its grace")
}
