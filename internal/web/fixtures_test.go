package web

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// now is the moment at which every fixture stands.
var now = time.Date(2026, 3, 14, 12, 3, 11, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// stage is a coordinator that plays what a fixture says; only what pages read is there.
type stage struct {
	service.Coordinator

	mu      sync.Mutex
	summary service.Summary
	peers   []service.Peer
	orphans []service.Orphan
	events  []service.JournalEntry
	clashes []service.Conflict
	// pageSize cuts pages short, so that paging shows with few peers.
	pageSize int
	notices  chan service.Invalidation
}

func (s *stage) Summary() service.Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.summary
}

func (s *stage) Peer(key coordination.PeerKey) (service.Peer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if p.Group == key.Group && p.InstanceID == key.InstanceID {
			return p, nil
		}
	}
	return service.Peer{}, fmt.Errorf("peer: %w", coordination.ErrNotFound)
}

func (s *stage) Peers(q service.PeerQuery) (service.List[service.Peer], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Cursor == "nonsense" {
		return service.List[service.Peer]{}, &coordination.InvalidError{
			Fields: []coordination.FieldError{{Pointer: "/cursor", Detail: "is not one of this list"}},
		}
	}
	var l service.List[service.Peer]
	for _, p := range s.peers {
		if (q.Group == "" || q.Group == p.Group) && (len(q.Status) == 0 || slices.Contains(q.Status, p.Status)) &&
			strings.Contains(strings.ToLower(p.InstanceID), strings.ToLower(q.Q)) {
			l.Items = append(l.Items, p)
		}
	}
	slices.SortFunc(l.Items, func(a, b service.Peer) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.InstanceID, b.InstanceID))
	})
	l.Total = len(l.Items)
	if q.Cursor == "page2" {
		l.Items = l.Items[s.pageSize:]
	} else if s.pageSize > 0 && len(l.Items) > s.pageSize {
		l.Items, l.NextCursor = l.Items[:s.pageSize], "page2"
	}
	return l, nil
}

func (s *stage) Orphans(q service.OrphanQuery) (service.List[service.Orphan], error) {
	var l service.List[service.Orphan]
	for _, o := range s.orphans {
		if (q.Group == "" || q.Group == o.Group) && (q.InstanceID == "" || q.InstanceID == o.InstanceID) &&
			(len(q.State) == 0 || slices.Contains(q.State, o.State)) {
			l.Items = append(l.Items, o)
		}
	}
	l.Total = len(l.Items)
	return l, nil
}

func (s *stage) Events(q service.EventQuery) (service.List[service.JournalEntry], error) {
	var l service.List[service.JournalEntry]
	for _, e := range s.events {
		if q.Matches(&e.Event) && len(l.Items) < q.Limit {
			l.Items = append(l.Items, e)
		}
	}
	l.Total = len(l.Items)
	return l, nil
}

func (s *stage) Conflicts(group string) []service.Conflict {
	var list []service.Conflict
	for _, c := range s.clashes {
		if c.Group == group {
			list = append(list, c)
		}
	}
	return list
}

func (s *stage) Invalidations(ctx context.Context, deliver func(service.Invalidation) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-s.notices:
			if err := deliver(n); err != nil {
				return err
			}
		}
	}
}

// settle counts what the peers and orphans of the stage come to.
func (s *stage) settle() *stage {
	groups := map[string]*service.GroupSummary{}
	order := []string{}
	group := func(name string) *service.GroupSummary {
		if groups[name] == nil {
			groups[name] = &service.GroupSummary{Group: name, Peers: map[coordination.Status]int{}, HeartbeatTimeout: 15 * time.Second}
			order = append(order, name)
		}
		return groups[name]
	}
	for _, g := range s.summary.Groups {
		kept := g
		kept.Peers = map[coordination.Status]int{}
		groups[g.Group] = &kept
		order = append(order, g.Group)
	}
	s.summary.Peers = map[coordination.Status]int{}
	for _, p := range s.peers {
		group(p.Group).Peers[p.Status]++
		s.summary.Peers[p.Status]++
		s.summary.TotalPeers++
		if p.Overdue {
			group(p.Group).Overdue++
			s.summary.Overdue++
		}
	}
	for _, o := range s.orphans {
		if o.State != service.OrphanResolved {
			group(o.Group).OpenOrphans++
			s.summary.OpenOrphans++
			if o.Claim != nil {
				s.summary.OpenClaims++
			}
		}
	}
	slices.Sort(order)
	s.summary.Groups = nil
	for _, name := range order {
		s.summary.Groups = append(s.summary.Groups, *groups[name])
	}
	return s
}

