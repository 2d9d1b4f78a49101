package coordination

import (
	"container/heap"
	"time"
)

// alarm is embedded by everything that can fall due. A deadline that moves later leaves
// its heap entry alone: when that pops, the owner looks again and re-arms. So a heartbeat costs the heap nothing.
type alarm struct{ at time.Time }

type timed interface {
	alarmOf() *alarm
	// fire handles the alarm at now; it re-arms itself when the true deadline is still ahead.
	fire(c *Core, now time.Time)
}

func (a *alarm) alarmOf() *alarm { return a }

type timerEntry struct {
	at    time.Time
	owner timed
}

type timerHeap []timerEntry

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)        { *h = append(*h, x.(timerEntry)) }
func (h *timerHeap) Pop() any {
	old := *h
	n := len(old) - 1
	e := old[n]
	old[n] = timerEntry{}
	*h = old[:n]
	return e
}

type timers struct{ heap timerHeap }

// arm makes owner fire at `at` or earlier; a zero time arms nothing.
func (t *timers) arm(owner timed, at time.Time) {
	a := owner.alarmOf()
	if at.IsZero() || (!a.at.IsZero() && !at.Before(a.at)) {
		return
	}
	a.at = at
	heap.Push(&t.heap, timerEntry{at, owner})
}

// pop takes the next alarm that is due at now.
func (t *timers) pop(now time.Time) timed {
	for len(t.heap) > 0 && !t.heap[0].at.After(now) {
		e := heap.Pop(&t.heap).(timerEntry)
		if a := e.owner.alarmOf(); a.at.Equal(e.at) {
			a.at = time.Time{}
			return e.owner
		}
	}
	return nil
}

func (t *timers) next() time.Time {
	if len(t.heap) == 0 {
		return time.Time{}
	}
	return t.heap[0].at
}

// advance lets everything fire that is due. Peers change status first, all of them: whatever else is due, mass staleness
// and all conclusions look at statuses as of now. Peers are forgotten last, when everybody else's absence has been told.
func (c *Core) advance(now time.Time) {
	if next := c.due.next(); next.IsZero() || next.After(now) {
		return
	}
	for {
		var moved, still []*peer
		var rest []timed
		for owner := c.due.pop(now); owner != nil; owner = c.due.pop(now) {
			switch p, ok := owner.(*peer); {
			case !ok:
				rest = append(rest, owner)
			case p.removed(): // its alarm outlived it
			case c.derive(p, now):
				moved = append(moved, p)
			default:
				still = append(still, p)
			}
		}
		if len(moved)+len(still)+len(rest) == 0 {
			return
		}
		for _, owner := range rest {
			owner.fire(c, now)
		}
		c.settle(now, moved)
		for _, p := range still {
			p.fire(c, now)
		}
	}
}

// settle concludes for peers whose status moved in one sweep.
func (c *Core) settle(now time.Time, moved []*peer) {
	judged := map[*group]bool{}
	for _, p := range moved {
		if p.status == StatusStale && !judged[p.group] {
			judged[p.group] = true
			c.judgeMass(p.group, now)
		}
	}
	for _, p := range moved {
		c.conclude(p, now)
		c.arm(p, now)
	}
	for _, p := range moved {
		c.settleCover(p, now)
	}
	c.tellReopened(now)
}
