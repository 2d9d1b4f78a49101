package coordination

import (
	"maps"
	"slices"
	"time"
)

// HeartbeatResult is what one heartbeat did.
type HeartbeatResult struct {
	Status  Status
	Outcome Outcome
}

// Heartbeat applies one heartbeat, received now. The result's error is ErrLimit for a new peer beyond the limits; nothing is
// changed then. hb is not retained, its slices and maps are.
func (c *Core) Heartbeat(now time.Time, hb *Heartbeat, a Arrival) (*Output, HeartbeatResult, error) {
	out := c.begin(now)
	k := hb.Key()
	p := c.peer(k)
	if p == nil {
		if a.Relayed && a.Age > c.HeartbeatTimeout(k.Group) {
			return out, HeartbeatResult{StatusUnknown, OutcomeIgnoredStale}, nil
		}
		var err error
		if p, err = c.admit(now, k); err != nil {
			return out, HeartbeatResult{}, err
		}
		c.flush(p)
	}
	outcome := c.beat(p, now, hb, a)
	return out, HeartbeatResult{p.status, outcome}, nil
}

func (c *Core) beat(p *peer, now time.Time, hb *Heartbeat, a Arrival) Outcome {
	if p.isSuperseded(hb.Incarnation) {
		c.ghostBeat(p, now, hb)
		return OutcomeIgnoredStale
	}
	if a.Relayed && a.Age > p.group.settings.HeartbeatTimeout {
		return OutcomeIgnoredStale
	}
	restarted := hb.Incarnation != "" && p.incarnation != "" && hb.Incarnation != p.incarnation
	if !restarted && !a.Relayed && c.waited(p, now, hb) {
		return OutcomeIgnoredStale
	}
	if restarted {
		c.supersede(p, now, hb)
	} else if hb.Incarnation != "" && p.incarnation == "" {
		p.incarnation = hb.Incarnation
		c.flush(p)
	}
	newest := restarted || c.isNewest(p, now, hb, a)
	c.hear(p, now, a)
	outcome := OutcomeIgnoredOlder
	if newest {
		outcome = OutcomeAccepted
		c.takeContent(p, now, hb, a)
		p.busy = p.busy || busyBeat(hb)
	}
	if p.shutdown != nil && newest && c.drainBeat(p, now, hb) {
		outcome = OutcomeRejoined
		c.rejoin(p, now)
	}
	c.endIDConflict(p, now)
	if newest && p.shutdown == nil {
		c.moveTo(p, p.content.Subscriptions, now)
	} else {
		c.move(p, now, false)
	}
	return outcome
}

// moveTo gives the peer its effective subscriptions, then moves it.
func (c *Core) moveTo(p *peer, subs []string, now time.Time) {
	changed, dropped := c.setSubs(p, subs, now)
	c.move(p, now, changed)
	for _, s := range dropped {
		c.coverLost(p.group, s)
	}
	c.tellReopened(now)
}

// move derives the status and draws the conclusions; those about its subscriptions only where something about
// them changed, so that a heartbeat that brings nothing new costs nothing per subscription.
func (c *Core) move(p *peer, now time.Time, subsChanged bool) {
	moved := c.derive(p, now)
	c.conclude(p, now)
	if p.status == StatusTerminated {
		c.moveClaims(p, now)
	}
	c.arm(p, now)
	if moved || subsChanged {
		c.settleCover(p, now)
	}
}

// waited reports whether the heartbeat waited in a queue longer than one timeout: it then says nothing about
// whether the peer lives.
func (c *Core) waited(p *peer, now time.Time, hb *Heartbeat) bool {
	timeout := p.group.settings.HeartbeatTimeout
	least, known := p.clock.smallest()
	if hb.Timestamp.IsZero() || !known || !c.judging(p.group, now) {
		return false
	}
	if now.Sub(hb.Timestamp)-least <= timeout {
		return false
	}
	// It may as well be a clock that was set back: three spaced alike settle it.
	return !p.clock.suspect(stampedBeat{now, hb.Timestamp}, timeout)
}

// isNewest decides whether the heartbeat's content replaces what is held, by the sender's own clock.
func (c *Core) isNewest(p *peer, now time.Time, hb *Heartbeat, a Arrival) bool {
	if hb.Timestamp.IsZero() || !p.stamped || !hb.Timestamp.Before(p.stamp) {
		return true
	}
	timeout := p.group.settings.HeartbeatTimeout
	if a.Relayed || p.stamp.Sub(hb.Timestamp) <= timeout {
		return false
	}
	return p.clock.suspect(stampedBeat{now, hb.Timestamp}, timeout)
}

// hear refreshes liveness.
func (c *Core) hear(p *peer, now time.Time, a Arrival) {
	at := now
	if a.Relayed {
		at = now.Add(-a.Age)
	}
	if !p.lastSeen.IsZero() && !p.restored {
		p.intervals[p.beats%keptIntervals] = int32(min(at.Sub(p.lastSeen).Milliseconds(), 1<<30))
		p.beats++
	}
	if p.restored || p.silent || at.After(p.lastSeen) {
		p.lastSeen, p.lostAt = at, c.lost
	}
	if a.Entrance == EntranceHTTP && !a.Relayed {
		p.direct = now
	}
	p.restored, p.silent = false, false
}

// takeContent makes hb the newest heartbeat held.
func (c *Core) takeContent(p *peer, now time.Time, hb *Heartbeat, a Arrival) {
	p.stamp, p.stamped = hb.Timestamp, !hb.Timestamp.IsZero()
	switch {
	case !p.stamped:
		p.stamp = now
	case !a.Relayed:
		p.clock.sample(now.Sub(hb.Timestamp))
	}
	if !slices.Equal(p.content.Subscriptions, hb.Subscriptions) || !maps.Equal(p.content.Labels, hb.Labels) {
		c.flush(p)
		c.out.Touched = true
	}
	p.content = *hb
	p.contentAt = now
}