func newStage() *stage {
	return &stage{
		notices: make(chan service.Invalidation),
		summary: service.Summary{
			Now:    now,
			Leader: service.Leader{Identity: "coordsvc-0", IsLeader: true, Epoch: 7, Replica: "coordsvc-0"},
			Parts: []service.PartHealth{
				{Name: "store", Kind: "bbolt", Ready: true},
				{Name: "bus", Kind: "in-process", Ready: true},
				{Name: "elector", Kind: "in-memory", Ready: true},
			},
			Revision: 4711,
		},
	}
}

// beats are n intervals around a mean, the same at every run.
func beats(n int, mean time.Duration, seed int) []time.Duration {
	list := make([]time.Duration, n)
	for i := range list {
		seed = (seed*1103515245 + 12345) & 0x7fffffff
		list[i] = mean + time.Duration(seed>>8%1200-600)*time.Millisecond
	}
	return list
}

func peer(group, id string, status coordination.Status, seen time.Duration, subs ...string) service.Peer {
	return service.Peer{
		Group: group, InstanceID: id, Status: status, LastSeen: ago(seen), FirstSeen: ago(3 * time.Hour), Subscriptions: subs,
		Labels: map[string]string{"version": "2.14.1", "zone": "eu-west-1a"}, Incarnation: "pod-" + id,
		Intervals: beats(32, 5*time.Second, len(id)*31+int(id[len(id)-1])),
		LastHeartbeat: &service.HeartbeatView{
			Timestamp: ago(seen), ReceivedAt: ago(seen), Subscriptions: subs, InFlightCount: 3, LoadFactor: 0.42,
		},
	}
}

func shutdown(p service.Peer, i coordination.Intent, left time.Duration, inFlight int64) service.Peer {
	p.Shutdown = &service.ShutdownView{
		Group: p.Group, InstanceID: p.InstanceID, Intent: i, InitiatedAt: ago(20 * time.Second), ReceivedAt: ago(20 * time.Second),
		ExpectedCompletionAt: now.Add(left), Deadline: now.Add(left), InFlightCount: inFlight, Subscriptions: p.Subscriptions,
	}
	p.LastHeartbeat.InFlightCount = inFlight
	return p
}

// rollout is a fleet in the middle of a deployment: every status is there.
func rollout() *stage {
	s := newStage()
	a := peer("orders", "orders-worker-7d9f4-2xkqp", coordination.StatusTerminated, 41*time.Second, "orders.projection", "orders.invoices")
	a = shutdown(a, coordination.IntentGraceful, -12*time.Second, 4)
	a.Overdue, a.OverdueSince, a.OpenOrphans, a.LastSeen = true, ago(12*time.Second), 2, ago(time.Second)
	b := shutdown(peer("orders", "orders-worker-7d9f4-9bbrt", coordination.StatusDraining, 2*time.Second, "orders.search", "orders.mail", "orders.audit"),
		coordination.IntentPreemption, 23*time.Second, 12)
	b.OpenOrphans = 1
	c := shutdown(peer("billing", "billing-consumer-0", coordination.StatusDraining, 3*time.Second, "billing.ledger"),
		coordination.IntentMaintenance, 4*time.Minute+8*time.Second, 2)
	d := peer("billing", "billing-consumer-1", coordination.StatusStale, 37*time.Second, "billing.dunning")
	d.OpenOrphans = 1
	d.Intervals = append(d.Intervals[:30], 9*time.Second, 16*time.Second)
	e := peer("shipping", "shipping-poller-a", coordination.StatusStale, 21*time.Second, "shipping.labels")
	s.peers = []service.Peer{a, b, c, d, e}
	for i, id := range []string{"orders-worker-85c6d-4mmzz", "orders-worker-85c6d-kf8ww", "orders-worker-85c6d-q7t2c"} {
		p := peer("orders", id, coordination.StatusHealthy, time.Duration(i+1)*time.Second, "orders.projection", "orders.search", "orders.mail", "orders.audit")
		p.Labels["version"] = "2.15.0"
		p.LastHeartbeat.LoadFactor = 0.31 + 0.29*float64(i)
		s.peers = append(s.peers, p)
	}
	for i, id := range []string{"billing-consumer-2", "billing-consumer-3", "shipping-poller-b", "shipping-poller-c"} {
		p := peer(strings.Split(id, "-")[0], id, coordination.StatusHealthy, time.Duration(i+1)*time.Second, strings.Split(id, "-")[0]+".feed-"+id[len(id)-1:])
		p.LastHeartbeat.IsLeader = i == 0
		s.peers = append(s.peers, p)
	}
	skew := time.Hour
	s.peers[len(s.peers)-1].ClockSkew = &skew
	gone := shutdown(peer("shipping", "shipping-poller-d", coordination.StatusTerminated, 12*time.Minute, "shipping.rates"), coordination.IntentGraceful, -11*time.Minute, 0)
	fresh := service.Peer{Group: "shipping", InstanceID: "shipping-poller-e", Status: coordination.StatusUnknown, FirstSeen: ago(time.Second)}
	s.peers = append(s.peers, gone, fresh)
	s.orphans = rolloutOrphans()
	s.events = rolloutEvents()
	return s.settle()
}

