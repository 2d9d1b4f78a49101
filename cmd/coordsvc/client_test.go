package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what the fake service says to one request.
type answer struct {
	status int
	body   string
	header map[string]string
}

// fakeService answers in the order given, the last answer for ever, and remembers what it was asked.
type fakeService struct {
	*httptest.Server

	mu      sync.Mutex
	answers []answer
	asked   []string
	bodies  []map[string]any
}

func newFakeService(t *testing.T, answers ...answer) *fakeService {
	t.Helper()
	f := &fakeService{answers: answers}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked = append(f.asked, r.Method+" "+r.URL.String())
		var body map[string]any
		if len(text) > 0 {
			assert.NoError(t, json.Unmarshal(text, &body))
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		}
		f.bodies = append(f.bodies, body)
		a := f.answers[0]
		if len(f.answers) > 1 {
			f.answers = f.answers[1:]
		}
		for k, v := range a.header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(func() {
		f.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return f
}

func TestHeartbeatSendsEveryFieldThatWasGivenAndNoOther(t *testing.T) {
	s := newFakeService(t, answer{status: 200, body: `{"status":"healthy"}`})
	code, out, errOut := execute(t, []string{"COORDSVC_SERVER=" + s.URL + "/"}, "heartbeat", "--instance-id", "w 1")
	require.Equal(t, exitOK, code, errOut)
	assert.JSONEq(t, `{"status":"healthy"}`, out)
	code, out, errOut = execute(t, nil, "heartbeat", "--server", s.URL, "--quiet", "--instance-id", "w1", "--group", "g", "--incarnation", "i",
		"--subscription", "a,b", "--subscription", "c", "--in-flight-count", "0", "--is-leader", "--load-factor", "0.5",
		"--label", "k=v=w", "--timestamp", "2026-01-02T03:04:05Z")
	require.Equal(t, exitOK, code, errOut)
	assert.Empty(t, out)
	code, _, errOut = execute(t, nil, "heartbeat", "--server", s.URL, "--instance-id", "w1", "--no-subscriptions")
	require.Equal(t, exitOK, code, errOut)
	assert.Equal(t, []map[string]any{
		{"instance_id": "w 1"},
		{
			"instance_id": "w1", "group": "g", "incarnation": "i", "subscriptions": []any{"a,b", "c"}, "in_flight_count": 0.0,
			"is_leader": true, "load_factor": 0.5, "labels": map[string]any{"k": "v=w"}, "timestamp": "2026-01-02T03:04:05Z",
		},
		{"instance_id": "w1", "subscriptions": []any{}},
	}, s.bodies)
	assert.Equal(t, "POST /v1/heartbeats", s.asked[0])
}

func TestARefusalNamesTheFieldsAndHasItsExitCode(t *testing.T) {
	s := newFakeService(t, answer{status: 422, body: `{"title":"Invalid","detail":"one field","errors":[{"pointer":"/load_factor","detail":"must be finite"}]}`})
	code, _, errOut := execute(t, nil, "heartbeat", "--server", s.URL, "--instance-id", "w1")
	assert.Equal(t, exitRefused, code)
	assert.Equal(t, "the service answered 422: Invalid: one field\n  /load_factor: must be finite", errOut)
	assert.Len(t, s.asked, 1, "a refusal is not asked again")
}

func TestAServiceThatIsAwayForAMomentIsAskedAgain(t *testing.T) {
	s := newFakeService(t, answer{status: 503, body: "{}"}, answer{status: 502}, answer{status: 202, body: `{"status":"draining"}`})
	code, _, errOut := execute(t, nil, "shutdown", "--server", s.URL, "--instance-id", "w1")
	assert.Equal(t, exitOK, code, errOut)
	assert.Len(t, s.asked, 3)
}

func TestAServiceThatStaysAwayHasItsExitCode(t *testing.T) {
	s := newFakeService(t, answer{status: 503, body: "{}", header: map[string]string{"Retry-After": "30"}})
	code, _, errOut := execute(t, nil, "heartbeat", "--server", s.URL, "--instance-id", "w1", "--timeout", "100ms")
	assert.Equal(t, exitUnreachable, code, errOut)
	assert.Len(t, s.asked, 1, "Retry-After is respected")

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	code, _, errOut = execute(t, nil, "heartbeat", "--server", gone.URL, "--instance-id", "w1", "--retries", "1")
	assert.Equal(t, exitUnreachable, code)
	assert.Contains(t, errOut, "cannot reach "+gone.URL)
}

func TestShutdownSendsEveryField(t *testing.T) {
	s := newFakeService(t, answer{status: 202, body: `{}`})
	for _, args := range [][]string{
		{"--instance-id", "w1"},
		{
			"--instance-id", "w1", "--group", "g", "--incarnation", "i", "--intent", "preemption", "--drain-timeout", "1m30s",
			"--initiated-at", "2026-01-02T03:04:05Z", "--subscription", "a", "--in-flight-count", "7", "--metadata", `{"node":{"n":12345678901234567890}}`,
		},
		{"--instance-id", "w1", "--expected-completion-at", "2026-01-02T03:04:05Z"},
	} {
		code, _, errOut := execute(t, nil, append([]string{"shutdown", "--server", s.URL}, args...)...)
		require.Equal(t, exitOK, code, errOut)
	}
	assert.Equal(t, []map[string]any{
		{"instance_id": "w1", "intent": "graceful", "drain_timeout_seconds": 30.0},
		{
			"instance_id": "w1", "group": "g", "incarnation": "i", "intent": "preemption", "drain_timeout_seconds": 90.0,
			"initiated_at": "2026-01-02T03:04:05Z", "subscriptions": []any{"a"}, "in_flight_count": 7.0,
			"metadata": map[string]any{"node": map[string]any{"n": 12345678901234567890.0}},
		},
		{"instance_id": "w1", "intent": "graceful", "expected_completion_at": "2026-01-02T03:04:05Z"},
	}, s.bodies)
}

func TestShutdownWaitsUntilTheDrainHasEnded(t *testing.T) {
	accepted := answer{status: 202, body: `{"status":"draining","time_remaining_seconds":20}`}
	for name, c := range map[string]struct {
		answers []answer
		args    []string
		code    int
		text    string
	}{
		"finished early": {answers: []answer{
			accepted,
			{status: 200, body: `{"status":"draining"}`},
			{status: 503},
			{status: 200, body: `{"status":"terminated","overdue":true}`},
			{status: 200, body: `{"status":"terminated"}`},
		}},
		"forgotten": {answers: []answer{accepted, {status: 404, body: "{}"}}},
		"cancelled": {
			answers: []answer{accepted, {status: 200, body: `{"status":"healthy"}`}}, code: exitFailed,
			text: "the drain was ended by something else: the peer is healthy",
		},
		"too long": {
			answers: []answer{accepted, {status: 200, body: `{"status":"draining"}`}}, code: exitWaitEnded,
			args: []string{"--wait-timeout", "700ms"}, text: "w/1 is still draining after 700ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeService(t, c.answers...)
			args := append([]string{"shutdown", "--server", s.URL, "--instance-id", "w/1", "--group", "a&b", "--wait", "--quiet"}, c.args...)
			code, _, errOut := execute(t, nil, args...)
			assert.Equal(t, c.code, code, errOut)
			if c.text != "" {
				assert.Equal(t, c.text, errOut)
			}
			assert.Equal(t, "GET /v1/peers/w%2F1?group=a%26b", s.asked[1])
		})
	}
}

func TestHealthcheckAsksTheServiceBesideIt(t *testing.T) {
	s := newFakeService(t, answer{status: 200, body: `{"ready":true}`}, answer{status: 200, body: `{}`}, answer{status: 503, body: `{}`})
	listen := "COORDSVC_LISTEN=" + s.Listener.Addr().String()
	code, _, errOut := execute(t, []string{listen}, "healthcheck")
	assert.Equal(t, exitOK, code, errOut)
	code, _, errOut = execute(t, nil, "healthcheck", "--url", s.URL, "--ready", "--quiet")
	assert.Equal(t, exitOK, code, errOut)
	code, _, _ = execute(t, []string{listen}, "healthcheck", "--ready")
	assert.Equal(t, exitUnreachable, code)
	assert.Equal(t, []string{"GET /livez", "GET /readyz", "GET /readyz"}, s.asked)

	assert.Equal(t, "http://127.0.0.1:8080", fromListen(":8080"))
	assert.Equal(t, "http://127.0.0.1:8080", fromListen("[::]:8080"))
	assert.Equal(t, "http://10.0.0.1:8080", fromListen("10.0.0.1:8080"))
	assert.Empty(t, fromListen(""))
}
