//go:build e2e

package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// patience is how long the page may take to show what has happened.
	patience = 15 * time.Second
	// timeout is the heartbeat timeout of the services here.
	timeout = 2 * time.Second
)

// What TestMain prepares for all tests.
var (
	binary  string
	browser context.Context // chromedp's handle of the one browser
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "coordsvc-browser")
	if err != nil {
		return giveUp(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	binary = filepath.Join(dir, "coordsvc")
	build := exec.Command("go", "build", "-o", binary, "github.com/coordsvc/coordsvc/cmd/coordsvc") //nolint:noctx // ends with the tests
	if out, err := build.CombinedOutput(); err != nil {
		return giveUp(fmt.Errorf("build the service: %w\n%s", err, out))
	}
	chromium, err := findChromium()
	if err != nil {
		return giveUp(err)
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(chromium), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true))
	defer stopAllocator()
	handle, stop := chromedp.NewContext(allocator)
	defer stop()
	if err := chromedp.Do(handle); err != nil {
		return giveUp(fmt.Errorf("start %s: %w", chromium, err))
	}
	browser = handle //nolint:fatcontext // nested once, not in a loop
	return m.Run()
}

func giveUp(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func findChromium() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium in PATH: run scripts/install-test-deps")
}

// coordsvc is one running service.
type coordsvc struct {
	t       *testing.T
	address string
	dataDir string
	process *exec.Cmd
	log     *bytes.Buffer
}

func startService(t *testing.T) *coordsvc {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a free port
	require.NoError(t, err)
	s := &coordsvc{t: t, address: l.Addr().String(), dataDir: t.TempDir()}
	require.NoError(t, l.Close())
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *coordsvc) start() {
	s.t.Helper()
	s.log = &bytes.Buffer{}
	s.process = exec.Command(binary, "serve", "--listen", s.address, "--data-dir", s.dataDir, "--identity", "replica-a", //nolint:noctx // stopped by signal
		"--heartbeat-timeout", timeout.String())
	s.process.Stdout, s.process.Stderr = s.log, s.log
	require.NoError(s.t, s.process.Start())
	require.Eventually(s.t, func() bool {
		w, err := http.Get(s.url("/readyz")) //nolint:noctx // bounded by Eventually
		if err != nil {
			return false
		}
		return w.Body.Close() == nil && w.StatusCode == http.StatusOK
	}, 10*time.Second, 20*time.Millisecond, "the service is not ready")
}

func (s *coordsvc) stop() {
	if s.process == nil {
		return
	}
	assert.NoError(s.t, s.process.Process.Signal(syscall.SIGTERM))
	assert.NoError(s.t, s.process.Wait(), "%s", s.log)
	s.process = nil
}

func (s *coordsvc) url(path string) string { return "http://" + s.address + path }

func (s *coordsvc) post(path string, body map[string]any) {
	s.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(s.t, err)
	w, err := http.Post(s.url(path), "application/json", bytes.NewReader(raw)) //nolint:noctx // a test's own service
	require.NoError(s.t, err)
	defer w.Body.Close()
	require.Less(s.t, w.StatusCode, 300, "POST %s", path)
}

func (s *coordsvc) delete(path string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodDelete, s.url(path), http.NoBody)
	require.NoError(s.t, err)
	w, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer w.Body.Close()
	require.Less(s.t, w.StatusCode, 300, "DELETE %s", path)
}

func (s *coordsvc) beat(id string, more map[string]any) {
	s.t.Helper()
	body := map[string]any{"instance_id": id}
	maps.Copy(body, more)
	s.post("/v1/heartbeats", body)
}

// keepAlive beats until the test ends or the returned function is called.
func (s *coordsvc) keepAlive(id string, more map[string]any) (stop func()) {
	s.t.Helper()
	return s.keepAllAlive([]string{id}, more)
}

func (s *coordsvc) keepAllAlive(ids []string, more map[string]any) (stop func()) {
	s.t.Helper()
	beats := make([]map[string]any, len(ids))
	for i, id := range ids {
		beats[i] = map[string]any{"instance_id": id}
		maps.Copy(beats[i], more)
	}
	all := map[string]any{"heartbeats": beats}
	s.post("/v1/heartbeats/batch", all)
	raw, err := json.Marshal(all)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(timeout / 5)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				// The service may be between two lives; the next beat finds it.
				if w, err := http.Post(s.url("/v1/heartbeats/batch"), "application/json", bytes.NewReader(raw)); err == nil { //nolint:noctx // short
					_ = w.Body.Close()
				}
			}
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	s.t.Cleanup(stop)
	return stop
}

// tab is one tab in a browser context of its own.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp's handle of the tab

	mu       sync.Mutex
	messages []string
	// outage allows what the browser itself reports while the service is away.
	outage bool
}

func openTab(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Do(ctx))
	console := chromedp.Console(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m, err := range console {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() {
				b.mu.Lock()
				b.messages = append(b.messages, m.Source+" "+m.String()+" "+m.URL)
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		b.noErrors()
		cancel()
		<-done
	})
	b.size(1280, 900)
	return b
}

// noErrors fails on what the page wrote to its console; a violated Content-Security-Policy stands there too.
func (b *tab) noErrors() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		if b.outage && (strings.Contains(m, "net::ERR_") || strings.Contains(m, "error: htmx:") || strings.Contains(m, "503")) {
			continue
		}
		assert.Fail(b.t, "the page complained", m)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

func (b *tab) open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// eval is the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return v
}

// until waits for an expression to hold. A link may lead to another document meanwhile, so a failed look is no failure.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	look := chromedp.Evaluate[bool]("!!(" + expression + ")")
	for {
		held, err := chromedp.Run(ctx, look)
		if err == nil && held {
			return
		}
		select {
		case <-ctx.Done():
			require.Fail(b.t, "it never came to hold", "%s\nlast error: %v\nthe page says:\n%s", expression, err, eval[string](b, "document.body.innerText"))
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// row is the expression of a peer's row.
func row(id string) string {
	return `[...document.querySelectorAll("table.peers tbody tr")].find(r => r.querySelector(".who bdi").textContent === ` + quoted(id) + `)`
}

// status is the expression of a peer's status in words.
func status(id string) string { return row(id) + `?.querySelector(".badge").textContent.trim()` }

func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(raw)
}
