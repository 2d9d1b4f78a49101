package coordination

import (
	"slices"
	"time"
)

const (
	maxSuperseded = 8
	keptIntervals = 32
	keptOffsets   = 16
)

// peer is one process of a group. Observation, facts and conclusions are kept apart: observations are
// this replica's own, facts come from the store whoever wrote them, conclusions are the leader's.
type peer struct {
	alarm
	key   PeerKey
	group *group

	// Observation.
	firstSeen time.Time
	lastSeen  time.Time // service's clock, zero when never heard
	recorded  time.Time // lastSeen in the newest roster record
	lostAt    time.Duration
	direct    time.Time // newest heartbeat over HTTP
	// restored: known from the store, not heard by this replica since; reads unknown until its grace ends.
	restored   bool
	silent     bool // turned stale; latched until the next heartbeat
	restoredAt time.Time
	clock      clock
	intervals  [keptIntervals]int32 // milliseconds, ring
	beats      uint64

	content     Heartbeat // newest by stamp; Subscriptions as reported
	stamp       time.Time // of content, sender's clock or arrival
	stamped     bool
	contentAt   time.Time
	busy        bool // an earlier message of this process had work in flight or subscriptions
	incarnation string
	takenOverAt time.Time // when the current incarnation superseded another
	takenStamp  time.Time
	superseded  []string
	ghosts      int // beats of superseded incarnations since takenOverAt
	ghostAt     time.Time
	idConflict  bool
	idConflicts uint64 // episodes so far
	ghostName   string

	// Facts.
	shutdown *ShutdownRecord // the live one, nil when closed or none
	drains   uint64          // newest drain number
	closed   *ShutdownRecord // the newest closed one
	finished bool
	overdue  bool
	busyAt   time.Time // last overdue beat
	idleAt   time.Time // first idle beat with subscriptions after the deadline

	// Derived.
	status Status
	since  time.Time
	// member: counted among the healthy for mass staleness, since memberSince.
	member      bool
	memberSince time.Time
	subs        []string // effective: the notification's, or frozen, or the heartbeat's
	ceased      bool     // stopped serving, and nobody looked yet at what that uncovers

	// Conclusions.
	announced       Status // "" before the first
	announcedDrains uint64
	episode         *episode
	episodes        uint64
	rejoins         uint64
}

// serving: the peer counts as cover. During its grace a restored peer counts as healthy.
func (p *peer) serving() bool {
	return p.status == StatusHealthy || (p.status == StatusUnknown && p.restored)
}

// gone: the peer will not serve, or no longer serves.
func (p *peer) gone() bool {
	return p.status == StatusDraining || p.status == StatusTerminated || p.status == StatusStale
}

// statusAt is the seed's PeerInfo.status: first match wins.
func (c *Core) statusAt(p *peer, now time.Time) Status {
	switch {
	case p.shutdown != nil && (p.finished || drainOver(p.shutdown.Deadline, now)):
		return StatusTerminated
	case p.shutdown != nil:
		return StatusDraining
	case p.lastSeen.IsZero():
		return StatusUnknown
	case c.silentTooLong(p, now):
		return StatusStale
	case p.restored:
		return StatusUnknown
	}
	return StatusHealthy
}

// drainOver: a peer is draining until its deadline and terminated from then.
func drainOver(deadline, now time.Time) bool { return !now.Before(deadline) }

// derive recomputes the status and the indexes that hang on it, and reports whether it moved.
func (c *Core) derive(p *peer, now time.Time) bool {
	next := c.statusAt(p, now)
	if next == p.status {
		return false
	}
	was := p.serving()
	from := p.status
	if next == StatusStale {
		p.restored, p.silent = false, true
	}
	p.group.counts[from]--
	p.group.counts[next]++
	p.status, p.since = next, now
	c.out.Changes = append(c.out.Changes, Change{Key: p.key, From: from, To: next})
	c.out.Touched = true
	if is := p.serving(); is != was {
		c.setServing(p, is, now)
		p.ceased = was
	}
	c.countMember(p, now)
	return true
}

// setSubs replaces the effective subscriptions; it reports whether they changed, and which p dropped.
func (c *Core) setSubs(p *peer, subs []string, now time.Time) (changed bool, dropped []string) {
	if slices.Equal(p.subs, subs) {
		return false, nil
	}
	old := p.subs
	p.subs = subs
	for _, s := range old {
		if !slices.Contains(subs, s) {
			c.unlist(p, s, now)
			dropped = append(dropped, s)
		}
	}
	for _, s := range subs {
		if !slices.Contains(old, s) {
			c.list(p, s, now)
		}
	}
	c.out.Touched = true
	return true, dropped
}

// arm plans the peer's next look: whatever could change it next by the mere passing of time.
func (c *Core) arm(p *peer, now time.Time) {
	if p.removed() {
		return
	}
	c.due.arm(p, c.nextLook(p, now))
}

