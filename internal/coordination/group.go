package coordination

import (
	"maps"
	"slices"
	"time"
)

// statuses indexes counts by status.
type statuses map[Status]int

// group is one workload.
type group struct {
	name     string
	settings GroupSettings
	peers    map[string]*peer
	subs     map[string]*subscription
	counts   statuses

	overdue   int
	open      int // orphans not resolved
	contested map[*subscription]struct{}

	// graceAt is the end of the last pause of the service that was long for this group, judgeAt likewise.
	graceAt    time.Time
	judgeAt    time.Time
	restoredAt time.Time

	mass massStaleness
}

func newGroup(name string, s GroupSettings) *group {
	return &group{
		name: name, settings: s, peers: map[string]*peer{}, subs: map[string]*subscription{}, counts: statuses{},
		contested: map[*subscription]struct{}{},
	}
}

// inOrder lists the group's peers by name.
func (g *group) inOrder() []*peer {
	peers := make([]*peer, 0, len(g.peers))
	for _, id := range slices.Sorted(maps.Keys(g.peers)) {
		peers = append(peers, g.peers[id])
	}
	return peers
}

// MassRecord is the leader's conclusion that a group is in mass staleness: the end of the hold is
// stored, kept by the next leader and never extended.
type MassRecord struct {
	Group     string    `json:"group"`
	Number    uint64    `json:"number"`
	HeldUntil time.Time `json:"held_until,omitzero"`
	Stale     int       `json:"stale"`
	Peers     int       `json:"peers"`
}

// massStaleness watches for half of a group turning stale within one timeout: that is rather the network's or
// the service's trouble than the peers'.
type massStaleness struct {
	alarm
	group  *group
	record MassRecord
	// members are the healthy peers now, young those of them that became so within the last timeout.
	members int
	young   int
	entries []entry
	exits   []exit
}

type entry struct {
	peer *peer
	at   time.Time
}

type exit struct {
	peer  *peer
	since time.Time // member since
	at    time.Time
	stale bool
}

func (m *massStaleness) holding() bool { return !m.record.HeldUntil.IsZero() }

// countMember keeps the healthy count of the group. A restored peer counts as healthy during its grace,
// unless it has an open stale orphan: such peers count on neither side.
func (c *Core) countMember(p *peer, now time.Time) {
	is := p.status == StatusHealthy || (p.status == StatusUnknown && p.restored && !p.leftStale())
	if is == p.member {
		return
	}
	m := &p.group.mass
	m.prune(p.group, now)
	p.member = is
	if is {
		p.memberSince = now
		if p.restored {
			p.memberSince = time.Time{}
		} else {
			m.young++
			m.entries = append(m.entries, entry{p, now})
		}
		m.members++
		return
	}
	m.members--
	if m.isYoung(p.group, p.memberSince, now) {
		m.young--
	}
	m.exits = append(m.exits, exit{p, p.memberSince, now, p.status == StatusStale})
}

func (p *peer) leftStale() bool {
	return p.episode != nil && p.episode.ClosedAt.IsZero() && p.announced == StatusStale && p.episode.open() > 0
}

// isYoung: not healthy yet one timeout before now.
func (m *massStaleness) isYoung(g *group, since, now time.Time) bool {
	return !since.IsZero() && since.After(now.Add(-g.settings.HeartbeatTimeout))
}

// prune forgets what happened more than one timeout ago.
func (m *massStaleness) prune(g *group, now time.Time) {
	edge := now.Add(-g.settings.HeartbeatTimeout)
	for len(m.entries) > 0 && !m.entries[0].at.After(edge) {
		if e := m.entries[0]; e.peer.member && e.peer.memberSince.Equal(e.at) {
			m.young--
		}
		m.entries = m.entries[1:]
	}
	for len(m.exits) > 0 && !m.exits[0].at.After(edge) {
		m.exits = m.exits[1:]
	}
}

// minMass is the least number of peers that can be a mass.
const minMass = 4

// judgeMass enters mass staleness when at least half of the peers that were healthy one timeout earlier, four at
// least, have turned stale since.
func (c *Core) judgeMass(g *group, now time.Time) {
	m := &g.mass
	if !c.leading || m.holding() {
		return
	}
	m.prune(g, now)
	healthy, stale := m.members-m.young, 0
	for _, e := range m.exits {
		if m.isYoung(g, e.since, now) {
			continue
		}
		if e.peer.member && !m.isYoung(g, e.peer.memberSince, now) {
			continue // counted among the members already
		}
		healthy++
		if e.stale && e.peer.status == StatusStale && !e.peer.removed() {
			stale++
		}
	}
	if healthy < minMass || 2*stale < healthy {
		return
	}
	m.group = g
	m.record = MassRecord{
		Group: g.name, Number: m.record.Number + 1, HeldUntil: now.Add(g.settings.HeartbeatTimeout), Stale: stale, Peers: healthy,
	}
	c.saveMass(g)
	c.due.arm(m, m.record.HeldUntil)
	c.raiseMass(g, now, EventGroupMassStaleness)
}

func (c *Core) raiseMass(g *group, now time.Time, t EventType) {
	r := g.mass.record
	c.raise(now, c.idFor(g.name, "", t, r.Number), t, EventData{
		Group: g.name, StaleCount: r.Stale, PeerCount: r.Peers, HeldUntil: optional(r.HeldUntil),
	})
}

// fire ends the hold: orphans of those still stale are told now.
func (m *massStaleness) fire(c *Core, now time.Time) {
	if !m.holding() {
		return
	}
	if now.Before(m.record.HeldUntil) {
		c.due.arm(m, m.record.HeldUntil)
		return
	}
	if !c.leading {
		return
	}
	c.raiseMass(m.group, now, EventGroupMassStalenessEnded)
	m.record.HeldUntil = time.Time{}
	c.saveMass(m.group)
	for _, p := range m.group.inOrder() {
		if p.episode != nil && p.episode.ClosedAt.IsZero() {
			c.releaseHeld(p, now)
		}
	}
}

func (c *Core) saveMass(g *group) {
	c.out.Mass = append(c.out.Mass, g.name)
	c.out.Touched = true
}

// MassRecord is the conclusion to write for a group.
func (c *Core) MassRecord(name string) MassRecord { return c.group(name).mass.record }

// ApplyMass takes the leader's conclusion from the store.
func (c *Core) ApplyMass(rec MassRecord) {
	g := c.group(rec.Group)
	g.mass.group, g.mass.record = g, rec
	c.due.arm(&g.mass, rec.HeldUntil)
}
