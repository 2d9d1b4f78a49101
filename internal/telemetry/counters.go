package telemetry

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The label values of coordsvc_heartbeats_total. What fits none of them is counted in the last place, so that
// a new outcome shows as "other" instead of vanishing.
func heartbeatOutcomes() [6]string {
	return [...]string{"accepted", "ignored_older", "ignored_stale", "rejoined", "rejected", "other"}
}

func heartbeatEntrances() [3]string { return [...]string{"http", "bus", "other"} }

// heartbeats counts by outcome and entrance. Every cell has a cache line of its own: two cores that count
// different cells must not wait for one another.
type heartbeats struct {
	cells [6][3]paddedCounter
}

type paddedCounter struct {
	atomic.Int64
	_ [56]byte
}

func (h *heartbeats) add(outcome, entrance string, n int64) {
	h.cells[outcomeIndex(outcome)][entranceIndex(entrance)].Add(n)
}

func outcomeIndex(outcome string) int {
	switch outcome {
	case "accepted":
		return 0
	case "ignored_older":
		return 1
	case "ignored_stale":
		return 2
	case "rejoined":
		return 3
	case "rejected":
		return 4
	}
	return 5
}

func entranceIndex(entrance string) int {
	switch entrance {
	case "http":
		return 0
	case "bus":
		return 1
	}
	return 2
}

func (h *heartbeats) observe(instrument metric.Int64Observable, o metric.Observer) {
	entrances := heartbeatEntrances()
	for i, outcome := range heartbeatOutcomes() {
		for j, entrance := range entrances {
			n := h.cells[i][j].Load()
			if n == 0 && (outcome == "other" || entrance == "other") {
				continue
			}
			o.ObserveInt64(instrument, n, metric.WithAttributes(
				attribute.String("outcome", outcome), attribute.String("entrance", entrance)))
		}
	}
}

// labelled counts by the values of one label. The callers' values come from closed sets (event types, reasons).
type labelled struct {
	label  string
	counts sync.Map // string → *atomic.Int64
}

// preset shows values as 0 before their first count: an alert on a rate needs a series to start from.
func (l *labelled) preset(values ...string) {
	for _, v := range values {
		l.add(v, 0)
	}
}

func (l *labelled) add(value string, n int64) {
	c, found := l.counts.Load(value)
	if !found {
		c, _ = l.counts.LoadOrStore(value, new(atomic.Int64))
	}
	if c, ok := c.(*atomic.Int64); ok {
		c.Add(n)
	}
}

func (l *labelled) observe(instrument metric.Int64Observable, o metric.Observer) {
	l.counts.Range(func(value, count any) bool {
		v, isString := value.(string)
		c, isCount := count.(*atomic.Int64)
		if isString && isCount {
			o.ObserveInt64(instrument, c.Load(), metric.WithAttributes(attribute.String(l.label, v)))
		}
		return true
	})
}

// GroupState counts one group at the moment of a scrape.
type GroupState struct {
	Group string
	// Peers are the counts by status.
	Peers       map[string]int
	OpenOrphans int
}

// State is what the gauges show, read at every scrape.
type State struct {
	Groups  []GroupState
	Leading bool
	Epoch   uint64
	// Parts tells by name (store, bus, elector) who is ready.
	Parts map[string]bool
	// WebhookQueueDepth counts deliveries that are due or waiting for their next attempt.
	WebhookQueueDepth int
	// Streams counts clients that hold an event stream open.
	Streams int
}

// MaxGroups is how many values the label group takes before further groups are summed as otherGroups.
const MaxGroups = 100

const otherGroups = "other"

// groupFolder keeps the label group bounded. A group that got its own series keeps it while it exists, so
// that series do not flip when the order of groups changes.
type groupFolder struct {
	mu       sync.Mutex
	admitted map[string]bool
}

func (f *groupFolder) fold(groups []GroupState) []GroupState {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.admit(groups)
	folded := make([]GroupState, 0, min(len(groups), MaxGroups+1))
	rest := GroupState{Group: otherGroups, Peers: map[string]int{}}
	overflow := false
	for _, g := range groups {
		if f.admitted[g.Group] {
			folded = append(folded, g)
			continue
		}
		overflow = true
		rest.OpenOrphans += g.OpenOrphans
		for status, n := range g.Peers {
			rest.Peers[status] += n
		}
	}
	if overflow {
		folded = append(folded, rest)
	}
	return folded
}

// admit drops the groups that are gone and fills the free places in the order of names.
func (f *groupFolder) admit(groups []GroupState) {
	still := make(map[string]bool, MaxGroups)
	var waiting []string
	for _, g := range groups {
		switch {
		case f.admitted[g.Group]:
			still[g.Group] = true
		case g.Group != otherGroups: // a group of that very name shares the series of the rest
			waiting = append(waiting, g.Group)
		}
	}
	slices.Sort(waiting)
	for _, name := range waiting {
		if len(still) == MaxGroups {
			break
		}
		still[name] = true
	}
	f.admitted = still
}

// observeState reads the state once and shows it on all gauges.
func (m *Metrics) observeState(_ context.Context, o metric.Observer) error {
	source := m.state.Load()
	if source == nil {
		return nil
	}
	s := (*source)()
	for _, g := range m.folder.fold(s.Groups) {
		group := attribute.String("group", g.Group)
		o.ObserveInt64(m.orphansOpen, int64(g.OpenOrphans), metric.WithAttributes(group))
		for status, n := range g.Peers {
			o.ObserveInt64(m.peers, int64(n), metric.WithAttributes(group, attribute.String("status", status)))
		}
	}
	for name, ready := range s.Parts {
		o.ObserveInt64(m.partReady, truth(ready), metric.WithAttributes(attribute.String("part", name)))
	}
	o.ObserveInt64(m.leader, truth(s.Leading))
	o.ObserveFloat64(m.epoch, float64(s.Epoch))
	o.ObserveInt64(m.queueDepth, int64(s.WebhookQueueDepth))
	o.ObserveInt64(m.streams, int64(s.Streams))
	return nil
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
