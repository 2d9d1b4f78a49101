//go:build integration

package consulstore

import (
	"bytes"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

func large(fill byte) []byte { return bytes.Repeat([]byte{fill}, 400<<10) }

// testClock is moved by hand. It starts at a round time.
type testClock struct{ elapsed atomic.Int64 }

func (c *testClock) now() time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.elapsed.Load()))
}

func (c *testClock) advance(d time.Duration) { c.elapsed.Add(int64(d)) }

// collector opens a store whose collector only the test runs.
func collector(t *testing.T) (*Store, *testClock) {
	clock := &testClock{}
	s := open(t, Options{Client: clientOf(t, shared(t).Addr(1), ""), Root: rootOf(t), Now: clock.now})
	return s, clock
}

func collectNow(t *testing.T, s *Store) {
	t.Helper()
	if err := s.collectAll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPartsGoWhenNoRecordRefersToThemForLong(t *testing.T) {
	for what, replace := range map[string]service.Txn{
		"overwritten":            put("a", "small"),
		"overwritten by parts":   {Puts: []service.Put{{Key: "a", Value: large('b')}}},
		"deleted":                {Deletes: []string{"a"}},
		"only one of two values": {Deletes: []string{"kept"}, Puts: []service.Put{{Key: "a", Value: []byte("x")}}},
	} {
		t.Run(what, func(t *testing.T) {
			s, clock := collector(t)
			mustCommit(t, s, service.Txn{Puts: []service.Put{{Key: "a", Value: large('a')}, {Key: "kept", Value: large('k')}}})
			before := keysUnder(t, s, partsDir)
			if len(before) < 3 {
				t.Fatalf("parts are %q", before)
			}
			for range 3 {
				collectNow(t, s)
				clock.advance(s.options.PartsGrace)
			}
			if now := keysUnder(t, s, partsDir); len(now) != len(before) {
				t.Fatalf("of %q only %q are left although records refer to them", before, now)
			}
			mustCommit(t, s, replace)
			if what != "only one of two values" {
				// Another value of the transaction still lies in the same parts.
				collectNow(t, s)
				clock.advance(s.options.PartsGrace)
				collectNow(t, s)
				if r, err := s.Get(t.Context(), "kept"); err != nil || !bytes.Equal(r.Value, large('k')) {
					t.Fatalf("the other value: %d bytes, %v", len(r.Value), err)
				}
				mustCommit(t, s, service.Txn{Deletes: []string{"kept", "a"}})
			}
			collectNow(t, s)
			clock.advance(s.options.PartsGrace - 1)
			collectNow(t, s)
			if now := keysUnder(t, s, partsDir); len(now) == 0 {
				t.Fatal("parts went before their grace was over")
			}
			clock.advance(1)
			collectNow(t, s)
			if now := keysUnder(t, s, partsDir); len(now) != 0 {
				t.Errorf("%q are left", now)
			}
		})
	}
}

// A writer that stops between its parts and its transaction, for however long, either finds them or commits nothing.
func TestALateTransactionNeverRefersToCollectedParts(t *testing.T) {
	s, clock := collector(t)
	prepare := func() (*plan, string) {
		id := rand.Text()
		intents, err := gather(service.Txn{Puts: []service.Put{{Key: "a", Value: large('a')}}}, id)
		if err != nil {
			t.Fatal(err)
		}
		moved, err := shrink(intents, id)
		if err != nil {
			t.Fatal(err)
		}
		owners, err := s.writeParts(t.Context(), id, moved)
		if err != nil {
			t.Fatal(err)
		}
		return s.plan(nil, intents, id, owners), id
	}
	late, lateID := prepare()
	collectNow(t, s)
	clock.advance(s.options.PartsGrace)
	collectNow(t, s)
	if now := keysUnder(t, s, partsDir); len(now) != 0 {
		t.Fatalf("orphaned parts are left: %q", now)
	}
	_, err := s.apply(t.Context(), late, lateID)
	wantError(t, err, service.ErrUnavailable)
	_, err = s.Get(t.Context(), "a")
	wantError(t, err, service.ErrNoRecord)

	// The other way round: the transaction comes between the collector's look and its deletion.
	timely, id := prepare()
	collectNow(t, s)
	looked, err := s.readKeys(t.Context(), ownersKey(id), dataKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.apply(t.Context(), timely, id); err != nil {
		t.Fatal(err)
	}
	if err := s.deleteParts(t.Context(), id, looked); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Get(t.Context(), "a"); err != nil || !bytes.Equal(r.Value, large('a')) {
		t.Fatalf("the value is %d bytes, %v", len(r.Value), err)
	}
}

// Parts whose transaction died before it wrote whose they are, or was collected while it still wrote.
func TestPartsWithoutOwnersAreCollected(t *testing.T) {
	s, clock := collector(t)
	id := rand.Text()
	if _, err := s.create(t.Context(), partKey(id, 3), seal(partKey(id, 3), kindPart, id, []byte("x"))); err != nil {
		t.Fatal(err)
	}
	collectNow(t, s)
	clock.advance(s.options.PartsGrace)
	collectNow(t, s)
	if now := keysUnder(t, s, partsDir); len(now) != 0 {
		t.Errorf("%q are left", now)
	}
}

func TestMissingOrDamagedPartsAreNoValue(t *testing.T) {
	s, _ := collector(t)
	mustCommit(t, s, service.Txn{Puts: []service.Put{{Key: "a", Value: large('a')}}})
	parts := keysUnder(t, s, partsDir)
	part := parts[0][len(s.options.Root):]
	overwrite(t, s, part, func(b []byte) []byte { b[len(b)/2] ^= 4; return b })
	_, err := s.Get(t.Context(), "a")
	wantError(t, err, service.ErrCorrupt)
	if _, err := s.options.Client.KV().Delete(parts[0], nil); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context(), "a")
	wantError(t, err, service.ErrCorrupt)
	_, _, err = s.List(t.Context(), "")
	if !errors.Is(err, service.ErrCorrupt) || !errors.Is(err, errPartsGone) {
		t.Errorf("list: %v", err)
	}
}
