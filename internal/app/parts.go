package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coordsvc/coordsvc"
	"github.com/coordsvc/coordsvc/internal/api"
	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/standalone"
	"github.com/coordsvc/coordsvc/internal/telemetry"
	"github.com/coordsvc/coordsvc/internal/web"
	"github.com/coordsvc/coordsvc/internal/webhook"
)

// parts is the service, built but not running.
type parts struct {
	options Options
	log     *slog.Logger
	metrics *telemetry.Metrics
	counted counted

	store    *standalone.Store
	elector  *standalone.Elector
	bus      *standalone.Bus
	service  *service.Service
	webhooks *webhook.Webhooks
	api      *api.API
	handler  http.Handler

	// serving turns readiness on; stopping, once closed, ends streams.
	serving  atomic.Bool
	stopping chan struct{}
}

// build makes the parts in the order in which they need one another, and loads what the store remembers. On an error
// what was opened is closed again.
func build(ctx context.Context, o Options, log *slog.Logger) (_ *parts, err error) {
	p := &parts{options: o, log: log, stopping: make(chan struct{})}
	p.metrics, err = telemetry.NewMetrics(telemetry.Options{
		Version: o.Build.Version, Revision: o.Build.Revision, GoVersion: o.Build.GoVersion,
		EventTypes: eventTypes(), DropReasons: []string{dropBody, dropStream, dropSlowStream, dropBus}, AttemptOutcomes: attemptOutcomes(), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close(log)
		}
	}()
	for _, step := range []func(context.Context) error{p.buildEngines, p.buildService, p.buildWebhooks, p.buildHTTP} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if err := p.service.Load(ctx); err != nil {
		return nil, fmt.Errorf("load what the store remembers: %w", err)
	}
	p.metrics.ReadState(p.state)
	return p, nil
}

// close closes what holds files or background work; the last step of stopping.
func (p *parts) close(log *slog.Logger) {
	if p.store != nil {
		if err := p.store.Close(); err != nil {
			log.Error("closing the store failed", "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), telemetryLimit)
	defer cancel()
	if err := p.metrics.Shutdown(ctx); err != nil {
		log.Error("closing the metrics failed", "error", err)
	}
}

func (p *parts) buildEngines(ctx context.Context) error {
	var err error
	// The store asks the elector who leads, and the elector takes its epochs from the store.
	p.elector, err = standalone.NewElector(standalone.ElectorOptions{
		Identity: p.options.Identity, Logger: p.log,
		Epoch: func(ctx context.Context, identity string, fence service.Fence) (uint64, error) {
			return service.TakeEpoch(p.store, time.Now)(ctx, identity, fence)
		},
	})
	if err != nil {
		return fmt.Errorf("build the elector: %w", err)
	}
	p.store, err = standalone.OpenStore(ctx, standalone.StoreOptions{
		Dir: p.options.DataDir, Holds: p.elector.Holds, Logger: p.log,
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	p.bus, err = standalone.NewBus(standalone.BusOptions{MaxHeartbeats: p.options.Limits.Peers, Logger: p.log})
	if err != nil {
		return fmt.Errorf("build the bus: %w", err)
	}
	return nil
}

func (p *parts) buildService(context.Context) error {
	var err error
	p.service, err = service.New(service.Options{
		Store: p.store, Elector: p.elector, Bus: p.bus,
		Core: coreConfig(&p.options), Limits: messageLimits(&p.options),
		JournalSize: p.options.JournalSize,
		// The webhooks are built later, and before anything is in the journal.
		JournalFloor: func() service.Position { return p.webhooks.CursorFloor() },
		Logger:       p.log, Metrics: serviceMetrics{p.metrics},
	})
	if err != nil {
		return fmt.Errorf("build the service: %w", err)
	}
	return nil
}

func coreConfig(o *Options) coordination.Config {
	c := coordination.DefaultConfig()
	c.Default.HeartbeatTimeout = o.HeartbeatTimeout
	c.PeerRetention = o.PeerRetention
	c.MaxPeers, c.MaxPeersPerGroup = o.Limits.Peers, o.Limits.PeersPerGroup
	c.Groups = make(map[string]coordination.GroupSettings, len(o.Groups))
	for name, g := range o.Groups {
		settings := c.Default
		if g.HeartbeatTimeout > 0 {
			settings.HeartbeatTimeout = g.HeartbeatTimeout
		}
		settings.Shared = g.SharedSubscriptions
		c.Groups[name] = settings
	}
	return c
}

func messageLimits(o *Options) coordination.Limits {
	l := coordination.DefaultLimits()
	l.Subscriptions, l.Labels, l.MetadataBytes = o.Limits.Subscriptions, o.Limits.Labels, int(o.Limits.Metadata)
	l.MaxDrain = o.MaxDrain
	return l
}

func (p *parts) buildWebhooks(context.Context) error {
	w := p.options.Webhooks
	var err error
	p.webhooks, err = webhook.New(webhook.Options{
		Store: p.store, Journal: p.service, Elector: p.elector, Events: p.service,
		Logger: p.log, Metrics: webhookMetrics{p.metrics},
		RetrySchedule: w.RetrySchedule, Timeout: w.Timeout, QueueLimit: w.QueueLimit,
		StopGrace:     webhookGrace,
		AllowNetworks: w.AllowNetworks, DenyNetworks: w.DenyNetworks, Proxy: w.Proxy,
		UserAgent: "coordsvc/" + p.options.Build.Version,
	})
	if err != nil {
		return fmt.Errorf("build the webhooks: %w", err)
	}
	return nil
}

func (p *parts) buildHTTP(context.Context) error {
	pages, err := web.New(web.Options{
		Service: p.service, Logger: p.log, BasePath: p.options.BasePath, Version: p.options.Build.Version,
		Identity: p.options.Identity, MaxStreams: p.options.Limits.SSEClients, Stopping: p.stopping,
	})
	if err != nil {
		return fmt.Errorf("build the pages: %w", err)
	}
	p.api, err = api.New(api.Options{
		Service: p.service, Webhooks: p.webhooks, Spec: coordsvc.OpenAPI, Logger: p.log,
		Ready: p.ready, Metrics: p.metrics.Handler(), Web: pages,
		Observe:  p.observe,
		BasePath: p.options.BasePath,
		MaxBody:  p.options.Limits.Body, MaxBatchBody: p.options.Limits.BatchBody, MaxStreams: p.options.Limits.SSEClients,
	})
	if err != nil {
		return fmt.Errorf("build the API: %w", err)
	}
	p.handler = behindProxies(atRootToo(p.api, p.options.BasePath), p.options.TrustedProxies)
	return nil
}

// ready says whether this replica should get traffic.
func (p *parts) ready() (bool, []string) {
	select {
	case <-p.stopping:
		return false, []string{"stopping"}
	default:
	}
	if !p.serving.Load() {
		return false, []string{"starting"}
	}
	return true, nil
}
