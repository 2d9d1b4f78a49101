package coordination

import (
	"cmp"
	"slices"
	"time"
)

// PeerView is a copy of one peer for readers.
type PeerView struct {
	Key         PeerKey
	Status      Status
	Since       time.Time
	Overdue     bool
	FirstSeen   time.Time
	LastSeen    time.Time
	Heartbeat   *Heartbeat
	Stamp       time.Time
	ReceivedAt  time.Time
	Shutdown    *ShutdownRecord
	Subs        []string
	Offset      time.Duration
	HasOffset   bool
	Incarnation string
	Intervals   []time.Duration
	IDConflict  bool
	OpenOrphans int
}

// Peer copies one peer as of the last input.
func (c *Core) Peer(k PeerKey) (PeerView, bool) {
	p := c.peer(k)
	if p == nil {
		return PeerView{}, false
	}
	v := PeerView{
		Key: k, Status: p.status, Since: p.since, Overdue: p.overdue, FirstSeen: p.firstSeen, LastSeen: p.lastSeen,
		Shutdown: p.shutdown, Subs: p.subs, Incarnation: p.incarnation, IDConflict: p.idConflict,
	}
	if !p.contentAt.IsZero() {
		h := p.content
		v.Heartbeat, v.Stamp, v.ReceivedAt = &h, p.stamp, p.contentAt
	}
	v.Offset, v.HasOffset = p.clock.smallest()
	for i := max(p.beats, keptIntervals) - keptIntervals; i < p.beats; i++ {
		v.Intervals = append(v.Intervals, time.Duration(p.intervals[i%keptIntervals])*time.Millisecond)
	}
	if p.episode != nil {
		v.OpenOrphans = p.episode.open()
	}
	return v, true
}

// StatusOf is the status of a peer as of the last input; unknown for nobody.
func (c *Core) StatusOf(k PeerKey) Status {
	if p := c.peer(k); p != nil {
		return p.status
	}
	return StatusUnknown
}

// Labels of a peer's newest heartbeat.
func (c *Core) Labels(k PeerKey) map[string]string {
	if p := c.peer(k); p != nil {
		return p.content.Labels
	}
	return nil
}

// ListedBy names every peer of a group with the subscription among its effective ones, in order.
func (c *Core) ListedBy(k SubscriptionKey) []PeerKey {
	g := c.groups[k.Group]
	if g == nil || g.subs[k.Subscription] == nil {
		return nil
	}
	s := g.subs[k.Subscription]
	keys := make([]PeerKey, 0, len(s.listed))
	for p := range s.listed {
		keys = append(keys, p.key)
	}
	slices.SortFunc(keys, ComparePeers)
	return keys
}

// ComparePeers orders by group, then instance id.
func ComparePeers(a, b PeerKey) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.InstanceID, b.InstanceID))
}

// OrphanView is a copy of one orphan for readers.
type OrphanView struct {
	OrphanRecord
	Episode   EpisodeRecord
	HeldUntil time.Time
	Claim     *ClaimRecord
	// Live: the peer is still gone; history otherwise.
	Live bool
}

// Orphan copies one orphan.
func (c *Core) Orphan(id string) (OrphanView, bool) {
	ref := c.orphans[id]
	if ref == nil {
		return OrphanView{}, false
	}
	v := OrphanView{OrphanRecord: ref.episode.Orphans[ref.index], Episode: ref.episode.EpisodeRecord, Live: ref.peer != nil}
	v.Episode.Orphans = nil
	if g := c.groups[v.Episode.Group]; g != nil && v.State != OrphanResolved {
		if v.State == OrphanHeld {
			v.HeldUntil = g.mass.record.HeldUntil
		}
		if s := g.subs[v.Subscription]; s != nil && s.claim != nil && s.claim.active() {
			rec := s.claim.ClaimRecord
			v.Claim = &rec
		}
	}
	return v, true
}

// GroupView counts one group.
type GroupView struct {
	Name           string
	Settings       GroupSettings
	Peers          map[Status]int
	Total          int
	Overdue        int
	OpenOrphans    int
	Conflicts      int
	MassStaleUntil time.Time
}

// GroupViews counts every group that has or had peers, by name.
func (c *Core) GroupViews() []GroupView {
	views := make([]GroupView, 0, len(c.groups))
	for _, g := range c.groups {
		if len(g.peers) == 0 && g.open == 0 {
			continue
		}
		v := GroupView{
			Name: g.name, Settings: g.settings, Peers: map[Status]int{}, Total: len(g.peers), Overdue: g.overdue,
			OpenOrphans: g.open, Conflicts: len(g.contested), MassStaleUntil: g.mass.record.HeldUntil,
		}
		for s, n := range g.counts {
			v.Peers[s] = n
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b GroupView) int { return cmp.Compare(a.Name, b.Name) })
	return views
}

// OpenClaims counts active claims.
func (c *Core) OpenClaims() int { return c.openClaims }

// Gone lists those of a group's peers that are draining, terminated or stale with what they leave behind: the seed's
// get_orphaned_subscriptions. Peers with no subscriptions are absent.
func (c *Core) Gone(keys []PeerKey) map[string][]string {
	gone := map[string][]string{}
	for _, k := range keys {
		if p := c.peer(k); p != nil && p.gone() && len(p.subs) > 0 {
			gone[k.InstanceID] = p.subs
		}
	}
	return gone
}

// Conflicts copies the open conflicts of a group ("" for all), in order.
func (c *Core) Conflicts(group string) []ConflictRecord {
	var recs []ConflictRecord
	for _, g := range c.groups {
		if group != "" && g.name != group {
			continue
		}
		for s := range g.contested {
			rec := *s.conflict
			rec.Peers = names(s.serving, nil)
			recs = append(recs, rec)
		}
	}
	slices.SortFunc(recs, func(a, b ConflictRecord) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Subscription, b.Subscription))
	})
	return recs
}
