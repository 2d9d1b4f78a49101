package service_test

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/standalone"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = 15 * time.Second

// rig is one replica on the real embedded parts, in a bubble of virtual time.
type rig struct {
	*service.Service
	t       *testing.T
	store   *standalone.Store
	elector *standalone.Elector
	opts    service.Options
	cancel  context.CancelFunc
	group   *errgroup.Group
}

type rigOption func(*rig)

func withExchange(x *standalone.Exchange) rigOption {
	return func(r *rig) {
		bus, err := standalone.NewBus(standalone.BusOptions{Exchange: x})
		require.NoError(r.t, err)
		r.opts.Bus = bus
	}
}

func withOptions(change func(*service.Options)) rigOption {
	return func(r *rig) { change(&r.opts) }
}

// start opens dir and runs a replica on it until stop.
func start(t *testing.T, dir string, options ...rigOption) *rig {
	t.Helper()
	r := load(t, dir, options...)
	r.run()
	return r
}

// load opens dir and reads it, as a replica that does not run yet.
func load(t *testing.T, dir string, options ...rigOption) *rig {
	t.Helper()
	return loadFrom(t, dir, nil, options...)
}

// loadFrom is load with another way to open the store's file.
func loadFrom(t *testing.T, dir string, open func(string, int, os.FileMode) (*os.File, error), options ...rigOption) *rig {
	t.Helper()
	r := &rig{t: t}
	ctx := context.Background()
	var err error
	r.store, err = standalone.OpenStore(ctx, standalone.StoreOptions{
		Dir: dir, OpenFile: open, Holds: func(f service.Fence) bool { return r.elector.Holds(f) },
	})
	require.NoError(t, err)
	r.elector, err = standalone.NewElector(standalone.ElectorOptions{
		Identity: "replica-1", Epoch: service.TakeEpoch(r.store, time.Now),
	})
	require.NoError(t, err)
	bus, err := standalone.NewBus(standalone.BusOptions{})
	require.NoError(t, err)
	r.opts = service.Options{
		Store: r.store, Elector: r.elector, Bus: bus, Core: coordination.DefaultConfig(), Limits: coordination.DefaultLimits(),
		Jitter: func() float64 { return 0 },
	}
	for _, o := range options {
		o(r)
	}
	r.Service, err = service.New(r.opts)
	require.NoError(t, err)
	require.NoError(t, r.Load(ctx))
	return r
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.group, ctx = errgroup.WithContext(ctx)
	r.group.Go(func() error { return r.Run(ctx) })
	r.group.Go(func() error { return r.elector.Run(ctx) })
	r.group.Go(func() error { return r.opts.Bus.Run(ctx, r.Service) })
	synctest.Wait()
}

// stop ends the replica without a word to anybody.
func (r *rig) stop() {
	r.cancel()
	_ = r.group.Wait()
	require.NoError(r.t, r.store.Close())
}

// later lets virtual time pass.
func (r *rig) later(d time.Duration) {
	time.Sleep(d) // virtual time
	synctest.Wait()
}

func (r *rig) beat(id string, subs ...string) service.HeartbeatReply {
	r.t.Helper()
	return r.beatAs(coordination.Heartbeat{InstanceID: id, Subscriptions: subs, HasSubscriptions: true, HasInFlight: true})
}

func (r *rig) beatAs(hb coordination.Heartbeat) service.HeartbeatReply {
	r.t.Helper()
	reply, err := r.Heartbeat(r.t.Context(), hb)
	require.NoError(r.t, err)
	return reply
}

func (r *rig) drain(id string, window time.Duration) service.ShutdownReply {
	r.t.Helper()
	reply, err := r.Shutdown(r.t.Context(), coordination.Shutdown{
		InstanceID: id, Intent: coordination.IntentGraceful, DrainTimeout: window, HasDrainTimeout: true,
	})
	require.NoError(r.t, err)
	return reply
}

func (r *rig) status(id string) coordination.Status {
	r.t.Helper()
	p, err := r.Peer(coordination.PeerKey{Group: "default", InstanceID: id})
	if err != nil {
		return coordination.Status(err.Error())
	}
	return p.Status
}

func (r *rig) orphans(states ...service.OrphanState) []service.Orphan {
	r.t.Helper()
	list, err := r.Orphans(service.OrphanQuery{State: states})
	require.NoError(r.t, err)
	return list.Items
}

// told lists the journal's event types of a peer, oldest first.
func (r *rig) told(instance string) []string {
	r.t.Helper()
	synctest.Wait()
	list, err := r.Events(service.EventQuery{OldestFirst: true, InstanceID: instance, Page: service.Page{Limit: 1000}})
	require.NoError(r.t, err)
	var types []string
	for _, e := range list.Items {
		types = append(types, string(e.Event.Type))
	}
	return types
}

// claim is a claim that must be granted.
func (r *rig) claim(subscription, instance string) service.Claim {
	r.t.Helper()
	c, created, err := r.Claim(r.t.Context(), service.ClaimRequest{Subscription: subscription, InstanceID: instance})
	require.NoError(r.t, err)
	require.True(r.t, created)
	return c
}

// keepBeating beats every third of the timeout for d.
func (r *rig) keepBeating(d time.Duration, beat func()) {
	for left := d; left > 0; left -= timeout / 3 {
		r.later(min(left, timeout/3))
		beat()
	}
}