// busyBeat: the beat shows work or subscriptions.
func busyBeat(hb *Heartbeat) bool { return hb.InFlightCount > 0 || len(hb.Subscriptions) > 0 }

// drainBeat handles a beat of a peer with a live notification and reports whether the peer rejoined.
func (c *Core) drainBeat(p *peer, now time.Time, hb *Heartbeat) bool {
	n := p.shutdown
	if hb.Incarnation != "" && n.Incarnation != "" && hb.Incarnation != n.Incarnation {
		return true
	}
	if !p.finished && !drainOver(n.Deadline, now) {
		if p.busy && hb.HasInFlight && hb.HasSubscriptions && !busyBeat(hb) {
			p.finished = true
		}
		return false
	}
	return c.lateBeat(p, now, hb)
}

// lateBeat is a beat after the drain ended: overdue work, a finished process, or one that came back.
func (c *Core) lateBeat(p *peer, now time.Time, hb *Heartbeat) (rejoined bool) {
	switch {
	case hb.InFlightCount > 0:
		p.busyAt, p.idleAt = now, time.Time{}
		c.setOverdue(p, true)
	case len(hb.Subscriptions) > 0:
		c.setOverdue(p, false)
		if p.idleAt.IsZero() {
			p.idleAt = now
			return false
		}
		third := p.group.settings.HeartbeatTimeout / 3
		return now.Sub(p.idleAt) >= third && (p.busyAt.IsZero() || now.Sub(p.busyAt) >= third)
	default:
		c.setOverdue(p, false)
		p.idleAt = time.Time{}
		if !p.finished && hb.HasInFlight && hb.HasSubscriptions {
			p.finished, p.busyAt = true, time.Time{}
			c.saveConclusion(p)
		}
	}
	return false
}

func (c *Core) setOverdue(p *peer, overdue bool) {
	if p.overdue == overdue {
		return
	}
	p.overdue = overdue
	if overdue {
		p.group.overdue++
	} else {
		p.group.overdue--
	}
	c.out.Touched = true
}

// rejoin closes the notification: the peer is back, its status comes from its heartbeats.
func (c *Core) rejoin(p *peer, now time.Time) {
	c.closeShutdown(p, ClosedRejoined, now)
	p.rejoins++
}

func (c *Core) closeShutdown(p *peer, how string, now time.Time) {
	closed := *p.shutdown
	closed.Closed, closed.ClosedAt = how, now
	p.closed, p.shutdown = &closed, nil
	p.finished, p.idleAt, p.busyAt = false, time.Time{}, time.Time{}
	c.setOverdue(p, false)
	c.out.Closed = append(c.out.Closed, p.key)
	c.out.Touched = true
}

func (p *peer) isSuperseded(incarnation string) bool {
	return incarnation != "" && slices.Contains(p.superseded, incarnation)
}

// supersede makes hb's incarnation the current one: the process was restarted under the same id.
func (c *Core) supersede(p *peer, now time.Time, hb *Heartbeat) {
	p.replaceIncarnation(hb.Incarnation, now, hb.Timestamp)
	p.stamped, p.busy = false, false
	p.clock = clock{} // another process may run on another machine
	c.flush(p)
}

func (p *peer) replaceIncarnation(next string, now, stamp time.Time) {
	if p.incarnation != "" {
		p.superseded = append(p.superseded, p.incarnation)
		if len(p.superseded) > maxSuperseded {
			p.superseded = p.superseded[1:]
		}
	}
	p.incarnation = next
	p.takenOverAt, p.takenStamp, p.ghosts = now, stamp, 0
}

// ghostBeat is a beat of a superseded incarnation. One may have been under way when the process was
// restarted; one that was stamped after the restart, or a second one, shows two processes under one id.
func (c *Core) ghostBeat(p *peer, now time.Time, hb *Heartbeat) {
	c.endIDConflict(p, now)
	p.ghosts++
	timeout := p.group.settings.HeartbeatTimeout
	late := !hb.Timestamp.IsZero() && !p.takenStamp.IsZero() && hb.Timestamp.After(p.takenStamp)
	unstamped := hb.Timestamp.IsZero()
	p.ghostAt, p.ghostName = now, hb.Incarnation
	if p.idConflict || now.Sub(p.lastSeen) > timeout || (!late && !unstamped && p.ghosts < 2) {
		return
	}
	p.idConflict = true
	p.idConflicts++
	c.raise(now, c.id(p, EventPeerIDConflict, uint64(p.takenOverAt.UnixNano())+p.idConflicts), EventPeerIDConflict, EventData{
		Group: p.key.Group, InstanceID: p.key.InstanceID, Status: p.status,
		Incarnation: p.incarnation, Incarnations: []string{hb.Incarnation, p.incarnation},
	})
	c.out.Touched = true
}

// endIDConflict closes the episode once the superseded incarnation was silent for longer than one timeout.
func (c *Core) endIDConflict(p *peer, now time.Time) {
	if p.idConflict && now.Sub(p.ghostAt) > p.group.settings.HeartbeatTimeout {
		p.idConflict, p.ghosts = false, 0
		c.out.Touched = true
	}
}

// flush asks for the peer's roster record to be written.
func (c *Core) flush(p *peer) {
	c.out.Peers = append(c.out.Peers, p.key)
}
