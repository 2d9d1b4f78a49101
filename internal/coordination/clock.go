package coordination

import "time"

// clock is what a peer's stamps tell about its clock. offset is arrival minus stamp: clock difference
// plus transit; the smallest over the last sixteen beats is the best guess at the difference.
type clock struct {
	offsets [keptOffsets]time.Duration
	n       uint64
	// A suspected step: the first and the newest beat that carry the new offset.
	stepFirst, stepLast stampedBeat
	steps               int
}

type stampedBeat struct{ arrival, stamp time.Time }

// maxOffset keeps absurd stamps within what a Duration can be negated and added to.
const maxOffset = 100 * 365 * 24 * time.Hour

func (k *clock) sample(offset time.Duration) {
	offset = min(max(offset, -maxOffset), maxOffset)
	k.offsets[k.n%keptOffsets] = offset
	k.n++
	k.steps = 0
}

// smallest is the least offset seen lately; false before the first stamped beat.
func (k *clock) smallest() (time.Duration, bool) {
	if k.n == 0 {
		return 0, false
	}
	least := k.offsets[0]
	for _, o := range k.offsets[1:min(k.n, keptOffsets)] {
		least = min(least, o)
	}
	return least, true
}

// suspect records a first-hand beat whose stamp does not fit the clock known so far, and reports whether it
// settles that the clock stepped: three such beats, spaced by their stamps as by their arrival
// within 20 %, over at least half a timeout.
func (k *clock) suspect(b stampedBeat, timeout time.Duration) bool {
	if k.steps > 0 && !spacedAlike(k.stepLast, b) {
		k.steps = 0
	}
	if k.steps == 0 {
		k.stepFirst = b
	}
	k.stepLast = b
	k.steps++
	if k.steps < 3 || b.arrival.Sub(k.stepFirst.arrival) < timeout/2 {
		return false
	}
	k.reset(b.arrival.Sub(b.stamp))
	return true
}

func (k *clock) reset(offset time.Duration) {
	*k = clock{}
	k.sample(offset)
}

// spacedAlike compares arrival spacing with stamp spacing within 20 %.
func spacedAlike(a, b stampedBeat) bool {
	arrived, stamped := b.arrival.Sub(a.arrival), b.stamp.Sub(a.stamp)
	diff := arrived - stamped
	if diff < 0 {
		diff = -diff
	}
	return diff <= arrived/5
}
