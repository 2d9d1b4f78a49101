package service_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// leastOperations is what every store must take in one transaction.
const leastOperations = 16

// narrowStore takes no more than a store must, and notes whether anybody asked for more.
type narrowStore struct {
	service.Store
	t *testing.T
}

func (narrowStore) MaxOperations() int { return leastOperations }

func (s narrowStore) Commit(ctx context.Context, txn service.Txn) (uint64, error) {
	keys := map[string]struct{}{}
	for _, p := range txn.Puts {
		keys[p.Key] = struct{}{}
	}
	for _, k := range txn.Deletes {
		keys[k] = struct{}{}
	}
	for _, c := range txn.Checks {
		keys[c.Key] = struct{}{}
	}
	assert.LessOrEqual(s.t, len(keys), leastOperations, "keys in one transaction")
	return s.Store.Commit(ctx, txn)
}

func TestNoTransactionExceedsWhatTheStoreTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const peers, subscriptions = 100, 50
		narrow := withOptions(func(o *service.Options) {
			o.Store, o.JournalSize = narrowStore{o.Store, t}, 250
		})
		r := start(t, t.TempDir(), narrow)
		defer r.stop()
		var served []string
		for i := range subscriptions {
			served = append(served, fmt.Sprint("s", i))
		}
		r.beat("owner", served...)
		r.later(timeout + 1)
		for _, s := range served {
			r.claim(s, "survivor")
		}
		r.beat("owner", served...)
		r.later(1)
		revoked, err := r.Claims(service.ClaimQuery{State: []service.ClaimState{service.ClaimRevoked}, Page: service.Page{Limit: 1}})
		assert.NoError(t, err)
		assert.Equal(t, subscriptions, revoked.Total, "the owner is back: all claims end at once")

		for i := range peers {
			r.beat(fmt.Sprint("w", i), fmt.Sprint("w", i))
		}
		r.later(2*timeout + time.Second) // all turn stale at once; held for one timeout more
		open, err := r.Orphans(service.OrphanQuery{State: []service.OrphanState{service.OrphanOpen}, Page: service.Page{Limit: 1}})
		assert.NoError(t, err)
		assert.Equal(t, peers+subscriptions, open.Total)
		for i := range peers {
			assert.Contains(t, r.told(fmt.Sprint("w", i)), string(coordination.EventOrphanDetected))
		}
	})
}
