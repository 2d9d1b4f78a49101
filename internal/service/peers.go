package service

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// Peer reads one peer.
func (s *Service) Peer(k coordination.PeerKey) (Peer, error) {
	now := s.lock()
	defer s.mu.Unlock()
	v, ok := s.core.Peer(k)
	if !ok || s.hidden(k) {
		return Peer{}, coordination.ErrNotFound
	}
	return peerOf(v, now), nil
}

// hidden: the peer is removed for good, and only the leader's conclusion is still to come. Under the lock.
func (s *Service) hidden(k coordination.PeerKey) bool {
	_, removing := s.removing[k]
	return removing
}

func peerOf(v coordination.PeerView, now time.Time) Peer {
	p := Peer{
		Group: v.Key.Group, InstanceID: v.Key.InstanceID, Status: v.Status, Overdue: v.Overdue, LastSeen: v.LastSeen,
		Subscriptions: v.Subs, Incarnation: v.Incarnation, FirstSeen: v.FirstSeen, Intervals: v.Intervals,
		IDConflict: v.IDConflict, OpenOrphans: v.OpenOrphans,
	}
	if h := v.Heartbeat; h != nil {
		p.Labels = h.Labels
		p.LastHeartbeat = &HeartbeatView{
			Timestamp: v.Stamp, ReceivedAt: v.ReceivedAt, Subscriptions: h.Subscriptions,
			InFlightCount: h.InFlightCount, IsLeader: h.IsLeader, LoadFactor: h.LoadFactor,
		}
	}
	if v.HasOffset {
		skew := -v.Offset
		p.ClockSkew = &skew
	}
	if v.Shutdown != nil {
		view := shutdownOf(v.Shutdown)
		p.Shutdown = &view
		left := max(v.Shutdown.Deadline.Sub(now), 0)
		if v.Status == coordination.StatusTerminated {
			left = 0
		}
		p.TimeRemaining = &left
		if v.Overdue {
			p.OverdueSince = v.Shutdown.Deadline
		}
	}
	return p
}

func shutdownOf(r *coordination.ShutdownRecord) ShutdownView {
	return ShutdownView{
		Group: r.Group, InstanceID: r.InstanceID, Intent: r.Intent, InitiatedAt: r.InitiatedAt,
		ExpectedCompletionAt: r.ExpectedCompletionAt, Deadline: r.Deadline, ReceivedAt: r.ReceivedAt,
		Subscriptions: r.Subscriptions, InFlightCount: r.InFlightCount, Metadata: r.Metadata, Incarnation: r.Incarnation,
	}
}

// Peers pages peers by group, then instance id.
func (s *Service) Peers(q PeerQuery) (List[Peer], error) {
	limit, err := q.limit()
	if err != nil {
		return List[Peer]{}, err
	}
	var from coordination.PeerKey
	if q.Cursor != "" {
		place, err := q.decode("p")
		if err != nil || len(place) != 2 {
			return List[Peer]{}, badCursor()
		}
		from = coordination.PeerKey{Group: place[0], InstanceID: place[1]}
	}
	now := s.lock()
	defer s.mu.Unlock()
	pg := peerPage{s: s, q: &q, limit: limit, from: from, now: now}
	pg.list.Items = []Peer{}
	if !q.indexed() && q.Subscription == "" {
		s.eachGroup(q.Group, func(_ string, g *groupIndex) {
			for _, set := range g.chosen(&q) {
				pg.candidates += set.Len()
			}
		})
	}
	s.eachGroup(q.Group, func(name string, g *groupIndex) {
		if q.Subscription != "" {
			pg.walkSubscription(name)
		} else {
			pg.walkGroup(name, g)
		}
	})
	return pg.list, nil
}

func (s *Service) eachGroup(only string, visit func(name string, g *groupIndex)) {
	if only != "" {
		if g, ok := s.index.groups.Get(only); ok {
			visit(only, g)
		}
		return
	}
	s.index.groups.Scan(func(name string, g *groupIndex) bool {
		visit(name, g)
		return true
	})
}

// peerPage collects one page.
type peerPage struct {
	s     *Service
	q     *PeerQuery
	limit int
	from  coordination.PeerKey
	now   time.Time
	list  List[Peer]
	full  bool
	// candidates are those that must be looked at one by one, examined how many were.
	candidates, examined int
}

// maxExamined bounds how many peers one request looks at one by one. Beyond, a search begins at its cursor, ends with
// the page or at the bound, and Total counts what it found.
const maxExamined = 20_000

func (pg *peerPage) bounded() bool { return pg.candidates > maxExamined }

// take offers a matching peer to the page.
func (pg *peerPage) take(k coordination.PeerKey) {
	if pg.s.hidden(k) || (pg.q.Cursor != "" && coordination.ComparePeers(k, pg.from) <= 0) {
		return
	}
	if len(pg.list.Items) < pg.limit {
		if v, ok := pg.s.core.Peer(k); ok {
			pg.list.Items = append(pg.list.Items, peerOf(v, pg.now))
		}
		return
	}
	if !pg.full {
		pg.full = true
		last := pg.list.Items[pg.limit-1]
		pg.list.NextCursor = encodeCursor("p", last.Group, last.InstanceID)
	}
}

// walkSubscription goes through those that list one subscription.
func (pg *peerPage) walkSubscription(group string) {
	for _, k := range pg.s.core.ListedBy(coordination.SubscriptionKey{Group: group, Subscription: pg.q.Subscription}) {
		if pg.matches(k) {
			pg.list.Total++
			pg.take(k)
		}
	}
}

