package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/standalone"
)

// BenchmarkHeartbeat measures the way of a heartbeat through the service, without HTTP, over 10,000 peers.
func BenchmarkHeartbeat(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	var elector *standalone.Elector
	store, err := standalone.OpenStore(ctx, standalone.StoreOptions{Dir: b.TempDir(), Holds: func(f service.Fence) bool { return elector.Holds(f) }})
	require.NoError(b, err)
	elector, err = standalone.NewElector(standalone.ElectorOptions{Identity: "bench", Epoch: service.TakeEpoch(store, time.Now)})
	require.NoError(b, err)
	bus, err := standalone.NewBus(standalone.BusOptions{})
	require.NoError(b, err)
	s, err := service.New(service.Options{
		Store: store, Elector: elector, Bus: bus, Core: coordination.DefaultConfig(), Limits: coordination.DefaultLimits(),
	})
	require.NoError(b, err)
	require.NoError(b, s.Load(ctx))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(b, <-done)
		require.NoError(b, store.Close())
	}()
	ids := make([]string, 10_000)
	for i := range ids {
		ids[i] = fmt.Sprintf("worker-%d", i)
	}
	subs := []string{"orders", "inventory", "mail"}
	beat := func(i int) {
		hb := coordination.Heartbeat{InstanceID: ids[i%len(ids)], Timestamp: time.Now(), Subscriptions: subs, HasSubscriptions: true, InFlightCount: 3, HasInFlight: true}
		if _, err := s.Heartbeat(ctx, hb); err != nil {
			b.Fatal(err)
		}
	}
	for i := range ids {
		beat(i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		beat(i)
		i++
	}
}