func rolloutOrphans() []service.Orphan {
	ready := &service.Claim{ID: "c1", InstanceID: "orders-worker-85c6d-kf8ww", FencingToken: 41, State: service.ClaimActive, Ready: true}
	waiting := &service.Claim{
		ID: "c2", InstanceID: "orders-worker-85c6d-4mmzz", FencingToken: 42, State: service.ClaimActive, NotBefore: now.Add(23 * time.Second),
	}
	owner := &service.Claim{ID: "c3", InstanceID: "billing-consumer-2", FencingToken: 9, State: service.ClaimActive}
	return []service.Orphan{
		{ID: "o1", Group: "orders", Subscription: "orders.invoices", InstanceID: "orders-worker-7d9f4-2xkqp", Cause: coordination.StatusTerminated, State: service.OrphanOpen, OpenedAt: ago(42 * time.Second), Deadline: ago(12 * time.Second), Claim: ready},
		{ID: "o2", Group: "orders", Subscription: "orders.projection", InstanceID: "orders-worker-7d9f4-2xkqp", Cause: coordination.StatusTerminated, State: service.OrphanOpen, OpenedAt: ago(42 * time.Second), CoveredBy: []string{"orders-worker-85c6d-4mmzz"}},
		{ID: "o3", Group: "orders", Subscription: "orders.audit", InstanceID: "orders-worker-7d9f4-9bbrt", Cause: coordination.StatusDraining, State: service.OrphanOpen, OpenedAt: ago(7 * time.Second), Deadline: now.Add(23 * time.Second), Claim: waiting},
		{ID: "o4", Group: "billing", Subscription: "billing.dunning", InstanceID: "billing-consumer-1", Cause: coordination.StatusStale, State: service.OrphanOpen, OpenedAt: ago(22 * time.Second), Claim: owner},
		{ID: "o5", Group: "billing", Subscription: "billing.ledger", InstanceID: "billing-consumer-0", Cause: coordination.StatusDraining, State: service.OrphanOpen, OpenedAt: ago(20 * time.Second), Deadline: now.Add(4*time.Minute + 8*time.Second)},
		{ID: "o6", Group: "shipping", Subscription: "shipping.rates", InstanceID: "shipping-poller-d", Cause: coordination.StatusTerminated, State: service.OrphanResolved, Resolution: coordination.ResolvedTakenOver, OpenedAt: ago(12 * time.Minute), ResolvedAt: ago(10 * time.Minute), CoveredBy: []string{"shipping-poller-b"}},
	}
}

func rolloutEvents() []service.JournalEntry {
	three := int64(3)
	list := []coordination.Event{
		{Type: coordination.EventOrphanClaimed, Data: coordination.EventData{Group: "orders", InstanceID: "orders-worker-7d9f4-9bbrt", Subscriptions: []string{"orders.audit"}, Claimant: "orders-worker-85c6d-4mmzz"}},
		{Type: coordination.EventOrphanDetected, Data: coordination.EventData{Group: "orders", InstanceID: "orders-worker-7d9f4-9bbrt", Cause: coordination.StatusDraining, Uncovered: []string{"orders.audit"}}},
		{Type: coordination.EventPeerDraining, Data: coordination.EventData{Group: "orders", InstanceID: "orders-worker-7d9f4-9bbrt", Intent: coordination.IntentPreemption, InFlightCount: &three}},
		{Type: coordination.EventPeerTerminated, Data: coordination.EventData{Group: "orders", InstanceID: "orders-worker-7d9f4-2xkqp"}},
		{Type: coordination.EventOrphanDetected, Data: coordination.EventData{Group: "billing", InstanceID: "billing-consumer-1", Cause: coordination.StatusStale, Uncovered: []string{"billing.dunning", "billing.a", "billing.b"}}},
		{Type: coordination.EventPeerStale, Data: coordination.EventData{Group: "billing", InstanceID: "billing-consumer-1"}},
		{Type: coordination.EventPeerRejoined, Data: coordination.EventData{Group: "orders", InstanceID: "orders-worker-85c6d-q7t2c"}},
		{Type: coordination.EventOrphanResolved, Data: coordination.EventData{Group: "shipping", InstanceID: "shipping-poller-d", Subscriptions: []string{"shipping.rates"}, Resolution: coordination.ResolvedTakenOver, Claimant: "shipping-poller-b"}},
		{Type: coordination.EventPeerJoined, Data: coordination.EventData{Group: "shipping", InstanceID: "shipping-poller-e"}},
		{Type: coordination.EventLeaderChanged, Data: coordination.EventData{Identity: "coordsvc-0", Epoch: 7}},
		{Type: coordination.EventAssignmentCreated, Data: coordination.EventData{Group: "billing", InstanceID: "billing-consumer-3", Subscriptions: []string{"billing.dunning"}}},
		{Type: coordination.EventSubscriptionConflict, Data: coordination.EventData{Group: "billing", Subscription: "billing.feed-2", Peers: []string{"billing-consumer-2", "billing-consumer-3"}}},
		{Type: coordination.EventWebhookDisabled, Data: coordination.EventData{URL: "https://hooks.example/x", Reason: "the endpoint answered 410"}},
		{Type: coordination.EventPeerIDConflict, Data: coordination.EventData{Group: "orders", InstanceID: "orders-worker-85c6d-q7t2c", Incarnations: []string{"a", "b"}}},
		{Type: coordination.EventGroupMassStaleness, Data: coordination.EventData{Group: "billing", StaleCount: 6, PeerCount: 8}},
		{Type: coordination.EventPeerRemoved, Data: coordination.EventData{Group: "billing", InstanceID: "older-than-the-page"}},
	}
	entries := make([]service.JournalEntry, len(list))
	for i, e := range list {
		e.ID = fmt.Sprintf("evt_%02d", i)
		e.Timestamp = ago(time.Duration(i*i*i)*time.Second + time.Duration(i*7)*time.Second)
		entries[i] = service.JournalEntry{Position: service.Position{Revision: uint64(100 - i)}, Event: e}
	}
	return entries
}