// walkGroup goes through a group's candidates in order. Where the index alone answers, it stops at the end of the page.
func (pg *peerPage) walkGroup(group string, g *groupIndex) {
	sets := g.chosen(pg.q)
	indexed := pg.q.indexed()
	pivot := ""
	if indexed {
		for _, set := range sets {
			pg.list.Total += set.Len() - pg.s.hiddenIn(group, set)
		}
	}
	if indexed || pg.bounded() {
		if pg.full || group < pg.from.Group {
			return
		}
		if group == pg.from.Group {
			pivot = pg.from.InstanceID
		}
	}
	mergeSets(sets, pivot, func(id string) bool {
		k := coordination.PeerKey{Group: group, InstanceID: id}
		if indexed {
			pg.take(k)
			return !pg.full
		}
		return pg.examine(k)
	})
}

// examine looks at one candidate of a search, and reports whether to go on.
func (pg *peerPage) examine(k coordination.PeerKey) bool {
	pg.examined++
	if pg.matches(k) {
		pg.list.Total++
		pg.take(k)
	}
	if !pg.bounded() {
		return true
	}
	if pg.examined >= maxExamined && !pg.full {
		pg.full = true
		pg.list.NextCursor = encodeCursor("p", k.Group, k.InstanceID)
	}
	return !pg.full
}

// hiddenIn counts the hidden peers of a set.
func (s *Service) hiddenIn(group string, set *btree.Set[string]) int {
	n := 0
	for k := range s.removing {
		if k.Group == group && set.Contains(k.InstanceID) {
			n++
		}
	}
	return n
}

func (pg *peerPage) matches(k coordination.PeerKey) bool {
	if pg.s.hidden(k) || !pg.q.matchesID(k.InstanceID) {
		return false
	}
	if len(pg.q.Status) > 0 && !slices.Contains(pg.q.Status, pg.s.core.StatusOf(k)) {
		return false
	}
	if len(pg.q.Labels) == 0 {
		return true
	}
	labels := pg.s.core.Labels(k)
	for name, value := range pg.q.Labels {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// OrphanedSubscriptions is the seed's map: it walks those that are gone, not all peers.
func (s *Service) OrphanedSubscriptions(group string) map[string][]string {
	s.lock()
	defer s.mu.Unlock()
	g, ok := s.index.groups.Get(group)
	if !ok {
		return map[string][]string{}
	}
	var keys []coordination.PeerKey
	for _, st := range []coordination.Status{coordination.StatusDraining, coordination.StatusTerminated, coordination.StatusStale} {
		if set := g.status[st]; set != nil {
			set.Scan(func(id string) bool {
				if k := (coordination.PeerKey{Group: group, InstanceID: id}); !s.hidden(k) {
					keys = append(keys, k)
				}
				return true
			})
		}
	}
	return s.core.Gone(keys)
}

// Conflicts lists subscriptions that more than one healthy peer serves.
func (s *Service) Conflicts(group string) []Conflict {
	s.lock()
	defer s.mu.Unlock()
	recs := s.core.Conflicts(group)
	out := make([]Conflict, len(recs))
	for i, r := range recs {
		out[i] = Conflict{Group: r.Group, Subscription: r.Subscription, Peers: r.Peers, Since: r.Since}
	}
	return out
}

// removal is the durable fact that somebody removed a peer; it goes once the leader concluded it.
type removal struct {
	Group      string    `json:"group"`
	InstanceID string    `json:"instance_id"`
	At         time.Time `json:"at"`
}

// RemovePeer forgets a peer. A nil error means that this is durable.
func (s *Service) RemovePeer(ctx context.Context, k coordination.PeerKey) error {
	now := s.lock()
	_, known := s.core.Peer(k)
	known = known && !s.hidden(k)
	s.mu.Unlock()
	if !known {
		return coordination.ErrNotFound
	}
	value, err := json.Marshal(removal{k.Group, k.InstanceID, now.UTC()})
	if err != nil {
		return err
	}
	revision, err := s.commit(ctx, Txn{Puts: []Put{{peerKey(familyRemoval, k), value}}})
	if err != nil {
		return err
	}
	s.applyRemoval(k, revision)
	s.log.Info("peer removed", "group", k.Group, "instance_id", k.InstanceID)
	return nil
}

// applyRemoval concludes a removal, once, on the leader; the others hide the peer until its records go.
func (s *Service) applyRemoval(k coordination.PeerKey, revision uint64) {
	s.with(func(now time.Time) *coordination.Output {
		switch {
		case s.removed[k] >= revision:
			return &coordination.Output{}
		case !s.leading:
			s.removing[k] = struct{}{}
			return &coordination.Output{Touched: true}
		}
		s.removed[k] = revision
		delete(s.removing, k)
		out, known := s.core.Remove(now, k)
		if !known {
			// The peer is gone already; its removal record still has to go.
			out.Forgotten = append(out.Forgotten, coordination.Forgotten{PeerKey: k})
		}
		return out
	})
}

// CancelDrain takes a shutdown notification back.
func (s *Service) CancelDrain(ctx context.Context, k coordination.PeerKey) (Peer, error) {
	for range maxRaces {
		now := s.lock()
		plan, err := s.core.PlanCancel(now, k)
		s.mu.Unlock()
		if err != nil {
			return Peer{}, err
		}
		err = s.commitShutdown(ctx, plan)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return Peer{}, err
		}
		s.log.Info("drain cancelled", "group", k.Group, "instance_id", k.InstanceID)
		return s.Peer(k)
	}
	return Peer{}, ErrConflict
}
