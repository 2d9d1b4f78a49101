package telemetry

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// bounds are the upper bounds of the buckets of every duration, in seconds: fine where a heartbeat and a commit
// lie, coarse up to the longest answer that is not a stream.
func bounds() [15]float64 {
	return [...]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10}
}

// histogram is a histogram of durations without a lock: an addition to the bucket and one to the sum. A scrape
// may read one addition without the other; the next one has both.
type histogram struct {
	buckets  [16]atomic.Uint64
	sumNanos atomic.Int64
}

func (h *histogram) record(d time.Duration) {
	b := bounds()
	seconds := d.Seconds()
	i := 0
	for i < len(b) && seconds > b[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sumNanos.Add(int64(d))
}

func (h *histogram) point(start, now time.Time, attributes ...attribute.KeyValue) metricdata.HistogramDataPoint[float64] {
	b := bounds()
	p := metricdata.HistogramDataPoint[float64]{
		Attributes: attribute.NewSet(attributes...), StartTime: start, Time: now,
		Bounds: b[:], BucketCounts: make([]uint64, len(h.buckets)),
	}
	for i := range h.buckets {
		p.BucketCounts[i] = h.buckets[i].Load()
		p.Count += p.BucketCounts[i]
	}
	p.Sum = time.Duration(h.sumNanos.Load()).Seconds()
	return p
}

// durations holds the histograms. It is a metric.Producer, because OpenTelemetry's own histograms cost more than
// a heartbeat may.
type durations struct {
	start         time.Time
	now           func() time.Time
	commits       histogram
	attempts      histogram
	firstAttempts histogram

	// requests is replaced, never changed, so that looking a histogram up takes no lock and allocates nothing. adding
	// serialises the replacements.
	requests atomic.Pointer[map[requestKey]*histogram]
	adding   sync.Mutex
}

type requestKey struct {
	route, method string
	status        int
}

func (d *durations) request(route, method string, status int, took time.Duration) {
	key := requestKey{route, knownMethod(method), status}
	h := d.find(key)
	if h == nil {
		h = d.add(key)
	}
	h.record(took)
}

func (d *durations) find(key requestKey) *histogram {
	if known := d.requests.Load(); known != nil {
		return (*known)[key]
	}
	return nil
}

func (d *durations) add(key requestKey) *histogram {
	d.adding.Lock()
	defer d.adding.Unlock()
	if h := d.find(key); h != nil {
		return h
	}
	next := map[requestKey]*histogram{}
	if known := d.requests.Load(); known != nil {
		maps.Copy(next, *known)
	}
	next[key] = new(histogram)
	d.requests.Store(&next)
	return next[key]
}

// knownMethod keeps clients from making series by inventing methods.
func knownMethod(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return method
	}
	return "other"
}

// Produce implements OpenTelemetry's metric.Producer.
func (d *durations) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now := d.now()
	var requests []metricdata.HistogramDataPoint[float64]
	if known := d.requests.Load(); known != nil {
		for k, h := range *known {
			requests = append(requests, h.point(d.start, now,
				attribute.String("http_route", k.route), attribute.String("method", k.method), attribute.Int("status", k.status)))
		}
	}
	metrics := []metricdata.Metrics{
		duration("coordsvc_store_commit_duration_seconds",
			"How long a durable commit took, until its data was on disk.", d.commits.point(d.start, now)),
		duration("coordsvc_webhook_attempt_duration_seconds",
			"How long a webhook's receiver took to answer, or not to.", d.attempts.point(d.start, now)),
		duration("coordsvc_webhook_first_attempt_delay_seconds",
			"From an event to the first attempt to deliver it.", d.firstAttempts.point(d.start, now)),
	}
	if len(requests) > 0 {
		metrics = append(metrics, duration("http_server_request_duration_seconds",
			"How long answering a request took, by route, method and status.", requests...))
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scopeName}, Metrics: metrics}}, nil
}

func duration(name, description string, points ...metricdata.HistogramDataPoint[float64]) metricdata.Metrics {
	return metricdata.Metrics{
		Name: name, Description: description, Unit: "s",
		Data: metricdata.Histogram[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality},
	}
}
