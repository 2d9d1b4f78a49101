package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

const scopeName = "github.com/coordsvc/coordsvc"

// Options configure the metrics.
type Options struct {
	// Version, Revision and GoVersion label coordsvc_build_info.
	Version   string
	Revision  string
	GoVersion string
	// EventTypes, DropReasons and AttemptOutcomes are shown as 0 before their first count.
	EventTypes      []string
	DropReasons     []string
	AttemptOutcomes []string
	Logger          *slog.Logger
	Now             func() time.Time
}

// Metrics counts what the service does. All methods are safe for concurrent use.
type Metrics struct {
	provider *sdkmetric.MeterProvider
	registry *prometheus.Registry
	logger   *slog.Logger

	heartbeats heartbeats
	claims     atomic.Int64
	pauses     atomic.Int64
	shutdowns  labelled
	events     labelled
	attempts   labelled
	dropped    labelled
	durations  durations
	state      atomic.Pointer[func() State]
	folder     groupFolder

	buildInfo, heartbeatsTotal, shutdownsTotal, claimsTotal, eventsTotal, attemptsTotal, droppedTotal, pausesTotal metric.Int64Observable

	peers, orphansOpen, partReady, leader, queueDepth, streams metric.Int64Observable
	epoch                                                      metric.Float64Observable
}

// NewMetrics makes the instruments and the registry they are shown from.
func NewMetrics(o Options) (*Metrics, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Metrics{
		registry:  prometheus.NewRegistry(),
		logger:    o.Logger.With("component", "telemetry"),
		shutdowns: labelled{label: "outcome"},
		events:    labelled{label: "type"}, attempts: labelled{label: "outcome"}, dropped: labelled{label: "reason"},
		durations: durations{start: o.Now(), now: o.Now},
	}
	m.events.preset(o.EventTypes...)
	m.attempts.preset(o.AttemptOutcomes...)
	m.dropped.preset(o.DropReasons...)
	if err := m.start(o); err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	return m, nil
}

func (m *Metrics) start(o Options) error {
	// The names are written out as Prometheus wants them; no translation may touch them.
	exporter, err := otelprometheus.New(
		otelprometheus.WithRegisterer(m.registry), otelprometheus.WithProducer(&m.durations),
		otelprometheus.WithTranslationStrategy(otlptranslator.NoTranslation),
		otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return err
	}
	m.provider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	meter := m.provider.Meter(scopeName)
	if err := errors.Join(
		m.instrumentCounters(meter), m.instrumentState(meter),
		m.registry.Register(collectors.NewGoCollector()),
		m.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return err
	}
	return m.registerCallbacks(meter, o)
}

func (m *Metrics) instrumentCounters(meter metric.Meter) error {
	var faults []error
	counter := func(name, description string) metric.Int64Observable {
		c, err := meter.Int64ObservableCounter(name, metric.WithDescription(description))
		faults = append(faults, err)
		return c
	}
	m.heartbeatsTotal = counter("coordsvc_heartbeats_total", "Heartbeats received, by outcome and entrance.")
	m.shutdownsTotal = counter("coordsvc_shutdowns_total", "Shutdown notifications received, by outcome.")
	m.pausesTotal = counter("coordsvc_own_pauses_total", "Interruptions of the service's own observation that it made up for.")
	m.claimsTotal = counter("coordsvc_claims_total", "Claims granted.")
	m.eventsTotal = counter("coordsvc_events_total", "Events raised, by type.")
	m.attemptsTotal = counter("coordsvc_webhook_attempts_total", "Webhook delivery attempts, by outcome.")
	m.droppedTotal = counter("coordsvc_dropped_total", "What was refused or dropped at a limit, by reason.")
	return errors.Join(faults...)
}

