package standalone

import (
	"errors"
	"testing"

	"github.com/coordsvc/coordsvc/internal/conformance"
	"github.com/coordsvc/coordsvc/internal/service"
)

// newTestElector fails the test instead of returning an error.
func newTestElector(t *testing.T, options ElectorOptions) *Elector {
	t.Helper()
	e, err := NewElector(options)
	if err != nil {
		t.Fatalf("new elector: %v", err)
	}
	return e
}

func TestStoreConformance(t *testing.T) {
	conformance.Store(t, func(t *testing.T) conformance.StoreBackend {
		shared := NewSharedLeaderState()
		guard := newTestElector(t, ElectorOptions{Identity: "guard", Shared: shared})
		options := StoreOptions{Dir: t.TempDir(), Holds: guard.Holds}
		store := openTestStore(t, options)
		var leader *Elector
		endTerm := func(t *testing.T) {
			t.Helper()
			if leader != nil {
				leader.ForceLoseLeadership()
			}
		}
		return conformance.StoreBackend{
			Store: store,
			Reopen: func(t *testing.T) service.Store {
				t.Helper()
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				return openTestStore(t, options)
			},
			NewTerm: func(t *testing.T) service.Fence {
				t.Helper()
				endTerm(t)
				leader = newTestElector(t, ElectorOptions{Identity: "leader", Shared: shared})
				if leads, err := leader.TryAcquire(t.Context(), 0); err != nil || !leads {
					t.Fatalf("acquire: %t, %v", leads, err)
				}
				fence, _ := leader.Fence()
				return fence
			},
			EndTerm: endTerm,
		}
	})
}

func forceLose(t *testing.T, e service.Elector) {
	t.Helper()
	own, ok := e.(*Elector)
	if !ok {
		t.Fatalf("not an elector of this package: %T", e)
	}
	own.ForceLoseLeadership()
}

func TestElectorConformanceWithSharedState(t *testing.T) {
	conformance.Elector(t, func(*testing.T) conformance.ElectorBackend {
		shared := NewSharedLeaderState()
		return conformance.ElectorBackend{
			New: func(t *testing.T, identity string, epoch service.EpochSource) service.Elector {
				t.Helper()
				return newTestElector(t, ElectorOptions{Identity: identity, Shared: shared, Epoch: epoch, RetryMin: 1})
			},
			ForceLose: forceLose,
			Rounds:    200,
		}
	})
}

func TestElectorConformanceAlone(t *testing.T) {
	conformance.Elector(t, func(*testing.T) conformance.ElectorBackend {
		return conformance.ElectorBackend{
			New: func(t *testing.T, identity string, epoch service.EpochSource) service.Elector {
				t.Helper()
				return newTestElector(t, ElectorOptions{Identity: identity, Epoch: epoch, RetryMin: 1})
			},
			ForceLose: forceLose,
			Alone:     true,
		}
	})
}

func TestBusConformance(t *testing.T) {
	conformance.Bus(t, func(*testing.T) conformance.BusBackend {
		exchange := NewExchange()
		return conformance.BusBackend{
			New: func(t *testing.T, _ string) service.Bus {
				t.Helper()
				bus, err := NewBus(BusOptions{Exchange: exchange, RetryMin: 1})
				if err != nil {
					t.Fatalf("new bus: %v", err)
				}
				return bus
			},
			Cut:     func(*testing.T) { exchange.Cut(errors.New("cable pulled")) },
			Restore: func(*testing.T) { exchange.Restore() },
		}
	})
}
