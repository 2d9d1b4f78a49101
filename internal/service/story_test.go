package service_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/standalone"
)

func TestAPeerLivesDrainsAndIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()

		reply := r.beat("a", "orders", "audit")
		assert.Equal(t, coordination.StatusHealthy, reply.Status)
		assert.Equal(t, coordination.OutcomeAccepted, reply.Outcome)
		assert.Equal(t, timeout, reply.HeartbeatTimeout)
		assert.Equal(t, timeout/3, reply.NextHeartbeat)
		assert.Equal(t, "replica-1", reply.Leader)
		r.beat("b", "mail")

		sent := r.drain("a", 20*time.Second)
		assert.Equal(t, coordination.StatusDraining, sent.Status)
		assert.Equal(t, 20*time.Second, sent.TimeRemaining)
		require.Len(t, r.orphans(service.OrphanOpen), 2)
		assert.Equal(t, map[string][]string{"a": {"orders", "audit"}}, r.OrphanedSubscriptions("default"))

		c := r.claim("orders", "b")
		assert.Equal(t, uint64(1), c.FencingToken)
		assert.False(t, c.Ready)
		p, err := r.Peer(coordination.PeerKey{Group: "default", InstanceID: "a"})
		require.NoError(t, err)
		assert.WithinDuration(t, p.Shutdown.Deadline, c.NotBefore, 0)

		r.keepBeating(20*time.Second, func() { r.beat("b", "mail") })
		assert.Equal(t, coordination.StatusTerminated, r.status("a"))
		held, err := r.ClaimByID(c.ID)
		require.NoError(t, err)
		assert.False(t, held.Ready, "no overdue beat for one timeout after the deadline is what makes it safe")

		r.keepBeating(15*time.Second, func() { r.beat("b", "mail") })
		reply = r.beat("b", "mail")
		require.Len(t, reply.Claims, 1)
		assert.True(t, reply.Claims[0].Ready)

		r.beat("b", "mail", "orders")
		held, err = r.ClaimByID(c.ID)
		require.NoError(t, err)
		assert.Equal(t, service.ClaimDone, held.State)
		open := r.orphans(service.OrphanOpen)
		require.Len(t, open, 1)
		assert.Equal(t, "audit", open[0].Subscription)
		assert.Equal(t, []string{
			"peer.joined", "peer.draining", "orphan.detected", "orphan.claimed", "peer.terminated", "orphan.escalated", "orphan.resolved",
		}, r.told("a"))
	})
}

func TestSilenceIsStaleAndABeatRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		r.beat("a", "orders")
		r.later(timeout)
		assert.Equal(t, coordination.StatusHealthy, r.status("a"), "stale means strictly older than the timeout")
		r.later(1)
		assert.Equal(t, coordination.StatusStale, r.status("a"))
		r.later(time.Minute)
		assert.Equal(t, []string{"peer.joined", "peer.stale", "orphan.detected"}, r.told("a"), "an edge fires once per episode")

		r.beat("a", "orders")
		assert.Equal(t, coordination.StatusHealthy, r.status("a"))
		assert.Equal(t, []string{"peer.joined", "peer.stale", "orphan.detected", "peer.recovered", "orphan.resolved"}, r.told("a"))
		orphans := r.orphans()
		require.Len(t, orphans, 1)
		assert.Equal(t, coordination.ResolvedRecovered, orphans[0].Resolution)
	})
}

func TestARestartForgetsNobodyAndTellsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		r.beat("gone", "orders")
		r.later(timeout + time.Second)
		r.beat("alive", "mail")
		r.beat("leaving", "audit")
		r.drain("leaving", 40*time.Second)
		c := r.claim("orders", "alive")
		assert.True(t, c.Ready)
		r.later(time.Second)
		before := r.told("")
		r.stop()

		r = start(t, dir)
		assert.Equal(t, coordination.StatusUnknown, r.status("gone"))
		assert.Equal(t, coordination.StatusUnknown, r.status("alive"))
		assert.Equal(t, coordination.StatusDraining, r.status("leaving"))
		require.Len(t, r.orphans(service.OrphanOpen), 2)
		held, err := r.ClaimByID(c.ID)
		require.NoError(t, err)
		assert.Equal(t, service.ClaimActive, held.State)
		assert.True(t, held.Ready)
		r.later(time.Second)
		r.beat("alive", "mail")
		r.later(timeout - time.Second)
		assert.Equal(t, coordination.StatusUnknown, r.status("gone"), "every peer gets one full timeout")
		r.later(1)
		assert.Equal(t, coordination.StatusStale, r.status("gone"))
		r.later(0)
		assert.Equal(t, append(before, "leader.changed"), r.told(""))
		assert.Equal(t, uint64(2), r.Leader().Epoch)
		r.stop()
	})
}

func TestAPauseOfTheServiceMakesNobodyStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var skipped atomic.Int64
		r := start(t, t.TempDir(), withOptions(func(o *service.Options) {
			o.Now = func() time.Time { return time.Now().Add(time.Duration(skipped.Load())) }
		}))
		defer r.stop()
		r.beat("a", "orders")
		skipped.Store(int64(time.Minute))
		r.later(timeout - time.Second)
		assert.Equal(t, coordination.StatusHealthy, r.status("a"))
		r.later(2 * time.Second)
		assert.Equal(t, coordination.StatusStale, r.status("a"), "one full timeout after the pause, not more")
	})
}

func TestRemovedPeersResolveTheirOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		r.beat("a", "orders")
		r.drain("a", time.Minute)
		require.NoError(t, r.RemovePeer(t.Context(), coordination.PeerKey{Group: "default", InstanceID: "a"}))
		assert.Equal(t, "not found", string(r.status("a")))
		r.beat("a", "orders")
		r.later(time.Second)
		assert.Equal(t, coordination.StatusHealthy, r.status("a"), "a removal is concluded once")
		assert.Equal(t, []string{"peer.joined", "peer.draining", "orphan.detected", "orphan.resolved", "peer.removed", "peer.joined"}, r.told("a"))
		r.stop()
		r = start(t, dir)
		assert.Equal(t, coordination.StatusUnknown, r.status("a"))
		r.stop()
	})
}

func TestARemovalThatNobodyConcludedHidesThePeerUntilALeaderDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		r.beat("a", "orders")
		r.drain("a", time.Minute)
		r.later(time.Second)
		r.stop()
		// A crash between the answer and its conclusion leaves just the fact.
		store, err := standalone.OpenStore(t.Context(), standalone.StoreOptions{Dir: dir})
		require.NoError(t, err)
		_, err = store.Commit(t.Context(), service.Txn{Puts: []service.Put{{
			Key: "removal/default/a", Value: []byte(`{"group":"default","instance_id":"a","at":"2026-01-01T00:00:00Z"}`),
		}}})
		require.NoError(t, err)
		require.NoError(t, store.Close())

		r = load(t, dir)
		assert.Equal(t, "not found", string(r.status("a")), "before anybody leads")
		list, err := r.Peers(service.PeerQuery{})
		require.NoError(t, err)
		assert.Zero(t, list.Total)
		assert.Empty(t, list.Items)
		assert.Empty(t, r.orphans())
		r.run()
		assert.Equal(t, []string{"peer.joined", "peer.draining", "orphan.detected", "orphan.resolved", "peer.removed"}, r.told("a"))
		r.stop()
	})
}

// lateWatch tells of what is committed only when it is let.
type lateWatch struct {
	service.Store
	held chan struct{}
}

func (l *lateWatch) Watch(ctx context.Context, prefix string, after uint64, deliver func(service.Changes) error) error {
	return l.Store.Watch(ctx, prefix, after, func(ch service.Changes) error {
		<-l.held
		return deliver(ch)
	})
}

func TestAWatchThatIsLateBringsNoRemovedPeerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &lateWatch{held: make(chan struct{})}
		dir := t.TempDir()
		r := load(t, dir, withOptions(func(o *service.Options) {
			late.Store = o.Store
			o.Store = late
		}))
		r.run()
		close(late.held)
		r.later(time.Second)
		late.held = make(chan struct{})
		r.beat("a", "orders")
		r.drain("a", time.Minute)
		require.NoError(t, r.RemovePeer(t.Context(), coordination.PeerKey{Group: "default", InstanceID: "a"}))
		close(late.held)
		r.later(time.Second)
		assert.Equal(t, "not found", string(r.status("a")))
		r.stop()
		r = start(t, dir)
		assert.Equal(t, "not found", string(r.status("a")))
		r.stop()
	})
}

func TestADrainThatWasCancelledBeforeAnybodyToldOfItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := load(t, t.TempDir()) // nobody leads yet
		r.beat("a", "orders")
		r.drain("a", time.Minute)
		_, err := r.CancelDrain(t.Context(), coordination.PeerKey{Group: "default", InstanceID: "a"})
		require.NoError(t, err)
		r.drain("b", time.Minute)
		_, err = r.CancelDrain(t.Context(), coordination.PeerKey{Group: "default", InstanceID: "b"})
		require.NoError(t, err)
		r.run()
		assert.Equal(t, []string{"peer.joined", "peer.draining", "peer.recovered"}, r.told("a"))
		assert.Equal(t, []string{"peer.draining", "peer.recovered"}, r.told("b"))
		assert.Empty(t, r.orphans())
		r.drain("a", time.Minute)
		assert.Equal(t, []string{"peer.joined", "peer.draining", "peer.recovered", "peer.draining", "orphan.detected"}, r.told("a"))
		r.stop()
	})
}

func TestAfterARestartLastSeenIsNotHoursOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		r.keepBeating(time.Hour, func() {
			for i := range 3 {
				r.beatAs(coordination.Heartbeat{Group: fmt.Sprint("g", i), InstanceID: "a"})
			}
		})
		r.later(time.Second)
		r.stop()
		r = start(t, dir)
		for i := range 3 {
			p, err := r.Peer(coordination.PeerKey{Group: fmt.Sprint("g", i), InstanceID: "a"})
			require.NoError(t, err)
			assert.Less(t, time.Since(p.LastSeen), 2*time.Minute)
		}
		r.stop()
	})
}
