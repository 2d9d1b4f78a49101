package coordination

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"
)

// scenario is one recorded run of the original coordinator.
type scenario struct {
	Name    string  `json:"name"`
	Self    string  `json:"self"`
	Timeout float64 `json:"heartbeat_timeout_seconds"`
	T0      string  `json:"t0"`
	Steps   []struct {
		AtMS       int64           `json:"at_ms"`
		Op         string          `json:"op"`
		Message    json.RawMessage `json:"message"`
		InstanceID string          `json:"instance_id"`
		Removed    bool            `json:"removed"`
		TimedOut   []string        `json:"timed_out"`
		Callbacks  [][2]string     `json:"callbacks"`
		Expect     seedState       `json:"expect"`
	} `json:"steps"`
}

// seedState is all that the original coordinator shows of itself.
type seedState struct {
	Status        map[string]Status   `json:"status"`
	Subscriptions map[string][]string `json:"subscriptions"`
	Orphaned      map[string][]string `json:"orphaned"`
	Healthy       int                 `json:"healthy_peer_count"`
	Draining      []string            `json:"draining"`
	TimeRemaining map[string]float64  `json:"time_remaining_seconds"`
}

// seedRun drives a core the way the original was driven.
type seedRun struct {
	t        *testing.T
	core     *Core
	self     string
	now      time.Time
	revision uint64
	// timedOut are the peers whose peer.stale was raised and who were not heard since.
	timedOut map[string]bool
}

func (r *seedRun) key(id string) PeerKey { return PeerKey{DefaultGroup, id} }

// step feeds one input and returns the events it led to.
func (r *seedRun) step(op, id string, message json.RawMessage) (events []Event, removed bool) {
	r.t.Helper()
	switch op {
	case "heartbeat":
		hb, err := DecodeHeartbeat(message)
		if err != nil {
			r.t.Fatal(err)
		}
		if hb.InstanceID == r.self {
			return r.core.Tick(r.now).Events, false
		}
		out, _, err := r.core.Heartbeat(r.now, &hb, Arrival{Entrance: EntranceHTTP})
		if err != nil {
			r.t.Fatal(err)
		}
		return out.Events, false
	case "shutdown":
		n, err := DecodeShutdown(message)
		if err != nil {
			r.t.Fatal(err)
		}
		if n.InstanceID == r.self {
			return r.core.Tick(r.now).Events, false
		}
		// What falls due before the notification is told with it.
		events = slices.Clone(r.core.Tick(r.now).Events)
		plan, err := r.core.PlanShutdown(r.now, &n, EntranceHTTP)
		if err != nil {
			r.t.Fatal(err)
		}
		if plan.Record == nil {
			return events, false
		}
		r.revision++
		plan.Record.Revision = r.revision
		return append(events, r.core.ApplyShutdown(r.now, plan.Record).Events...), false
	case "remove":
		out, known := r.core.Remove(r.now, r.key(id))
		return out.Events, known
	case "tick", "check", "assign":
		return r.core.Tick(r.now).Events, false
	}
	r.t.Fatalf("no such step: %s", op)
	return nil, false
}

// state reads the core the way the recorder read the original.
func (r *seedRun) state(ids []string) seedState {
	s := seedState{
		Status: map[string]Status{}, Subscriptions: map[string][]string{}, Draining: []string{}, TimeRemaining: map[string]float64{},
	}
	keys := make([]PeerKey, 0, len(ids))
	for _, id := range ids {
		v, known := r.core.Peer(r.key(id))
		if !known {
			continue
		}
		keys = append(keys, v.Key)
		s.Status[id] = v.Status
		s.Subscriptions[id] = v.Subs
		switch v.Status {
		case StatusHealthy:
			s.Healthy++
		case StatusDraining:
			s.Draining = append(s.Draining, id)
		case StatusStale, StatusTerminated, StatusUnknown:
		}
		if v.Shutdown != nil {
			s.TimeRemaining[id] = max(0, v.Shutdown.Deadline.Sub(r.now).Seconds())
		}
	}
	s.Orphaned = r.core.Gone(keys)
	return s
}

func (s seedState) equal(o seedState) bool {
	sameLists := func(a, b map[string][]string) bool { return maps.EqualFunc(a, b, slices.Equal[[]string]) }
	return maps.Equal(s.Status, o.Status) && sameLists(s.Subscriptions, o.Subscriptions) && sameLists(s.Orphaned, o.Orphaned) &&
		s.Healthy == o.Healthy && slices.Equal(s.Draining, o.Draining) && maps.Equal(s.TimeRemaining, o.TimeRemaining)
}

// TestCoordinatorVectors runs every recorded scenario step by step. The original's peer_shutdown callback is the event
// peer.draining. Its peer_timeout fires at every check for everybody timed out then; peer.stale is raised once,
// by whatever input first sees the peer stale, and the two tell of the same peers at every check.
func TestCoordinatorVectors(t *testing.T) {
	scenarios := readLines[scenario](t, "testdata/coordinator.jsonl")
	if len(scenarios) != 300 {
		t.Fatalf("%d scenarios, want 300", len(scenarios))
	}
	for _, sc := range scenarios {
		t.Run(sc.Name, func(t *testing.T) { runScenario(t, sc) })
	}
}

func runScenario(t *testing.T, sc scenario) {
	t.Helper()
	t0, err := ParseTimestamp(sc.T0)
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Default.HeartbeatTimeout = time.Duration(sc.Timeout * float64(time.Second))
	r := &seedRun{t: t, core: New(cfg), self: sc.Self, timedOut: map[string]bool{}}
	r.core.SetLeading(t0, true, 1)
	ids := []string{sc.Self, "worker-0", "worker-1", "worker-2", "worker-3", "worker-4"}
	for i, step := range sc.Steps {
		r.now = t0.Add(time.Duration(step.AtMS) * time.Millisecond)
		events, removed := r.step(step.Op, step.InstanceID, step.Message)
		if removed != step.Removed {
			t.Fatalf("step %d: removed %t, want %t", i, removed, step.Removed)
		}
		var draining []string
		for _, e := range events {
			switch e.Type {
			case EventPeerDraining:
				draining = append(draining, e.Data.InstanceID)
			case EventPeerStale:
				if r.timedOut[e.Data.InstanceID] {
					t.Fatalf("step %d: a second peer.stale for %s", i, e.Data.InstanceID)
				}
				r.timedOut[e.Data.InstanceID] = true
			case EventPeerRecovered, EventPeerRejoined, EventPeerRemoved:
				delete(r.timedOut, e.Data.InstanceID)
			}
		}
		for _, id := range draining {
			delete(r.timedOut, id)
		}
		want := []string(nil)
		for _, call := range step.Callbacks {
			if call[0] == "peer_shutdown" {
				want = append(want, call[1])
			}
		}
		if !slices.Equal(draining, want) {
			t.Fatalf("step %d: peer.draining for %v, want %v", i, draining, want)
		}
		if step.Op == "check" && !slices.Equal(slices.Sorted(maps.Keys(r.timedOut)), slices.Sorted(slices.Values(step.TimedOut))) {
			t.Fatalf("step %d: timed out %v, want %v", i, slices.Sorted(maps.Keys(r.timedOut)), step.TimedOut)
		}
		if got := r.state(ids); !got.equal(step.Expect) {
			t.Fatalf("step %d, %s %s:\n got %+v\nwant %+v", i, step.Op, step.Message, got, step.Expect)
		}
	}
}