// troubled is a group in mass staleness, a store that is away, a conflict, grace, and another replica that leads.
func troubled() *stage {
	s := rollout()
	s.summary.Leader = service.Leader{Identity: "coordsvc-2", Epoch: 9, Replica: "coordsvc-0"}
	s.summary.Parts[1] = service.PartHealth{Name: "bus", Kind: "rabbitmq", Reason: "connection refused by 10.0.0.7:5672; retrying every 5 s. Heartbeats over HTTP go on."}
	s.summary.GraceUntil = now.Add(11 * time.Second)
	s.summary.Groups[0].MassStaleUntil = now.Add(14 * time.Second)
	s.summary.Groups[1].Conflicts = 1
	s.clashes = []service.Conflict{{Group: "orders", Subscription: "orders.search", Peers: []string{"orders-worker-85c6d-4mmzz", "orders-worker-85c6d-kf8ww"}, Since: ago(time.Minute)}}
	for i := range s.orphans {
		if s.orphans[i].Group == "billing" {
			s.orphans[i].State, s.orphans[i].HeldUntil, s.orphans[i].Claim = service.OrphanHeld, now.Add(14*time.Second), nil
		}
	}
	return s
}

// leaderless has nobody who leads.
func leaderless() *stage {
	s := rollout()
	s.summary.Leader = service.Leader{Epoch: 9, Replica: "coordsvc-0"}
	s.summary.Parts[0] = service.PartHealth{Name: "store", Kind: "bbolt", Reason: "no space left on device; free some, nothing needs a restart"}
	return s
}

// hostile has names that try to be markup, script, paths, and other directions.
func hostile() *stage {
	s := newStage()
	for _, id := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(2)>`, `' onmouseover='alert(3)`, `javascript:alert(4)`,
		`../../etc/passwd`, `..`, `a/b?c=d#e&f`, `{{7*7}}${7*7}`, "\u202eevil\u202c", strings.Repeat("w", 255), `</bdi></td></table>`,
	} {
		p := peer("<b>g</b>", id, coordination.StatusHealthy, time.Second, `<i>sub</i>`, `"quoted"`)
		p.Labels = map[string]string{"version": `<u>v</u>`, `"><script>`: `</dd><script>alert(5)</script>`}
		p.Incarnation = `<script>`
		s.peers = append(s.peers, p)
	}
	s.peers[0] = shutdown(s.peers[0], coordination.IntentGraceful, time.Minute, 1)
	s.peers[0].Shutdown.Metadata = []byte(`{"</code><script>alert(6)</script>":"&lt;"}`)
	s.orphans = []service.Orphan{{
		ID: `"><script>`, Group: "<b>g</b>", Subscription: `<i>sub</i>`, InstanceID: s.peers[0].InstanceID, Cause: coordination.StatusDraining,
		State: service.OrphanOpen, OpenedAt: ago(time.Second), CoveredBy: []string{`<s>x</s>`},
	}}
	s.events = []service.JournalEntry{{Event: coordination.Event{
		ID: "<>", Type: coordination.EventOrphanDetected, Timestamp: ago(time.Second),
		Data: coordination.EventData{Group: "<b>g</b>", InstanceID: s.peers[0].InstanceID, Uncovered: []string{`<i>sub</i>`}, Cause: coordination.StatusDraining},
	}}}
	return s.settle()
}
