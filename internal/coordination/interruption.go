package coordination

import "time"

// ShortGap is the pause between two of the service's own looks below which nothing is made up for.
const ShortGap = 500 * time.Millisecond

// Paused tells the core that its owner did not look for gap, which ended at now. A gap above
// ShortGap is added to all silence deadlines; one above half a heartbeat timeout gives
// every peer of the group one full timeout from now. To be called before any other input after the gap.
func (c *Core) Paused(now time.Time, gap time.Duration) {
	if gap > ShortGap {
		c.lost += gap
	}
	for _, g := range c.groups {
		if pausedLong(gap, g.settings.HeartbeatTimeout) {
			g.graceAt = now
			g.judgeAt = now
		}
	}
}

// pausedLong: a pause is a gap above half the heartbeat timeout and at least ShortGap.
func pausedLong(gap, timeout time.Duration) bool { return gap > timeout/2 && gap >= ShortGap }

// BusDown tells that this replica stopped hearing the bus at now.
func (c *Core) BusDown(now time.Time) *Output {
	out := c.begin(now)
	if !c.busDown {
		c.busDown, c.busLoss = true, now
		out.Touched = true
	}
	return out
}

// BusUp tells that consuming resumed: peers that are not heard over HTTP get their grace from here.
func (c *Core) BusUp(now time.Time) *Output {
	// Not begin: whoever the loss protected must not be judged before the grace is granted.
	c.out.reset()
	if c.busDown {
		c.busDown, c.busUp = false, now
		c.judgeAt = now
		c.rearmAll(now)
		c.out.Touched = true
	}
	c.advance(now)
	return &c.out
}

// SetReplicas tells whether other replicas are registered: while the bus is away they may
// hear the peers that this one does not, so nobody turns stale.
func (c *Core) SetReplicas(now time.Time, others bool) *Output {
	out := c.begin(now)
	if c.hasPeers != others {
		c.hasPeers = others
		c.rearmAll(now)
	}
	return out
}

func (c *Core) rearmAll(now time.Time) {
	for _, g := range c.groups {
		for _, p := range g.peers {
			c.arm(p, now)
		}
	}
}

// silenceDeadline is the last instant at which the peer is not yet stale; the zero time means that it cannot turn
// stale now, because this replica does not hear it through no fault of its own.
func (c *Core) silenceDeadline(p *peer) time.Time {
	timeout := p.group.settings.HeartbeatTimeout
	from := p.lastSeen
	if p.restored {
		from = p.restoredAt
	}
	deadline := from.Add(timeout + c.lost - p.lostAt)
	deadline = later(deadline, p.group.graceAt, timeout)
	if p.direct.IsZero() || p.direct.Before(c.busLoss) {
		if c.busDown {
			return time.Time{}
		}
		deadline = later(deadline, c.busUp, timeout)
	} else if c.busDown && c.hasPeers {
		return time.Time{}
	}
	return deadline
}

// later returns the later of deadline and one timeout after from, where from is set.
func later(deadline, from time.Time, timeout time.Duration) time.Time {
	if from.IsZero() {
		return deadline
	}
	if at := from.Add(timeout); at.After(deadline) {
		return at
	}
	return deadline
}

// silentTooLong: stale means strictly older than the timeout. Once stale, only a heartbeat helps: a grace
// that starts later does not bring anybody back.
func (c *Core) silentTooLong(p *peer, now time.Time) bool {
	if p.silent {
		return true
	}
	deadline := c.silenceDeadline(p)
	return !deadline.IsZero() && now.After(deadline)
}

// judging: a message that arrives within one timeout after the replica's own pause or reconnect may have
// waited in a queue, so its transit is judged.
func (c *Core) judging(g *group, now time.Time) bool {
	return within(g.judgeAt, g.settings.HeartbeatTimeout, now) || within(c.judgeAt, g.settings.HeartbeatTimeout, now)
}

func within(from time.Time, d time.Duration, now time.Time) bool {
	return !from.IsZero() && !now.After(from.Add(d))
}

// GraceUntil is the end of the longest grace that runs at now, zero when none does.
func (c *Core) GraceUntil(now time.Time) time.Time {
	var until time.Time
	for _, g := range c.groups {
		for _, from := range []time.Time{g.graceAt, c.busUp, g.restoredAt} {
			if end := from.Add(g.settings.HeartbeatTimeout); !from.IsZero() && end.After(now) && end.After(until) {
				until = end
			}
		}
	}
	return until
}
