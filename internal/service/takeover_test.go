package service_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

func TestOfManyClaimantsOneWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		r.beat("gone", "orders")
		r.later(timeout + 1)
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				_, created, err := r.Claim(t.Context(), service.ClaimRequest{Subscription: "orders", InstanceID: fmt.Sprint("w", i)})
				switch {
				case err == nil && created:
					won.Add(1)
				case !errors.Is(err, coordination.ErrClaimHeld):
					t.Errorf("claimant %d: created %v, error %v", i, created, err)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, int32(1), won.Load())
	})
}

func TestTokensGrowOverReleaseExpiryAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		r.beat("gone", "orders")
		r.later(timeout + 1)
		c := r.claim("orders", "b")
		assert.Equal(t, uint64(1), c.FencingToken)
		assert.True(t, c.Ready, "a stale owner is out of the way")
		_, err := r.ReleaseClaim(t.Context(), c.ID)
		require.NoError(t, err)
		c = r.claim("orders", "never-heard")
		assert.Equal(t, uint64(2), c.FencingToken)
		r.later(timeout)
		held, err := r.ClaimByID(c.ID)
		require.NoError(t, err)
		assert.Equal(t, service.ClaimActive, held.State)
		r.later(1)
		held, err = r.ClaimByID(c.ID)
		require.NoError(t, err)
		assert.Equal(t, service.ClaimExpired, held.State, "its holder was never heard for one timeout")
		r.later(time.Second)
		r.stop()
		r = start(t, dir)
		r.later(timeout + 1)
		c = r.claim("orders", "d")
		assert.Equal(t, uint64(3), c.FencingToken)
		r.stop()
	})
}

func TestAServedSubscriptionCannotBeClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		r.beat("a", "orders")
		_, _, err := r.Claim(t.Context(), service.ClaimRequest{Subscription: "orders", InstanceID: "b"})
		var held *coordination.HeldError
		require.ErrorAs(t, err, &held)
		assert.Equal(t, "a", held.Holder)
		require.ErrorIs(t, err, coordination.ErrServed)
		c := r.claim("nobody-ever", "b")
		assert.True(t, c.Ready)
	})
}

func TestMassStalenessHoldsOrphanEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		beatAll := func(ids ...string) {
			for _, id := range ids {
				r.beat(id, "sub-of-"+id)
			}
		}
		r.keepBeating(2*timeout, func() { beatAll("a", "b", "c", "d", "e") })
		r.later(timeout + 1)
		assert.Equal(t, coordination.StatusStale, r.status("a"))
		assert.Len(t, r.orphans(service.OrphanHeld), 5)
		assert.Contains(t, r.told(""), "group.mass_staleness")
		assert.NotContains(t, r.told("a"), "orphan.detected")
		_, _, err := r.Claim(t.Context(), service.ClaimRequest{Subscription: "sub-of-a", InstanceID: "z"})
		require.ErrorIs(t, err, coordination.ErrHeld)

		beatAll("b")
		r.later(timeout + time.Second)
		assert.Contains(t, r.told(""), "group.mass_staleness_ended")
		assert.Contains(t, r.told("a"), "orphan.detected")
		assert.NotContains(t, r.told("b"), "orphan.resolved", "nobody was told of it")
	})
}

func TestAnOrphanCanBeDismissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		r.beat("a", "orders")
		r.later(timeout + 1)
		c := r.claim("orders", "b")
		o, err := r.DismissOrphan(t.Context(), r.orphans(service.OrphanOpen)[0].ID, "retired")
		require.NoError(t, err)
		assert.Equal(t, service.OrphanResolved, o.State)
		assert.Equal(t, coordination.ResolvedDismissed, o.Resolution)
		assert.Equal(t, "retired", o.DismissReason)
		held, err := r.ClaimByID(c.ID)
		require.NoError(t, err)
		assert.Equal(t, service.ClaimRevoked, held.State)
		r.later(time.Second)
		r.stop()
		r = start(t, dir)
		o, err = r.Orphan(o.ID)
		require.NoError(t, err)
		assert.Equal(t, coordination.ResolvedDismissed, o.Resolution)
		r.stop()
	})
}

func TestAnAssignmentReachesItsTargetUntilItIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		assign := func(sub string, priority int64) service.Assignment {
			a, err := r.Assign(t.Context(), coordination.Assignment{
				TargetInstanceID: "b", Subscriptions: []string{sub}, SourceInstanceID: "ops", Priority: priority,
			})
			require.NoError(t, err)
			assert.Equal(t, service.AssignmentPending, a.State)
			return a
		}
		low, high := assign("mail", 0), assign("orders", 5)
		late := assign("audit", 0)
		reply := r.beat("b")
		require.Len(t, reply.Assignments, 3)
		assert.Equal(t, high.ID, reply.Assignments[0].ID, "the most urgent first")
		synctest.Wait()
		got, err := r.AssignmentByID(low.ID)
		require.NoError(t, err)
		assert.Equal(t, service.AssignmentDelivered, got.State)

		_, err = r.AcknowledgeAssignment(t.Context(), low.ID)
		require.NoError(t, err)
		reply = r.beat("b", "orders")
		require.Len(t, reply.Assignments, 1, "one is acknowledged, one reported as served")
		got, err = r.AssignmentByID(high.ID)
		require.NoError(t, err)
		assert.Equal(t, service.AssignmentCovered, got.State)
		r.keepBeating(10*time.Minute, func() { r.beat("b", "orders") })
		got, err = r.AssignmentByID(late.ID)
		require.NoError(t, err)
		assert.Equal(t, service.AssignmentExpired, got.State)
		count := map[string]int{}
		for _, typ := range r.told("b") {
			count[typ]++
		}
		assert.Equal(t, map[string]int{
			"peer.joined": 1, "assignment.created": 3, "assignment.delivered": 3, "assignment.acknowledged": 2, "assignment.expired": 1,
		}, count)
	})
}