func (m *Metrics) instrumentState(meter metric.Meter) error {
	var faults []error
	gauge := func(name, description string) metric.Int64Observable {
		g, err := meter.Int64ObservableGauge(name, metric.WithDescription(description))
		faults = append(faults, err)
		return g
	}
	m.buildInfo = gauge("coordsvc_build_info", "Always 1; the labels tell which build this is.")
	m.peers = gauge("coordsvc_peers", "Peers, by group and status.")
	m.orphansOpen = gauge("coordsvc_orphans_open", "Subscriptions that nobody serves any more, by group.")
	m.partReady = gauge("coordsvc_part_ready", "1 while the store, bus or elector can be used.")
	m.leader = gauge("coordsvc_leader", "1 while this replica leads.")
	m.queueDepth = gauge("coordsvc_webhook_queue_depth", "Webhook deliveries that wait for an attempt.")
	m.streams = gauge("coordsvc_sse_clients", "Clients that hold an event stream open.")
	epoch, err := meter.Float64ObservableGauge("coordsvc_epoch", metric.WithDescription("The epoch of the current leadership term."))
	m.epoch = epoch
	return errors.Join(append(faults, err)...)
}

func (m *Metrics) registerCallbacks(meter metric.Meter, o Options) error {
	build := metric.WithAttributes(attribute.String("version", o.Version),
		attribute.String("revision", o.Revision), attribute.String("go_version", o.GoVersion))
	_, err := meter.RegisterCallback(func(_ context.Context, obs metric.Observer) error {
		obs.ObserveInt64(m.buildInfo, 1, build)
		obs.ObserveInt64(m.claimsTotal, m.claims.Load())
		obs.ObserveInt64(m.pausesTotal, m.pauses.Load())
		m.heartbeats.observe(m.heartbeatsTotal, obs)
		m.shutdowns.observe(m.shutdownsTotal, obs)
		m.events.observe(m.eventsTotal, obs)
		m.attempts.observe(m.attemptsTotal, obs)
		m.dropped.observe(m.droppedTotal, obs)
		return nil
	}, m.buildInfo, m.claimsTotal, m.pausesTotal, m.heartbeatsTotal, m.shutdownsTotal, m.eventsTotal, m.attemptsTotal, m.droppedTotal)
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(m.observeState,
		m.peers, m.orphansOpen, m.partReady, m.leader, m.epoch, m.queueDepth, m.streams)
	return err
}

// ReadState sets where the gauges read from; until then they are absent.
func (m *Metrics) ReadState(source func() State) { m.state.Store(&source) }

// Heartbeats counts n heartbeats of one outcome that came through one entrance.
func (m *Metrics) Heartbeats(outcome, entrance string, n int) {
	m.heartbeats.add(outcome, entrance, int64(n))
}

// ClaimGranted counts a claim.
func (m *Metrics) ClaimGranted() { m.claims.Add(1) }

// EventRaised counts an event.
func (m *Metrics) EventRaised(eventType string) { m.events.add(eventType, 1) }

// ShutdownReceived counts a shutdown notification.
func (m *Metrics) ShutdownReceived(outcome string) { m.shutdowns.add(outcome, 1) }

// PauseMadeUpFor counts an interruption of the service's own observation.
func (m *Metrics) PauseMadeUpFor() { m.pauses.Add(1) }

// WebhookAttempt counts an attempt at a delivery.
func (m *Metrics) WebhookAttempt(outcome string, took time.Duration) {
	m.attempts.add(outcome, 1)
	m.durations.attempts.record(took)
}

// WebhookFirstAttempt records how long after its event a delivery was attempted first.
func (m *Metrics) WebhookFirstAttempt(delay time.Duration) { m.durations.firstAttempts.record(delay) }

// Dropped counts what was refused or dropped at a limit.
func (m *Metrics) Dropped(reason string, n int) { m.dropped.add(reason, int64(n)) }

// CommitTook records how long a durable commit took.
func (m *Metrics) CommitTook(d time.Duration) { m.durations.commits.record(d) }

// RequestTook records one answered request. Route is the pattern that matched, never the path of the request.
func (m *Metrics) RequestTook(route, method string, status int, d time.Duration) {
	m.durations.request(route, method, status, d)
}

// Handler serves /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: promLog{m.logger}, ErrorHandling: promhttp.HTTPErrorOnError,
		EnableOpenMetrics: true, MaxRequestsInFlight: 4,
	})
}

type promLog struct{ logger *slog.Logger }

// Println implements promhttp.Logger.
func (l promLog) Println(v ...any) {
	l.logger.Error("metrics cannot be shown", "error", fmt.Sprint(v...))
}

// Shutdown ends the metrics; a later scrape shows nothing of ours.
func (m *Metrics) Shutdown(ctx context.Context) error {
	if err := m.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("shut metrics down: %w", err)
	}
	return nil
}
