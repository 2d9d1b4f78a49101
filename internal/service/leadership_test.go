package service_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/standalone"
)

// pair is two replicas on one store, one leader key and one bus.
type pair struct {
	t        *testing.T
	store    *standalone.Store
	shared   *standalone.SharedLeaderState
	exchange *standalone.Exchange
	replicas []*replica
}

type replica struct {
	*service.Service
	elector *standalone.Elector
	cancel  context.CancelFunc
	group   *errgroup.Group
}

func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, shared: standalone.NewSharedLeaderState(), exchange: standalone.NewExchange()}
	var err error
	p.store, err = standalone.OpenStore(context.Background(), standalone.StoreOptions{
		Dir: t.TempDir(), Holds: func(f service.Fence) bool { return p.replicas[0].elector.Holds(f) },
	})
	require.NoError(t, err)
	for _, id := range []string{"replica-1", "replica-2"} {
		p.add(id)
		synctest.Wait()
	}
	return p
}

func (p *pair) add(id string) {
	elector, err := standalone.NewElector(standalone.ElectorOptions{
		Identity: id, Shared: p.shared, Epoch: service.TakeEpoch(p.store, time.Now), Abstain: time.Second,
	})
	require.NoError(p.t, err)
	bus, err := standalone.NewBus(standalone.BusOptions{Exchange: p.exchange})
	require.NoError(p.t, err)
	s, err := service.New(service.Options{
		Store: p.store, Elector: elector, Bus: bus, Core: coordination.DefaultConfig(), Limits: coordination.DefaultLimits(),
	})
	require.NoError(p.t, err)
	require.NoError(p.t, s.Load(context.Background()))
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{Service: s, elector: elector, cancel: cancel}
	p.replicas = append(p.replicas, r)
	r.group, ctx = errgroup.WithContext(ctx)
	r.group.Go(func() error { return s.Run(ctx) })
	r.group.Go(func() error { return elector.Run(ctx) })
	r.group.Go(func() error { return bus.Run(ctx, s) })
}

func (p *pair) stop() {
	for _, r := range p.replicas {
		r.cancel()
		_ = r.group.Wait()
	}
	require.NoError(p.t, p.store.Close())
}

func (p *pair) later(d time.Duration) {
	time.Sleep(d) // virtual time
	synctest.Wait()
}

func journal(t *testing.T, s *service.Service) (ids, types []string) {
	t.Helper()
	list, err := s.Events(service.EventQuery{OldestFirst: true, Page: service.Page{Limit: 1000}})
	require.NoError(t, err)
	for _, e := range list.Items {
		ids = append(ids, e.Event.ID)
		types = append(types, string(e.Event.Type))
	}
	return ids, types
}

func TestEveryReplicaAnswersAlikeAndOneConcludes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPair(t)
		defer p.stop()
		leader, follower := p.replicas[0], p.replicas[1]
		require.True(t, leader.Leader().IsLeader)
		require.False(t, follower.Leader().IsLeader)

		_, err := follower.Heartbeat(t.Context(), coordination.Heartbeat{InstanceID: "a", Subscriptions: []string{"orders"}})
		require.NoError(t, err)
		p.later(time.Second)
		_, err = follower.Shutdown(t.Context(), coordination.Shutdown{
			InstanceID: "a", Intent: coordination.IntentPreemption, DrainTimeout: 10 * time.Second, HasDrainTimeout: true,
		})
		require.NoError(t, err)
		p.later(time.Second)
		for _, r := range p.replicas {
			peer, err := r.Peer(coordination.PeerKey{Group: "default", InstanceID: "a"})
			require.NoError(t, err)
			assert.Equal(t, coordination.StatusDraining, peer.Status)
			orphans, err := r.Orphans(service.OrphanQuery{})
			require.NoError(t, err)
			require.Len(t, orphans.Items, 1)
			assert.Equal(t, service.OrphanOpen, orphans.Items[0].State)
		}
		ids1, types := journal(t, leader.Service)
		ids2, _ := journal(t, follower.Service)
		assert.Equal(t, ids1, ids2, "the same events in the same order everywhere")
		assert.Equal(t, []string{"leader.changed", "peer.joined", "peer.draining", "orphan.detected"}, types)

		c, created, err := follower.Claim(t.Context(), service.ClaimRequest{Subscription: "orders", InstanceID: "b"})
		require.NoError(t, err)
		assert.True(t, created)
		_, _, err = leader.Claim(t.Context(), service.ClaimRequest{Subscription: "orders", InstanceID: "c"})
		require.ErrorIs(t, err, coordination.ErrClaimHeld)
		again, created, err := leader.Claim(t.Context(), service.ClaimRequest{Subscription: "orders", InstanceID: "b"})
		require.NoError(t, err)
		assert.False(t, created)
		assert.Equal(t, c.FencingToken, again.FencingToken)
	})
}

