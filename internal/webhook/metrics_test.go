package webhook

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/coordsvc/coordsvc/internal/service"
)

// countingMetrics keeps what it hears.
type countingMetrics struct {
	mu       sync.Mutex
	outcomes map[Outcome]int
	dropped  map[DropReason]int
	first    []time.Duration
	depth    int
}

func (m *countingMetrics) Attempt(o Outcome, _ time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outcomes == nil {
		m.outcomes = map[Outcome]int{}
	}
	m.outcomes[o]++
}

func (m *countingMetrics) FirstAttempt(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.first = append(m.first, d)
}

func (m *countingMetrics) QueueDepth(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.depth = n
}

func (m *countingMetrics) Dropped(r DropReason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dropped == nil {
		m.dropped = map[DropReason]int{}
	}
	m.dropped[r]++
}

func (m *countingMetrics) drops(r DropReason) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropped[r]
}

func TestMetricsHearOfEveryAttempt(t *testing.T) {
	t.Parallel()
	metrics := &countingMetrics{depth: -1}
	rc := newReceiver(t, statuses(500, 200, 410))
	r := newRig(t, func(o *Options) { o.Metrics = metrics })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	r.awaitDelivery(deliveryID(r.raise(1), hook.ID), service.DeliveryDelivered)
	r.awaitDelivery(deliveryID(r.raise(2), hook.ID), service.DeliveryDead)
	r.shutDown()
	metrics.mu.Lock()
	defer metrics.mu.Unlock()
	assert.Equal(t, map[Outcome]int{OutcomeSuccess: 1, OutcomeStatus: 2}, metrics.outcomes)
	assert.Equal(t, map[DropReason]int{DropGone: 1}, metrics.dropped)
	assert.Len(t, metrics.first, 2, "retries are no first attempts")
	for _, d := range metrics.first {
		assert.Less(t, d, patience)
		assert.Positive(t, d)
	}
	assert.Zero(t, metrics.depth)
}
