//go:build integration

package consulstore

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/coordsvc/coordsvc/internal/conformance"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/test/engine"
)

// clientOf is a client with connections of its own, closed at the end of the test.
func clientOf(t testing.TB, addr, token string) *api.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := api.NewClient(&api.Config{Address: addr, Token: token, HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var sharedConsul = sync.OnceValues(func() (*engine.Consul, error) {
	c, stop, err := engine.RunConsul(1)
	if err == nil {
		atEnd = append(atEnd, stop)
	}
	return c, err
})

// shared is the single node that tests share, each under a root of its own.
func shared(t testing.TB) *engine.Consul {
	t.Helper()
	c, err := sharedConsul()
	if err != nil {
		t.Fatal(err)
	}
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
		options.Client = clientOf(t, shared(t).Addr(1), "")
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
		client := clientOf(t, shared(t).Addr(1), "")
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