func TestANewLeaderTellsWhatWasNotToldAndNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPair(t)
		defer p.stop()
		first, second := p.replicas[0], p.replicas[1]
		_, err := first.Heartbeat(t.Context(), coordination.Heartbeat{InstanceID: "a", Subscriptions: []string{"orders"}})
		require.NoError(t, err)
		p.later(10 * time.Second)
		released, err := first.Handoff(t.Context())
		require.NoError(t, err)
		require.True(t, released)
		p.later(100 * time.Millisecond)
		require.True(t, second.Leader().IsLeader)
		assert.Equal(t, uint64(2), second.Leader().Epoch)

		p.later(timeout)
		_, types := journal(t, second.Service)
		assert.Equal(t, []string{"leader.changed", "peer.joined", "leader.changed", "peer.stale", "orphan.detected"}, types,
			"a change of leader alone gives no grace")
		peer, err := first.Peer(coordination.PeerKey{Group: "default", InstanceID: "a"})
		require.NoError(t, err)
		assert.Equal(t, coordination.StatusStale, peer.Status)

		_, err = second.Handoff(t.Context())
		require.NoError(t, err)
		p.later(time.Minute)
		require.True(t, first.Leader().IsLeader)
		ids, types := journal(t, first.Service)
		assert.Equal(t, "leader.changed", types[len(types)-1])
		assert.Len(t, unique(ids), len(ids), "no event is told twice")
	})
}

func unique(ids []string) map[string]bool {
	set := map[string]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func TestALeaderThatLostItsTermCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPair(t)
		defer p.stop()
		first := p.replicas[0]
		fence, ok := first.elector.Fence()
		require.True(t, ok)
		first.elector.ForceLoseLeadership()
		p.later(time.Second)
		_, err := p.store.Commit(t.Context(), service.Txn{Fence: &fence, Puts: []service.Put{{Key: "x", Value: []byte("1")}}})
		require.ErrorIs(t, err, service.ErrFenced)
		for _, r := range p.replicas {
			err := r.Raise(t.Context(), coordination.Event{ID: "evt_x", Type: coordination.EventWebhookDisabled})
			if r.Leader().IsLeader {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, service.ErrFenced)
			}
		}
	})
}

func TestABusLossStalesOnlyThoseHeardOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := standalone.NewExchange()
		r := start(t, t.TempDir(), withExchange(x))
		defer r.stop()
		require.NoError(t, r.ReceiveHeartbeat(t.Context(), coordination.Heartbeat{InstanceID: "amqp", Timestamp: time.Now()},
			coordination.Arrival{Entrance: coordination.EntranceBus}))
		r.later(time.Second)
		x.Cut(nil)
		r.later(time.Second)
		r.beat("http", "orders")
		r.later(time.Minute)
		assert.Equal(t, coordination.StatusHealthy, r.status("amqp"))
		assert.Equal(t, coordination.StatusStale, r.status("http"))
		x.Restore()
		r.later(timeout - time.Second)
		assert.Equal(t, coordination.StatusHealthy, r.status("amqp"))
		r.later(2 * time.Second)
		assert.Equal(t, coordination.StatusStale, r.status("amqp"), "its grace starts when consuming resumes")
	})
}