func (c *Core) nextLook(p *peer, now time.Time) time.Time {
	var at time.Time
	switch p.status {
	case StatusHealthy:
		at = justAfter(c.silenceDeadline(p))
	case StatusUnknown:
		if p.restored {
			at = justAfter(c.silenceDeadline(p))
		} else {
			at = c.forgetAt(p)
		}
	case StatusDraining:
		return p.shutdown.Deadline
	case StatusTerminated:
		if quiet := c.quietAt(p); quiet.After(now) {
			return quiet
		}
		at = c.forgetAt(p)
	case StatusStale:
		at = c.forgetAt(p)
	}
	return at
}

// justAfter turns "strictly older than" into an instant to look at.
func justAfter(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(1)
}

// forgetAt is when a peer without an open orphan is forgotten; zero while it has one. A terminated peer that is still heard
// stays known: its next heartbeat would make it a new, healthy one.
func (c *Core) forgetAt(p *peer) time.Time {
	if p.episode != nil && p.episode.open() > 0 {
		return time.Time{}
	}
	return justAfter(later(p.since.Add(c.cfg.PeerRetention), p.lastSeen, p.group.settings.HeartbeatTimeout))
}

// fire is the peer's alarm when its status did not move.
func (p *peer) fire(c *Core, now time.Time) {
	if p.removed() {
		return
	}
	if p.status == StatusTerminated || p.status == StatusStale || (p.status == StatusUnknown && !p.restored) {
		if at := c.forgetAt(p); c.leading && !at.IsZero() && !now.Before(at) {
			c.forget(p, now, "retention", ResolvedRemoved)
			return
		}
		c.moveClaims(p, now)
	}
	next := c.nextLook(p, now)
	if !next.After(now) {
		// Only a leader forgets; a follower looks again when the records go.
		return
	}
	c.due.arm(p, next)
}

func (p *peer) removed() bool { return p.group.peers[p.key.InstanceID] != p }

// quietAt is when a terminated peer counts as gone for good: it finished, or no overdue beat came for one
// heartbeat timeout after the deadline. The zero time means it has been so all along.
func (c *Core) quietAt(p *peer) time.Time {
	if p.shutdown == nil || (p.finished && p.busyAt.IsZero()) {
		return time.Time{}
	}
	from := p.shutdown.Deadline
	if p.finished {
		from = p.busyAt
	}
	// Overdue beats may have gone unheard while the service itself was interrupted.
	for _, at := range []time.Time{p.busyAt, p.restoredAt, p.group.graceAt, c.busUp} {
		if at.After(from) {
			from = at
		}
	}
	return from.Add(p.group.settings.HeartbeatTimeout)
}

// safe reports whether the peer's work may be started elsewhere.
func (c *Core) safe(p *peer, now time.Time) bool {
	switch p.status {
	case StatusStale:
		return true
	case StatusTerminated:
		return !now.Before(c.quietAt(p))
	}
	return false
}

// Remove forgets a peer at once, as the seed's remove_peer; its open orphans resolve as removed.
// It reports whether the peer was known.
func (c *Core) Remove(now time.Time, k PeerKey) (*Output, bool) {
	out := c.begin(now)
	p := c.peer(k)
	if p == nil {
		return out, false
	}
	c.forget(p, now, "removed", ResolvedRemoved)
	return out, true
}

// forget drops a peer and everything that hangs on it.
func (c *Core) forget(p *peer, now time.Time, reason string, how Resolution) {
	uncovers := p.tells()
	c.closeEpisode(p, now, how)
	c.raise(now, c.id(p, EventPeerRemoved, 0), EventPeerRemoved, EventData{
		Group: p.key.Group, InstanceID: p.key.InstanceID, PreviousStatus: p.status, Reason: reason,
	})
	for _, cl := range slices.Clone(c.holders[p.key]) {
		c.endClaim(cl, now, ClaimExpired)
	}
	c.dropDirect(p, now)
	for _, s := range uncovers {
		c.coverLost(p.group, s)
	}
	c.tellReopened(now)
	c.out.Forgotten = append(c.out.Forgotten, Forgotten{p.key, p.shutdownRevision()})
}

// tells lists what nobody covers or tells of any more once p is gone: what it serves, and its open orphans.
func (p *peer) tells() []string {
	if p.serving() {
		return p.subs
	}
	if p.episode == nil {
		return nil
	}
	return p.episode.openSubs()
}

// dropDirect takes a peer out of every index, without conclusions.
func (c *Core) dropDirect(p *peer, now time.Time) {
	subs := p.subs
	p.subs = nil
	was := p.serving()
	p.group.counts[p.status]--
	if p.overdue {
		p.group.overdue--
		p.overdue = false
	}
	from := p.status
	p.status = StatusTerminated // serves nothing from here on
	p.restored = false
	c.countMember(p, now)
	for _, s := range subs {
		c.unlistAs(p, s, was, now)
	}
	c.retireEpisode(p)
	delete(p.group.peers, p.key.InstanceID)
	c.peers--
	c.out.Changes = append(c.out.Changes, Change{Key: p.key, From: from})
	c.out.Touched = true
	c.dropGroup(p.group)
}