func TestACancelledDrainGoesBackToTheHeartbeatsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		k := coordination.PeerKey{Group: "default", InstanceID: "a"}
		r.beat("a", "orders")
		_, err := r.CancelDrain(t.Context(), k)
		require.ErrorIs(t, err, coordination.ErrNotDraining)
		r.drain("a", 10*time.Second)
		p, err := r.CancelDrain(t.Context(), k)
		require.NoError(t, err)
		assert.Equal(t, coordination.StatusHealthy, p.Status)
		assert.Nil(t, p.Shutdown)
		assert.Empty(t, r.orphans(service.OrphanOpen))
		assert.Contains(t, r.told("a"), "peer.recovered")
		r.drain("a", 0)
		_, err = r.CancelDrain(t.Context(), k)
		require.ErrorIs(t, err, coordination.ErrPeerTerminated)
	})
}

func TestALargeSweepIsWrittenInBatchesAndNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		const fleet = 700
		for i := range fleet {
			r.beatAs(coordination.Heartbeat{Group: "many", InstanceID: fmt.Sprint("w", i), Subscriptions: []string{fmt.Sprint("s", i)}})
		}
		r.later(time.Second)
		r.later(2*timeout + time.Second)
		count := func(s *service.Service) map[string]int {
			types := map[string]int{}
			for _, typ := range []string{"peer.joined", "peer.stale", "orphan.detected"} {
				list, err := s.Events(service.EventQuery{Types: []string{typ}})
				require.NoError(t, err)
				types[typ] = list.Total
			}
			return types
		}
		want := map[string]int{"peer.joined": fleet, "peer.stale": fleet, "orphan.detected": fleet}
		assert.Equal(t, want, count(r.Service))
		r.stop()
		r = start(t, dir)
		assert.Equal(t, want, count(r.Service))
		open, err := r.Orphans(service.OrphanQuery{State: []service.OrphanState{service.OrphanOpen}})
		require.NoError(t, err)
		assert.Equal(t, fleet, open.Total)
		r.stop()
	})
}

func TestTheJournalIsBoundedAndSaysWhenAReaderIsTooFarOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir(), withOptions(func(o *service.Options) { o.JournalSize = 50 }))
		defer r.stop()
		for i := range 300 {
			r.beat(fmt.Sprint("w", i))
			r.later(time.Millisecond)
		}
		r.later(2 * time.Second)
		list, err := r.Events(service.EventQuery{OldestFirst: true})
		require.NoError(t, err)
		assert.LessOrEqual(t, list.Total, 51, "one record at most straddles the limit")
		assert.Greater(t, list.Total, 40)

		_, err = r.After(t.Context(), service.Position{Revision: 1}, 10)
		require.ErrorIs(t, err, service.ErrGap, "what came after it has left the journal")
		ahead := r.Head()
		ahead.Revision += 1000
		_, err = r.After(t.Context(), ahead, 10)
		require.ErrorIs(t, err, service.ErrGap, "it is from another life of the store")
		entries, err := r.After(t.Context(), service.Position{}, 1000)
		require.NoError(t, err)
		assert.Len(t, entries, list.Total)
	})
}

func TestASearchOverAVeryLargeFleetLooksAtABoundedNumberAndFindsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		const fleet = 45_000
		var want []string
		for i := range fleet {
			id := fmt.Sprintf("worker-%05d", i)
			if i%9000 == 4321 {
				id += "-Needle"
				want = append(want, id)
			}
			r.beatAs(coordination.Heartbeat{InstanceID: id})
		}
		var got []string
		pages := 0
		for q := (service.PeerQuery{Q: "needle"}); ; pages++ {
			list, err := r.Peers(q)
			require.NoError(t, err)
			for i := range list.Items {
				got = append(got, list.Items[i].InstanceID)
			}
			if q.Cursor = list.NextCursor; q.Cursor == "" {
				break
			}
		}
		assert.Equal(t, want, got)
		assert.Equal(t, 2, pages, "three requests look at 20,000 each")

		list, err := r.Peers(service.PeerQuery{Page: service.Page{Limit: 10}})
		require.NoError(t, err)
		assert.Equal(t, fleet, list.Total, "what an index answers is exact")
	})
}
