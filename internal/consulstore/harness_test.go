//go:build integration

package consulstore

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/coordsvc/coordsvc/internal/conformance"
	"github.com/coordsvc/coordsvc/internal/service"
)

// cluster is a private Consul.
type cluster struct {
	dir   string
	nodes int
	addrs []string
	token string
}

// startCluster starts one. The caller calls down.
func startCluster(nodes int) (*cluster, error) {
	dir, err := os.MkdirTemp("", "consulstore-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, nodes: nodes}
	if err := c.script("scripts/services", "up", "--nodes", strconv.Itoa(nodes), "consul"); err != nil {
		c.down()
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(dir, "consul", "token"))
	if err != nil {
		c.down()
		return nil, err
	}
	c.token = strings.TrimSpace(string(token))
	for n := 1; n <= nodes; n++ {
		ports, err := os.ReadFile(filepath.Join(dir, "consul", strconv.Itoa(n), "ports"))
		if err != nil {
			c.down()
			return nil, err
		}
		_, rest, _ := strings.Cut(string(ports), "http=")
		port, _, _ := strings.Cut(rest, "\n")
		c.addrs = append(c.addrs, "127.0.0.1:"+port)
	}
	return c, nil
}

func (c *cluster) down() {
	for n := 1; n <= c.nodes; n++ {
		_ = c.signal(n, syscall.SIGCONT)
	}
	_ = c.script("scripts/services", "down", "consul")
	_ = os.RemoveAll(c.dir)
}

func (c *cluster) script(name string, args ...string) error {
	cmd := exec.Command(filepath.Join("..", "..", name), args...)
	cmd.Env = append(os.Environ(), "SERVICES_DIR="+c.dir, "NODES="+strconv.Itoa(c.nodes))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}

func (c *cluster) kill(t *testing.T, n int) {
	t.Helper()
	if err := c.script("scripts/services.d/consul", "kill", strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) signal(n int, sig syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join(c.dir, "consul", strconv.Itoa(n), "pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, sig)
}

// pause makes node n a black hole: the system takes connections, nobody answers.
func (c *cluster) pause(t *testing.T, n int) (resume func()) {
	t.Helper()
	if err := c.signal(n, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = sync.OnceFunc(func() { _ = c.signal(n, syscall.SIGCONT) })
	t.Cleanup(resume)
	return resume
}

// client is a client of node n with connections of its own, closed at the end of the test.
func (c *cluster) client(t testing.TB, n int, token string) *api.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := api.NewClient(&api.Config{Address: c.addrs[n-1], Token: token, HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var sharedCluster = sync.OnceValues(func() (*cluster, error) {
	c, err := startCluster(1)
	if err == nil {
		atEnd = append(atEnd, c.down)
	}
	return c, err
})

// shared is the single node that tests share, each under a root of its own.
func shared(t testing.TB) *cluster {
	t.Helper()
	c, err := sharedCluster()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func private(t testing.TB, nodes int) *cluster {
	t.Helper()
	c, err := startCluster(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.down)
	return c
}

// rootOf is a root that no other test uses.
func rootOf(t testing.TB) string {
	return fmt.Sprintf("test/%x/%d/store/", t.Name(), time.Now().UnixNano())
}

func leaderKeyOf(root string) string { return strings.TrimSuffix(root, "store/") + "leader" }

func open(t testing.TB, options Options) *Store {
	t.Helper()
	if options.LeaderKey == "" {
		options.LeaderKey = leaderKeyOf(options.Root)
	}
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a store until the test, or the returned function, ends it.
func run(t testing.TB, s *Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); ctx.Err() == nil {
			t.Errorf("Run ended by itself: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// start opens and runs a store on the shared node.
func start(t testing.TB, options Options) *Store {
	t.Helper()
	if options.Client == nil {
		options.Client = shared(t).client(t, 1, "")
	}
	if options.Root == "" {
		options.Root = rootOf(t)
	}
	s := open(t, options)
	run(t, s)
	return s
}

// lead makes a new session hold the leader key.
func lead(t testing.TB, client *api.Client, key string) service.Fence {
	t.Helper()
	session, _, err := client.Session().Create(&api.SessionEntry{TTL: "60s", LockDelay: time.Millisecond}, nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the session holds the leader key", func() bool {
		held, _, err := client.KV().Acquire(&api.KVPair{Key: key, Value: []byte("x"), Session: session}, nil)
		return err == nil && held
	})
	t.Cleanup(func() { _, _ = client.Session().Destroy(session, nil) })
	return service.Fence{Session: session, Epoch: uint64(time.Now().UnixNano())}
}

func eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-ticker.C
	}
}

func TestStoreConformance(t *testing.T) {
	conformance.Store(t, func(t *testing.T) conformance.StoreBackend {
		client := shared(t).client(t, 1, "")
		options := Options{Client: client, Root: rootOf(t)}
		s := open(t, options)
		stop := run(t, s)
		var term service.Fence
		endTerm := func(t *testing.T) {
			t.Helper()
			if term.Session != "" {
				if _, err := client.Session().Destroy(term.Session, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		return conformance.StoreBackend{
			Store: s,
			Reopen: func(t *testing.T) service.Store {
				t.Helper()
				stop()
				return start(t, options)
			},
			NewTerm: func(t *testing.T) service.Fence {
				t.Helper()
				endTerm(t)
				term = lead(t, client, leaderKeyOf(options.Root))
				return term
			},
			EndTerm: endTerm,
		}
	})
}
