//go:build integration

package consulstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/coordsvc/coordsvc/internal/service"
)

func put(key, value string) service.Txn {
	return service.Txn{Puts: []service.Put{{Key: key, Value: []byte(value)}}}
}

func mustCommit(t testing.TB, s *Store, txn service.Txn) uint64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func wantError(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestALostTermWinsOverALostRace(t *testing.T) {
	client := clientOf(t, shared(t).Addr(1), "")
	s := start(t, Options{Client: client})
	mustCommit(t, s, put("a", "1"))
	held := lead(t, client, s.options.LeaderKey)
	late := service.Txn{
		Fence: &service.Fence{Session: "gone"}, Checks: []service.Check{{Key: "a", Revision: 1}},
		Puts: []service.Put{{Key: "b"}},
	}
	_, err := s.Commit(t.Context(), late)
	if !errors.Is(err, service.ErrFenced) || errors.Is(err, service.ErrConflict) {
		t.Errorf("both fail: got %v, want ErrFenced", err)
	}
	late.Fence = &held
	_, err = s.Commit(t.Context(), late)
	if !errors.Is(err, service.ErrConflict) || errors.Is(err, service.ErrFenced) {
		t.Errorf("only the check fails: got %v, want ErrConflict", err)
	}
}

func TestTheLastWordOnAKeyCounts(t *testing.T) {
	s := start(t, Options{})
	mustCommit(t, s, service.Txn{
		Puts:    []service.Put{{Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte("2")}, {Key: "gone"}},
		Deletes: []string{"gone"},
	})
	if r, err := s.Get(t.Context(), "twice"); err != nil || string(r.Value) != "2" {
		t.Errorf("got %q, %v", r.Value, err)
	}
	_, err := s.Get(t.Context(), "gone")
	wantError(t, err, service.ErrNoRecord)
	_, err = s.Commit(t.Context(), service.Txn{Checks: []service.Check{{Key: "twice", Revision: 1}, {Key: "twice", Revision: 2}}})
	wantError(t, err, service.ErrConflict)
}

// The largest transaction there is: as many keys as allowed, each of the longest kind, each checked, with values that go
// to parts, under a fence.
func TestTheLargestTransactionFitsIntoARequest(t *testing.T) {
	client := clientOf(t, shared(t).Addr(1), "")
	s := start(t, Options{Client: client})
	fence := lead(t, client, s.options.LeaderKey)
	txn := service.Txn{Fence: &fence}
	for i := range s.MaxOperations() {
		key := fmt.Sprintf("%s/%03d", strings.Repeat("ü/", 250), i)
		txn.Checks = append(txn.Checks, service.Check{Key: key})
		txn.Puts = append(txn.Puts, service.Put{Key: key, Value: bytes.Repeat([]byte{byte(i)}, 100<<10)})
	}
	revision := mustCommit(t, s, txn)
	records, _, err := s.List(t.Context(), "")
	if err != nil || len(records) != len(txn.Puts) {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, r := range records {
		if r.Key != txn.Puts[i].Key || r.Revision != revision || !bytes.Equal(r.Value, txn.Puts[i].Value) {
			t.Fatalf("record %d is wrong: %d bytes at %d", i, len(r.Value), r.Revision)
		}
	}
}

// Whatever the sizes, what Consul gets in one request stays under its limit.
func TestEverySizeOfValueIsTaken(t *testing.T) {
	s := start(t, Options{})
	for _, size := range []int{0, 1, 100 << 10, 186 << 10, 188 << 10, 190 << 10, partSize - 1, partSize, partSize + 1, 3*partSize + 7} {
		value := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
		txn := service.Txn{Puts: []service.Put{{Key: "v", Value: value}, {Key: "w", Value: value[:size/2]}}}
		if _, err := s.Commit(t.Context(), txn); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		for _, want := range txn.Puts {
			if r, err := s.Get(t.Context(), want.Key); err != nil || !bytes.Equal(r.Value, want.Value) {
				t.Fatalf("%d bytes came back as %d (%v)", len(want.Value), len(r.Value), err)
			}
		}
	}
	_, err := s.Commit(t.Context(), service.Txn{Puts: []service.Put{{Key: "v", Value: make([]byte, maxValues+1)}}})
	wantError(t, err, service.ErrTooLarge)
}

// overwrite changes stored bytes behind the store's back.
func overwrite(t *testing.T, s *Store, key string, change func([]byte) []byte) {
	t.Helper()
	pair, _, err := s.options.Client.KV().Get(s.options.Root+key, nil)
	if err != nil || pair == nil {
		t.Fatalf("%s: %v, %v", key, pair, err)
	}
	pair.Value = change(pair.Value)
	if _, err := s.options.Client.KV().Put(pair, nil); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedValueIsNeverServed(t *testing.T) {
	s := start(t, Options{})
	for what, change := range map[string]func([]byte) []byte{
		"a flipped bit":   func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"a cut-off value": func(b []byte) []byte { return b[:len(b)-1] },
		"nothing":         func([]byte) []byte { return nil },
		"another format":  func(b []byte) []byte { b[0] = 9; return b },
		"another's value": func([]byte) []byte { return seal(dataKey("b"), kindValue, "12345678", []byte("x")) },
	} {
		mustCommit(t, s, put("a", "value"))
		overwrite(t, s, dataKey("a"), change)
		_, err := s.Get(t.Context(), "a")
		if !errors.Is(err, service.ErrCorrupt) {
			t.Errorf("%s: get: %v", what, err)
		}
		if _, _, err := s.List(t.Context(), ""); !errors.Is(err, service.ErrCorrupt) {
			t.Errorf("%s: list: %v", what, err)
		}
	}
}

func TestWhatATokenMayNotDoIsNamed(t *testing.T) {
	c := shared(t)
	root := rootOf(t)
	owner := start(t, Options{Root: root})
	mustCommit(t, owner, put("a", "1"))
	management := clientOf(t, c.Addr(1), c.Token())
	tokenOf := func(name, rules string) string {
		policy, _, err := management.ACL().PolicyCreate(&api.ACLPolicy{Name: fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), Rules: rules}, nil)
		if err != nil {
			t.Fatal(err)
		}
		token, _, err := management.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{ID: policy.ID}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return token.SecretID
	}
	const none = `key_prefix "" { policy = "deny" }`
	named := func(t *testing.T, what string, err error) {
		t.Helper()
		if !errors.Is(err, service.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprintf("key_prefix %q", root)) {
			t.Errorf("%s: got %v, want the missing permission by name", what, err)
		}
	}
	t.Run("nothing", func(t *testing.T) {
		s := start(t, Options{Root: root, Client: clientOf(t, c.Addr(1), tokenOf("none", none))})
		_, err := s.Get(t.Context(), "a")
		named(t, "get", err)
		_, _, err = s.List(t.Context(), "")
		named(t, "list", err)
		_, err = s.Commit(t.Context(), put("a", "2"))
		named(t, "commit", err)
		eventually(t, 3*time.Second, "health names the permission", func() bool {
			h := s.Health()
			return !h.Ready && strings.Contains(h.Reason, "key_prefix")
		})
	})
	t.Run("writing", func(t *testing.T) {
		s := start(t, Options{Root: root, Client: clientOf(t, c.Addr(1), tokenOf("reads", none+` key_prefix "test/" { policy = "read" }`))})
		if _, err := s.Get(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		_, err := s.Commit(t.Context(), put("a", "2"))
		named(t, "commit", err)
		// Every read works, and yet nothing can be kept.
		deadline := time.Now().Add(3 * s.options.ProbeInterval)
		eventually(t, 5*time.Second, "some probes were made", func() bool { return time.Now().After(deadline) })
		if h := s.Health(); h.Ready || !strings.Contains(h.Reason, "key_prefix") {
			t.Errorf("health is %+v", h)
		}
	})
	t.Run("the leader key", func(t *testing.T) {
		s := start(t, Options{Root: root, Client: clientOf(t, c.Addr(1), tokenOf("keyless", none+fmt.Sprintf(` key_prefix %q { policy = "write" }`, root)))})
		_, err := s.Commit(t.Context(), service.Txn{Fence: &service.Fence{Session: "x"}, Puts: []service.Put{{Key: "a"}}})
		named(t, "fenced commit", err)
	})
	t.Run("no more than it must", func(t *testing.T) {
		rules := none + fmt.Sprintf(` key_prefix %q { policy = "write" } key %q { policy = "read" }`, root, leaderKeyOf(root))
		s := start(t, Options{Root: root, Client: clientOf(t, c.Addr(1), tokenOf("least", rules)), PartsGrace: time.Second})
		fence := lead(t, clientOf(t, c.Addr(1), ""), leaderKeyOf(root))
		txn := service.Txn{Fence: &fence, Puts: []service.Put{{Key: "a", Value: make([]byte, 400<<10)}}}
		mustCommit(t, s, txn)
		mustCommit(t, s, put("a", "small"))
		eventually(t, 5*time.Second, "parts are collected", func() bool { return len(keysUnder(t, s, partsDir)) == 0 })
		if h := s.Health(); !h.Ready {
			t.Errorf("health is %+v", h)
		}
	})
}

func keysUnder(t testing.TB, s *Store, dir string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	keys, _, err := s.options.Client.KV().Keys(s.options.Root+dir, "", (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
