//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// binary is the service, built once for all tests.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "coordsvc-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	binary = filepath.Join(dir, "coordsvc")
	build := exec.Command("go", "build", "-o", binary, "github.com/coordsvc/coordsvc/cmd/coordsvc") //nolint:noctx // ends with the tests
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the service: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// command runs the binary with an environment of its own: settings of the one who runs the tests must not reach it.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
	return cmd
}

// service is one run of `coordsvc serve`.
type service struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	client *http.Client

	mu  sync.Mutex
	log bytes.Buffer
	// exited is closed when the process is gone and its log is read to the end; code is valid then.
	exited chan struct{}
	code   int
}

// serve starts the service on a free port with short timeouts, and waits until it answers.
func serve(t *testing.T, dir string, args ...string) *service {
	t.Helper()
	s, err := tryServe(t, dir, args...)
	require.NoError(t, err)
	return s
}

// tryServe answers an error when the process ends instead of serving.
func tryServe(t *testing.T, dir string, args ...string) (*service, error) {
	t.Helper()
	s := &service{t: t, exited: make(chan struct{}), client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--log-format", "json", "--heartbeat-timeout", "2s"}, args...)
	s.cmd = command(context.WithoutCancel(t.Context()), args...)
	pipe, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	up := make(chan string, 1)
	go s.follow(pipe, up)
	t.Cleanup(func() {
		s.kill()
		s.client.CloseIdleConnections()
	})
	select {
	case address := <-up:
		s.url = "http://" + address
		return s, nil
	case <-s.exited:
		return s, fmt.Errorf("exit code %d: %s", s.code, s.logged())
	}
}

// follow reads the log until the process ends.
func (s *service) follow(pipe io.Reader, up chan<- string) {
	defer close(s.exited)
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var record struct{ Msg, Listen string }
		if json.Unmarshal(lines.Bytes(), &record) == nil && record.Msg == "coordsvc is up" {
			up <- record.Listen
		}
		s.mu.Lock()
		s.log.Write(lines.Bytes())
		s.log.WriteByte('\n')
		s.mu.Unlock()
	}
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		s.code = exit.ExitCode()
	}
}

func (s *service) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// kill ends the process at once; harmless when it is gone.
func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

func (s *service) signal(sig syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(sig))
}

// terminate stops the service in order and answers its exit code and how long it took.
func (s *service) terminate() (code int, took time.Duration) {
	s.t.Helper()
	began := time.Now()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(15 * time.Second):
		require.Fail(s.t, "still running 15 s after SIGTERM", s.logged())
	}
	return s.code, time.Since(began)
}

type object = map[string]any

// try makes one call; status 0 is no answer.
func (s *service) try(method, path string, body any) (status int, answer object, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	if len(content) > 0 {
		if err := json.Unmarshal(content, &answer); err != nil {
			return 0, nil, fmt.Errorf("%s %s: %w: %s", method, path, err, content)
		}
	}
	return resp.StatusCode, answer, nil
}

// call makes one call that must have the status.
func (s *service) call(want int, method, path string, body any) object {
	s.t.Helper()
	status, answer, err := s.try(method, path, body)
	require.NoError(s.t, err)
	require.Equal(s.t, want, status, "%s %s: %v", method, path, answer)
	return answer
}

func (s *service) get(path string) object {
	s.t.Helper()
	return s.call(http.StatusOK, http.MethodGet, path, nil)
}

func (s *service) status(id string) string {
	s.t.Helper()
	status, ok := s.get("/v1/peers/" + url.PathEscape(id))["status"].(string)
	require.True(s.t, ok)
	return status
}

// events are the journal's events of the types, oldest first.
func (s *service) events(types ...string) []object {
	s.t.Helper()
	query := url.Values{"order": {"oldest"}, "limit": {"1000"}, "type": types}
	return items(s.t, s.get("/v1/events?"+query.Encode()))
}

func items(t *testing.T, list object) []object {
	t.Helper()
	raw, ok := list["items"].([]any)
	require.True(t, ok, "%v", list)
	all := make([]object, len(raw))
	for i, item := range raw {
		all[i], ok = item.(object)
		require.True(t, ok)
	}
	return all
}

// about keeps the events about one peer.
func about(events []object, id string) []object {
	var kept []object
	for _, e := range events {
		if data, ok := e["data"].(object); ok && data["instance_id"] == id {
			kept = append(kept, e)
		}
	}
	return kept
}

// eventually polls from outside what a process does in its own time.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, within, 20*time.Millisecond, what)
}

// beat sends one heartbeat.
func (s *service) beat(id string, fields object) object {
	s.t.Helper()
	return s.call(http.StatusOK, http.MethodPost, "/v1/heartbeats", with(object{"instance_id": id}, fields))
}

func with(base, more object) object {
	for k, v := range more {
		base[k] = v
	}
	return base
}

// keepBeating sends heartbeats until the answer is called; what cannot be sent is sent again. fields makes each one's fields.
func (s *service) keepBeating(id string, fields func() object) (stop func()) {
	s.t.Helper()
	s.beat(id, fields())
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				status, answer, err := s.try(http.MethodPost, "/v1/heartbeats", with(object{"instance_id": id}, fields()))
				if err == nil {
					assert.Equal(s.t, http.StatusOK, status, "heartbeat of %s: %v", id, answer)
				}
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(ended)
		<-done
	})
	s.t.Cleanup(stop)
	return stop
}

func always(fields object) func() object { return func() object { return fields } }

// stream is an open event stream.
type stream struct {
	lines chan string
	ended chan struct{}
}

// openStream follows events until the service ends the stream or the test does.
func (s *service) openStream(path string) *stream {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, http.NoBody)
	require.NoError(s.t, err)
	req.Header.Set("Accept", "text/event-stream")
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Do(req) //nolint:bodyclose // closed by the goroutine below
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, resp.StatusCode)
	st := &stream{lines: make(chan string, 10_000), ended: make(chan struct{})}
	go func() {
		defer close(st.ended)
		defer client.CloseIdleConnections()
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			st.lines <- lines.Text()
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-st.ended
	})
	return st
}

// awaitEvent waits for an event of the type and answers its data line.
func (st *stream) awaitEvent(t *testing.T, eventType string) string {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case line := <-st.lines:
			if line == "event: "+eventType {
				return strings.TrimPrefix(<-st.lines, "data: ")
			}
		case <-st.ended:
			require.Fail(t, "the stream ended before "+eventType)
		case <-deadline:
			require.Fail(t, "no "+eventType+" came")
		}
	}
}
