package coordination

import (
	"slices"
	"time"
)

// PeerRecord is the roster fact of a peer: that it exists and what it last reported, so that peers known before a
// restart are known after it.
type PeerRecord struct {
	Group         string            `json:"group"`
	InstanceID    string            `json:"instance_id"`
	FirstSeen     time.Time         `json:"first_seen"`
	LastSeen      time.Time         `json:"last_seen,omitzero"`
	Timestamp     time.Time         `json:"timestamp,omitzero"`
	Subscriptions []string          `json:"subscriptions"`
	InFlightCount int64             `json:"in_flight_count,omitempty"`
	IsLeader      bool              `json:"is_leader,omitempty"`
	LoadFactor    float64           `json:"load_factor,omitempty"`
	Incarnation   string            `json:"incarnation,omitempty"`
	Superseded    []string          `json:"superseded,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	// Offset is arrival minus stamp at its smallest, when HasOffset: it judges what waited in a queue over a restart.
	Offset    time.Duration `json:"offset,omitempty"`
	HasOffset bool          `json:"has_offset,omitempty"`

	Revision uint64 `json:"-"`
}

// Key is the peer the record belongs to.
func (r *PeerRecord) Key() PeerKey { return PeerKey{r.Group, r.InstanceID} }

// Outdated reports whether a peer was heard more than age after what its newest roster record tells.
func (c *Core) Outdated(k PeerKey, age time.Duration) bool {
	p := c.peer(k)
	return p != nil && p.lastSeen.Sub(p.recorded) > age
}

// PeerRecord is the roster fact to write for a peer.
func (c *Core) PeerRecord(k PeerKey) (PeerRecord, bool) {
	p := c.peer(k)
	if p == nil || p.lastSeen.IsZero() {
		return PeerRecord{}, false
	}
	p.recorded = p.lastSeen
	h := &p.content
	rec := PeerRecord{
		Group: k.Group, InstanceID: k.InstanceID, FirstSeen: p.firstSeen.UTC(), LastSeen: p.lastSeen.UTC(),
		Subscriptions: h.Subscriptions, InFlightCount: h.InFlightCount, IsLeader: h.IsLeader, LoadFactor: h.LoadFactor,
		Incarnation: p.incarnation, Superseded: p.superseded, Labels: h.Labels,
	}
	if p.stamped {
		rec.Timestamp = p.stamp
	}
	rec.Offset, rec.HasOffset = p.clock.smallest()
	return rec, true
}

// ApplyPeer takes a roster fact from the store. A peer that this replica does not know reads unknown until
// it beats or its grace ends; of one it knows, only the age is taken over.
func (c *Core) ApplyPeer(now time.Time, rec PeerRecord) *Output {
	out := c.begin(now)
	p := c.peer(rec.Key())
	if p != nil && !p.lastSeen.IsZero() {
		if rec.FirstSeen.Before(p.firstSeen) {
			p.firstSeen = rec.FirstSeen
		}
		return out
	}
	if p == nil {
		p = c.create(rec.Key(), rec.FirstSeen)
	}
	p.firstSeen, p.since = rec.FirstSeen, now
	p.restored, p.restoredAt, p.lostAt = true, now, c.lost
	p.group.restoredAt = now
	p.lastSeen, p.recorded, p.contentAt = rec.LastSeen, rec.LastSeen, rec.LastSeen
	p.stamp, p.stamped = rec.Timestamp, !rec.Timestamp.IsZero()
	if !p.stamped {
		p.stamp = rec.LastSeen
	}
	p.incarnation, p.superseded = rec.Incarnation, rec.Superseded
	p.content = Heartbeat{
		Group: rec.Group, InstanceID: rec.InstanceID, Timestamp: rec.Timestamp, Subscriptions: rec.Subscriptions, HasSubscriptions: true,
		InFlightCount: rec.InFlightCount, IsLeader: rec.IsLeader, LoadFactor: rec.LoadFactor, Incarnation: rec.Incarnation, Labels: rec.Labels,
	}
	p.busy = busyBeat(&p.content)
	if rec.HasOffset {
		p.clock.sample(rec.Offset)
	}
	if p.status == StatusUnknown {
		c.reserve(p, now)
	}
	if p.shutdown == nil {
		c.moveTo(p, rec.Subscriptions, now)
	} else {
		c.move(p, now, false)
	}
	return out
}

// reserve counts a peer that just became restored as cover: derive sees no edge, its status stays unknown.
func (c *Core) reserve(p *peer, now time.Time) {
	c.setServing(p, p.serving(), now)
	c.countMember(p, now)
}

// ApplyConclusion takes what the leader told about a peer. A follower keeps it for its readers, a
// new leader goes on from it.
func (c *Core) ApplyConclusion(now time.Time, rec ConclusionRecord) *Output {
	out := c.begin(now)
	p := c.peer(rec.Key())
	if p == nil {
		p = c.create(rec.Key(), rec.FirstSeen)
		p.since = now
	}
	p.announced, p.announcedDrains = rec.Announced, rec.AnnouncedDrains
	p.rejoins, p.episodes = max(p.rejoins, rec.Rejoins), max(p.episodes, rec.Episodes)
	if !rec.Since.IsZero() && rec.Announced == p.status {
		p.since = rec.Since
	}
	if rec.Finished && p.shutdown != nil && !p.finished {
		p.finished = true
	}
	c.replaceEpisode(p, rec.Episode)
	c.move(p, now, true)
	return out
}

// replaceEpisode puts the leader's episode in the place of the one held.
func (c *Core) replaceEpisode(p *peer, rec *EpisodeRecord) {
	if e := p.episode; e != nil {
		p.group.open -= e.open()
		for i := range e.Orphans {
			delete(c.orphans, e.Orphans[i].ID)
			c.out.OrphanIDs = append(c.out.OrphanIDs, e.Orphans[i].ID)
			if s := p.group.subs[e.Orphans[i].Subscription]; s != nil {
				delete(s.episodes, p)
				p.group.drop(s)
			}
		}
		p.episode = nil
	}
	if rec == nil {
		return
	}
	e := &episode{*rec}
	p.episode = e
	p.group.open += e.open()
	for i := range e.Orphans {
		c.orphans[e.Orphans[i].ID] = &orphanRef{peer: p, episode: e, index: i}
		c.out.OrphanIDs = append(c.out.OrphanIDs, e.Orphans[i].ID)
		if e.ClosedAt.IsZero() {
			add(&p.group.subscription(e.Orphans[i].Subscription).episodes, p)
		}
	}
	if p.member && p.restored && p.leftStale() {
		p.member = false
		p.group.mass.members--
	}
	c.out.Touched = true
}

// ConclusionRecord is what to write about a peer.
func (c *Core) ConclusionRecord(k PeerKey) (ConclusionRecord, bool) {
	p := c.peer(k)
	if p == nil {
		return ConclusionRecord{}, false
	}
	rec := ConclusionRecord{
		Group: k.Group, InstanceID: k.InstanceID, FirstSeen: p.firstSeen.UTC(), Announced: p.announced, AnnouncedDrains: p.announcedDrains,
		Rejoins: p.rejoins, Finished: p.finished, Since: p.since.UTC(), Episodes: p.episodes,
	}
	if p.episode != nil {
		e := p.episode.EpisodeRecord
		e.Orphans = slices.Clone(e.Orphans)
		rec.Episode = &e
	}
	return rec, true
}

// ApplyForgotten takes that a peer's records are gone: it was removed or its retention ended.
func (c *Core) ApplyForgotten(now time.Time, k PeerKey) *Output {
	out := c.begin(now)
	if p := c.peer(k); p != nil {
		c.dropDirect(p, now)
	}
	return out
}

// ApplyPast takes an episode of history.
func (c *Core) ApplyPast(now time.Time, rec EpisodeRecord) *Output {
	out := c.begin(now)
	e := &episode{rec}
	c.past[rec.Key()] = e
	for i := range e.Orphans {
		if c.orphans[e.Orphans[i].ID] == nil {
			c.orphans[e.Orphans[i].ID] = &orphanRef{episode: e, index: i}
			c.out.OrphanIDs = append(c.out.OrphanIDs, e.Orphans[i].ID)
		}
	}
	return out
}

// PastClosedAt is when an episode of history ended; zero for one that is not known.
func (c *Core) PastClosedAt(k EpisodeKey) time.Time {
	if e := c.past[k]; e != nil {
		return e.ClosedAt
	}
	return time.Time{}
}

// ForgetPast drops an episode of history.
func (c *Core) ForgetPast(now time.Time, k EpisodeKey) *Output {
	out := c.begin(now)
	e := c.past[k]
	if e == nil {
		return out
	}
	delete(c.past, k)
	for i := range e.Orphans {
		if ref := c.orphans[e.Orphans[i].ID]; ref != nil && ref.peer == nil {
			delete(c.orphans, e.Orphans[i].ID)
			out.OrphanIDs = append(out.OrphanIDs, e.Orphans[i].ID)
		}
	}
	return out
}

// ForgetConclusion takes that nothing was ever told about a peer, if it is known.
func (c *Core) ForgetConclusion(now time.Time, k PeerKey) *Output {
	out := c.begin(now)
	if p := c.peer(k); p != nil {
		p.announced, p.announcedDrains, p.episodes = "", 0, 0
		c.replaceEpisode(p, nil)
	}
	return out
}
