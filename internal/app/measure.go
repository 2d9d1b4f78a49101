package app

import (
	"net/http"
	"sync"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/telemetry"
	"github.com/coordsvc/coordsvc/internal/webhook"
)

// serviceMetrics hands what the service measures to the metrics.
type serviceMetrics struct{ m *telemetry.Metrics }

var _ service.Metrics = serviceMetrics{}

// Heartbeat implements service.Metrics.
func (s serviceMetrics) Heartbeat(outcome coordination.Outcome, entrance coordination.Entrance) {
	if outcome == "" {
		outcome = "rejected"
	}
	s.m.Heartbeats(string(outcome), string(entrance), 1)
}

// Shutdown implements service.Metrics.
func (s serviceMetrics) Shutdown(outcome coordination.Outcome) { s.m.ShutdownReceived(string(outcome)) }

// Claim implements service.Metrics: only what was granted is a claim.
func (s serviceMetrics) Claim(result string) {
	if result == "granted" {
		s.m.ClaimGranted()
	}
}

// Event implements service.Metrics.
func (s serviceMetrics) Event(t coordination.EventType) { s.m.EventRaised(string(t)) }

// Commit implements service.Metrics.
func (s serviceMetrics) Commit(d time.Duration, err error) {
	if err == nil {
		s.m.CommitTook(d)
	}
}

// Dropped implements service.Metrics.
func (s serviceMetrics) Dropped(reason string, n int) { s.m.Dropped(reason, n) }

// Paused implements service.Metrics.
func (s serviceMetrics) Paused(time.Duration) { s.m.PauseMadeUpFor() }

// webhookMetrics hands what the webhooks measure to the metrics. The depth of the queue is read at each scrape.
type webhookMetrics struct{ m *telemetry.Metrics }

var _ webhook.Metrics = webhookMetrics{}

// Attempt implements webhook.Metrics.
func (w webhookMetrics) Attempt(outcome webhook.Outcome, took time.Duration) {
	w.m.WebhookAttempt(string(outcome), took)
}

// FirstAttempt implements webhook.Metrics.
func (w webhookMetrics) FirstAttempt(delay time.Duration) { w.m.WebhookFirstAttempt(delay) }

// QueueDepth implements webhook.Metrics.
func (w webhookMetrics) QueueDepth(int) {}

// Dropped implements webhook.Metrics.
func (w webhookMetrics) Dropped(reason webhook.DropReason) { w.m.Dropped("webhook_"+string(reason), 1) }

// What HTTP and the bus refuse or drop at a limit, besides what the service and the webhooks count.
const (
	dropBody       = "body_too_large"
	dropStream     = "stream_limit"
	dropSlowStream = "stream_too_slow"
	dropBus        = "bus_queue_full"
)

// observe hears of every answered request.
func (p *parts) observe(method, route string, status int, elapsed time.Duration) {
	switch {
	case status == http.StatusRequestEntityTooLarge:
		p.metrics.Dropped(dropBody, 1)
	case status == http.StatusTooManyRequests && method == http.MethodGet:
		p.metrics.Dropped(dropStream, 1) // only streams are limited among what is read
	}
	if route == "" {
		route = "other"
	}
	p.metrics.RequestTook(route, method, status, elapsed)
}

// counted is what the metrics have heard of counters that are read rather than told.
type counted struct {
	mu                    sync.Mutex
	slowStreams, busDrops uint64
}

// catchUp counts what came since the last look.
func (c *counted) catchUp(m *telemetry.Metrics, slowStreams, busDrops uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Dropped(dropSlowStream, int(slowStreams-c.slowStreams))
	m.Dropped(dropBus, int(busDrops-c.busDrops))
	c.slowStreams, c.busDrops = slowStreams, busDrops
}

// state is what the gauges show.
func (p *parts) state() telemetry.State {
	summary := p.service.Summary()
	streams, cut := p.api.Streams()
	p.counted.catchUp(p.metrics, cut, p.bus.Dropped())
	s := telemetry.State{
		Groups:  make([]telemetry.GroupState, len(summary.Groups)),
		Leading: summary.Leader.IsLeader, Epoch: summary.Leader.Epoch,
		Parts: map[string]bool{}, WebhookQueueDepth: p.webhooks.Pending(), Streams: streams,
	}
	for _, part := range summary.Parts {
		s.Parts[part.Name] = part.Ready
	}
	for i, g := range summary.Groups {
		peers := make(map[string]int, len(g.Peers))
		for status, n := range g.Peers {
			peers[string(status)] = n
		}
		s.Groups[i] = telemetry.GroupState{Group: g.Group, Peers: peers, OpenOrphans: g.OpenOrphans}
	}
	return s
}

func eventTypes() []string {
	known := coordination.EventTypes()
	names := make([]string, len(known))
	for i, t := range known {
		names[i] = string(t)
	}
	return names
}

func attemptOutcomes() []string {
	return []string{
		string(webhook.OutcomeSuccess), string(webhook.OutcomeStatus), string(webhook.OutcomeTimeout),
		string(webhook.OutcomeRefused), string(webhook.OutcomeError), string(webhook.OutcomeCut),
	}
}
