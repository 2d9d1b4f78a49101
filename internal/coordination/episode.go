package coordination

import (
	"maps"
	"slices"
	"time"
)

// OrphanState is where an orphan is in its life.
type OrphanState string

// The states of an orphan. A held one is open but not told yet (mass staleness), and cannot be claimed.
const (
	OrphanOpen     OrphanState = "open"
	OrphanHeld     OrphanState = "held"
	OrphanResolved OrphanState = "resolved"
)

// OrphanRecord is one subscription of an episode.
type OrphanRecord struct {
	ID           string      `json:"id"`
	Subscription string      `json:"subscription"`
	State        OrphanState `json:"state"`
	Resolution   Resolution  `json:"resolution,omitempty"`
	OpenedAt     time.Time   `json:"opened_at"`
	ResolvedAt   time.Time   `json:"resolved_at,omitzero"`
	CoveredBy    []string    `json:"covered_by,omitempty"`
	// Told: an orphan.detected named it uncovered.
	Told          bool   `json:"told,omitempty"`
	DismissReason string `json:"dismiss_reason,omitempty"`
}

// EpisodeKey names an episode. Life tells two peers of one name apart, one removed before the other came.
type EpisodeKey struct {
	PeerKey
	Life   int64
	Number uint64
}

// EpisodeRecord is one absence of one peer, with all subscriptions it left behind.
type EpisodeRecord struct {
	Group      string    `json:"group"`
	InstanceID string    `json:"instance_id"`
	Life       int64     `json:"life"`
	Number     uint64    `json:"number"`
	Cause      Status    `json:"cause"`
	Intent     Intent    `json:"intent,omitempty"`
	OpenedAt   time.Time `json:"opened_at"`
	ClosedAt   time.Time `json:"closed_at,omitzero"`
	Deadline   time.Time `json:"deadline,omitzero"`
	LastSeen   time.Time `json:"last_seen,omitzero"`
	// Detections counts the orphan.detected raised.
	Detections uint64         `json:"detections"`
	Orphans    []OrphanRecord `json:"orphans"`
}

// Key is the episode's name.
func (r *EpisodeRecord) Key() EpisodeKey {
	return EpisodeKey{PeerKey{r.Group, r.InstanceID}, r.Life, r.Number}
}

// ConclusionRecord is what the leader has told about a peer. It is written in one transaction with the events
// that told it: a record one behind is how the next leader knows what is still to be told.
type ConclusionRecord struct {
	Group           string         `json:"group"`
	InstanceID      string         `json:"instance_id"`
	FirstSeen       time.Time      `json:"first_seen"`
	Announced       Status         `json:"announced"`
	AnnouncedDrains uint64         `json:"announced_drains"`
	Rejoins         uint64         `json:"rejoins"`
	Finished        bool           `json:"finished,omitempty"`
	Since           time.Time      `json:"since"`
	Episodes        uint64         `json:"episodes"`
	Episode         *EpisodeRecord `json:"episode,omitempty"`
}

// Key is the peer the record belongs to.
func (r *ConclusionRecord) Key() PeerKey { return PeerKey{r.Group, r.InstanceID} }

type episode struct{ EpisodeRecord }

// orphanRef finds one orphan by its id.
type orphanRef struct {
	peer    *peer // nil for history
	episode *episode
	index   int
}

func (e *episode) open() int {
	n := 0
	for i := range e.Orphans {
		if e.Orphans[i].State != OrphanResolved {
			n++
		}
	}
	return n
}

func (e *episode) find(sub string) *OrphanRecord {
	for i := range e.Orphans {
		if e.Orphans[i].Subscription == sub {
			return &e.Orphans[i]
		}
	}
	return nil
}

// conclude compares what is so with what was told, and tells the difference. Only a leader concludes.
func (c *Core) conclude(p *peer, now time.Time) {
	if !c.leading || p.removed() {
		return
	}
	c.concludeMissed(p, now)
	if p.status == StatusUnknown && (p.restored || p.announced == "") {
		return
	}
	newDrain := p.shutdown != nil && p.shutdown.Drain > p.announcedDrains
	if p.status == p.announced && !newDrain && !p.revised() {
		return
	}
	from := p.announced
	p.announced = p.status
	switch p.status {
	case StatusHealthy, StatusUnknown:
		c.concludeBack(p, now, from)
	case StatusStale:
		c.joinedFirst(p, now, from)
		c.tell(p, now, EventPeerStale, (p.episodes+c.openingEpisode(p))<<16|p.drains, from)
		c.leave(p, now, StatusStale)
	case StatusDraining, StatusTerminated:
		c.concludeShutdown(p, now, from, newDrain)
	}
	c.saveConclusion(p)
}

// revised: the live notification says something else than the open episode.
func (p *peer) revised() bool {
	e, n := p.episode, p.shutdown
	if n == nil || e == nil || !e.ClosedAt.IsZero() {
		return false
	}
	return n.Intent != e.Intent || !n.Deadline.Equal(e.Deadline) ||
		slices.ContainsFunc(p.subs, func(s string) bool { return e.find(s) == nil })
}

// openingEpisode is 1 when the next departure opens a new episode.
func (c *Core) openingEpisode(p *peer) uint64 {
	if p.episode == nil || !p.episode.ClosedAt.IsZero() {
		return 1
	}
	return 0
}

// joinedFirst tells of a peer that left before anybody could tell that it came.
func (c *Core) joinedFirst(p *peer, now time.Time, from Status) {
	if from == "" && !p.lastSeen.IsZero() {
		c.tell(p, now, EventPeerJoined, 0, from)
	}
}

func (c *Core) concludeBack(p *peer, now time.Time, from Status) {
	switch from {
	case "":
		c.tell(p, now, EventPeerJoined, 0, from)
	case StatusHealthy, StatusUnknown:
	default:
		event := EventPeerRecovered
		if p.closed != nil && p.closed.Closed == ClosedRejoined && p.closed.Drain == p.announcedDrains && from != StatusStale {
			event = EventPeerRejoined
		}
		c.tell(p, now, event, p.episodes, from)
		c.closeEpisode(p, now, ResolvedRecovered)
	}
}

func (c *Core) concludeShutdown(p *peer, now time.Time, from Status, newDrain bool) {
	c.joinedFirst(p, now, from)
	if newDrain {
		p.announcedDrains = p.shutdown.Drain
		c.tell(p, now, EventPeerDraining, p.shutdown.Drain, from)
	}
	if p.status == StatusTerminated && from != StatusTerminated {
		c.tell(p, now, EventPeerTerminated, p.shutdown.Drain, from)
	}
	c.leave(p, now, p.status)
}

// concludeMissed tells of a drain that was closed again before anybody told of it: its leader died in between.
// Nobody was told of orphans either, so none are opened.
func (c *Core) concludeMissed(p *peer, now time.Time) {
	missed := p.closed
	if missed == nil || missed.Drain <= p.announcedDrains {
		return
	}
	if p.announced == "" && !p.lastSeen.IsZero() {
		c.tellAs(p, now, EventPeerJoined, 0, "", StatusHealthy)
		p.announced = StatusHealthy
	}
	p.announcedDrains = missed.Drain
	back := EventPeerRecovered
	if missed.Closed == ClosedRejoined {
		back = EventPeerRejoined
	}
	live := p.shutdown
	p.shutdown = missed
	c.tellAs(p, now, EventPeerDraining, missed.Drain, p.announced, StatusDraining)
	p.shutdown = live
	c.tell(p, now, back, missedDrain|missed.Drain, StatusDraining)
	c.saveConclusion(p)
}

// missedDrain keeps the ids of events about missed drains apart from those that number episodes.
const missedDrain = 1 << 48

// tell raises one event about a peer itself.
func (c *Core) tell(p *peer, now time.Time, t EventType, n uint64, from Status) {
	c.tellAs(p, now, t, n, from, p.status)
}

func (c *Core) tellAs(p *peer, now time.Time, t EventType, n uint64, from, to Status) {
	d := EventData{
		Group: p.key.Group, InstanceID: p.key.InstanceID, Status: to, PreviousStatus: from,
		Incarnation: p.incarnation, Subscriptions: p.subs, LastSeen: optional(p.lastSeen),
	}
	if s := p.shutdown; s != nil {
		inFlight := s.InFlightCount
		d.Intent, d.Deadline, d.InFlightCount, d.Metadata = s.Intent, optional(s.Deadline), &inFlight, s.Metadata
	}
	c.raise(now, c.id(p, t, n), t, d)
}

// leave opens the peer's episode, or carries the open one on with a new cause.
func (c *Core) leave(p *peer, now time.Time, cause Status) {
	e := p.episode
	if c.openingEpisode(p) == 1 {
		c.retireEpisode(p)
		p.episodes++
		e = &episode{EpisodeRecord{
			Group: p.key.Group, InstanceID: p.key.InstanceID, Life: p.firstSeen.UnixNano(), Number: p.episodes, OpenedAt: now,
		}}
		p.episode = e
	}
	before := e.Cause
	e.Cause, e.LastSeen, e.Intent, e.Deadline = cause, p.lastSeen, "", time.Time{}
	if s := p.shutdown; s != nil {
		e.Intent, e.Deadline = s.Intent, s.Deadline
	}
	told := e.anyTold()
	c.orphan(p, now)
	c.releaseHeld(p, now)
	if cause == StatusTerminated && before != "" && before != StatusTerminated && told {
		c.raise(now, c.id(p, EventOrphanEscalated, e.Number<<16|p.shutdown.Drain), EventOrphanEscalated, c.orphanData(p, e.openSubs()))
	}
	c.moveClaims(p, now)
}

func (e *episode) anyTold() bool {
	return slices.ContainsFunc(e.Orphans, func(o OrphanRecord) bool { return o.Told && o.State == OrphanOpen })
}

// orphan adds an orphan for every subscription of the peer that the episode does not have yet.
func (c *Core) orphan(p *peer, now time.Time) {
	e := p.episode
	for _, name := range p.subs {
		if e.find(name) != nil {
			continue
		}
		s := p.group.subscription(name)
		o := OrphanRecord{ID: orphanID(e, name), Subscription: name, State: OrphanOpen, OpenedAt: now}
		switch {
		case coveredWithout(s, p):
			o.State, o.Resolution, o.ResolvedAt, o.CoveredBy = OrphanResolved, ResolvedTakenOver, now, names(s.serving, p)
		case e.Cause == StatusStale && p.group.mass.holding():
			o.State = OrphanHeld
		}
		e.Orphans = append(e.Orphans, o)
		c.orphans[o.ID] = &orphanRef{peer: p, episode: e, index: len(e.Orphans) - 1}
		c.out.OrphanIDs = append(c.out.OrphanIDs, o.ID)
		if o.State != OrphanResolved {
			p.group.open++
		}
		add(&s.episodes, p)
	}
}

func coveredWithout(s *subscription, p *peer) bool {
	n := len(s.serving)
	if _, itself := s.serving[p]; itself {
		n--
	}
	return n > 0
}

// detect raises orphan.detected for a peer's open orphans that nobody was told of.
func (c *Core) detect(p *peer, now time.Time) {
	e := p.episode
	told := false
	for i := range e.Orphans {
		if o := &e.Orphans[i]; o.State == OrphanOpen && !o.Told {
			o.Told, told = true, true
		}
	}
	if !told {
		return
	}
	e.Detections++
	all := make([]string, len(e.Orphans))
	for i := range e.Orphans {
		all[i] = e.Orphans[i].Subscription
	}
	c.raise(now, c.id(p, EventOrphanDetected, e.Number<<16|e.Detections), EventOrphanDetected, c.orphanData(p, all))
	c.saveConclusion(p)
}

// releaseHeld opens held orphans of a peer that announced itself after all: a hold is for staleness only.
func (c *Core) releaseHeld(p *peer, now time.Time) {
	if p.episode.Cause == StatusStale && p.group.mass.holding() {
		return
	}
	for i := range p.episode.Orphans {
		if o := &p.episode.Orphans[i]; o.State == OrphanHeld {
			o.State = OrphanOpen
			c.out.OrphanIDs = append(c.out.OrphanIDs, o.ID)
		}
	}
	c.detect(p, now)
}

func (e *episode) openSubs() []string {
	var subs []string
	for i := range e.Orphans {
		if e.Orphans[i].State != OrphanResolved {
			subs = append(subs, e.Orphans[i].Subscription)
		}
	}
	return subs
}

// orphanData describes some subscriptions of a peer's episode.
func (c *Core) orphanData(p *peer, subs []string) EventData {
	e := p.episode
	d := EventData{
		Group: e.Group, InstanceID: e.InstanceID, Cause: e.Cause, Intent: e.Intent, Subscriptions: subs,
		Deadline: optional(e.Deadline), LastSeen: optional(e.LastSeen), Uncovered: []string{},
	}
	for _, name := range subs {
		o := e.find(name)
		d.OrphanIDs = append(d.OrphanIDs, o.ID)
		if o.State != OrphanResolved {
			d.Uncovered = append(d.Uncovered, name)
			continue
		}
		if s := p.group.subs[name]; s != nil {
			if by := names(s.serving, p); len(by) > 0 {
				if d.CoveredBy == nil {
					d.CoveredBy = map[string][]string{}
				}
				d.CoveredBy[name] = by
			}
		}
	}
	return d
}

// resolve ends some orphans of one episode together.
func (c *Core) resolve(p *peer, now time.Time, how Resolution, claimant string, subs []string) {
	e := p.episode
	var told []string
	for _, name := range subs {
		o := e.find(name)
		if o == nil || o.State == OrphanResolved {
			continue
		}
		if o.Told {
			told = append(told, name)
		}
		o.State, o.Resolution, o.ResolvedAt = OrphanResolved, how, now
		o.Told = false
		p.group.open--
		c.out.OrphanIDs = append(c.out.OrphanIDs, o.ID)
		if s := p.group.subs[name]; s != nil && how == ResolvedTakenOver {
			o.CoveredBy = names(s.serving, p)
		}
		c.orphanEnded(p, name, now, how)
	}
	c.saveConclusion(p)
	if len(told) > 0 {
		d := c.orphanData(p, told)
		d.Resolution, d.Claimant = how, claimant
		c.raise(now, c.idFor(orphanID(e, told[0]), string(how), EventOrphanResolved, e.Detections<<16|uint64(e.resolved())), EventOrphanResolved, d)
	}
	c.arm(p, now)
}

func (e *episode) resolved() int { return len(e.Orphans) - e.open() }

// closeEpisode ends the absence: every open orphan resolves.
func (c *Core) closeEpisode(p *peer, now time.Time, how Resolution) {
	e := p.episode
	if e == nil || !e.ClosedAt.IsZero() {
		return
	}
	c.resolve(p, now, how, "", e.openSubs())
	e.ClosedAt = now
	for i := range e.Orphans {
		if s := p.group.subs[e.Orphans[i].Subscription]; s != nil {
			delete(s.episodes, p)
			p.group.drop(s)
		}
	}
}

// retireEpisode moves the last episode into history before a new one opens or the peer goes.
func (c *Core) retireEpisode(p *peer) {
	e := p.episode
	if e == nil {
		return
	}
	for i := range e.Orphans {
		if ref := c.orphans[e.Orphans[i].ID]; ref != nil {
			ref.peer = nil
		}
		if s := p.group.subs[e.Orphans[i].Subscription]; s != nil {
			delete(s.episodes, p)
			p.group.drop(s)
		}
	}
	p.episode = nil
	if len(e.Orphans) > 0 {
		c.past[e.Key()] = e
	}
	if len(e.Orphans) > 0 && c.leading {
		c.out.Past = append(c.out.Past, e.EpisodeRecord)
	}
}

// takeOver resolves what others left behind and q now serves: one event for each peer that left, or two where
// q had claimed only a part.
func (c *Core) takeOver(q *peer, subs []string, now time.Time) {
	if !c.leading {
		return
	}
	claimed, unclaimed := map[*peer][]string{}, map[*peer][]string{}
	for _, name := range subs {
		s := q.group.subs[name]
		if s == nil || (s.claim == nil && len(s.episodes) == 0) {
			continue
		}
		left := unclaimed
		if c.endClaimBy(s, q, now) {
			left = claimed
		}
		for p := range s.episodes {
			if p != q {
				left[p] = append(left[p], name)
			}
		}
	}
	for _, p := range inOrder(keys(claimed)) {
		c.resolve(p, now, ResolvedTakenOver, q.key.InstanceID, claimed[p])
	}
	for _, p := range inOrder(keys(unclaimed)) {
		c.resolve(p, now, ResolvedTakenOver, "", unclaimed[p])
	}
}

// endClaimBy ends the claim on a subscription that q serves, and reports whether it was q's.
func (c *Core) endClaimBy(s *subscription, q *peer, now time.Time) (own bool) {
	cl := s.claim
	if cl == nil || !cl.active() {
		return false
	}
	if cl.InstanceID != q.key.InstanceID {
		c.endClaim(cl, now, ClaimRevoked)
		return false
	}
	c.endClaim(cl, now, ClaimDone)
	return true
}

func keys(of map[*peer][]string) map[*peer]struct{} {
	set := make(map[*peer]struct{}, len(of))
	for p := range of {
		set[p] = struct{}{}
	}
	return set
}

// coverLost reopens an orphan that had cover, when the last cover goes without a record of its own.
func (c *Core) coverLost(g *group, name string) {
	s := g.subs[name]
	if !c.leading || s == nil || len(s.serving) > 0 {
		return
	}
	var newest *peer
	for p := range s.episodes {
		o := p.episode.find(name)
		if o.State != OrphanResolved {
			return // another record tells it
		}
		if o.Resolution == ResolvedTakenOver && (newest == nil || newerEpisode(p, newest)) {
			newest = p
		}
	}
	if newest == nil {
		return
	}
	o := newest.episode.find(name)
	o.State, o.Resolution, o.ResolvedAt, o.CoveredBy = OrphanOpen, "", time.Time{}, nil
	g.open++
	c.out.OrphanIDs = append(c.out.OrphanIDs, o.ID)
	c.reopened = append(c.reopened, newest)
}

// tellReopened raises one event for every peer with reopened orphans.
func (c *Core) tellReopened(now time.Time) {
	for _, p := range c.reopened {
		c.detect(p, now) // a second time it has nothing to tell
	}
	clear(c.reopened)
	c.reopened = c.reopened[:0]
}

func newerEpisode(a, b *peer) bool {
	if a.episode.OpenedAt.Equal(b.episode.OpenedAt) {
		return a.key.InstanceID < b.key.InstanceID
	}
	return a.episode.OpenedAt.After(b.episode.OpenedAt)
}

// Dismiss ends one open orphan because somebody says so.
func (c *Core) Dismiss(now time.Time, id, reason string) (*Output, error) {
	out := c.begin(now)
	ref := c.orphans[id]
	if ref == nil {
		return out, ErrNotFound
	}
	o := &ref.episode.Orphans[ref.index]
	if ref.peer == nil || o.State == OrphanResolved {
		return out, ErrEnded
	}
	o.DismissReason = reason
	c.resolve(ref.peer, now, ResolvedDismissed, "", []string{o.Subscription})
	return out, nil
}

func (c *Core) saveConclusion(p *peer) {
	if c.leading {
		c.out.Conclusions = append(c.out.Conclusions, p.key)
	}
	c.out.Touched = true
}

// concludeAll tells everything that is so and was not told: on taking over leadership.
func (c *Core) concludeAll(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(c.groups)) {
		g := c.groups[name]
		c.judgeMass(g, now)
		peers := g.inOrder()
		for _, p := range peers {
			c.conclude(p, now)
			c.arm(p, now)
		}
		for _, p := range peers {
			c.settleCover(p, now)
		}
		for _, sub := range slices.Sorted(maps.Keys(g.subs)) {
			c.resumeSubscription(g.subs[sub], now)
		}
	}
	c.tellReopened(now)
	for _, id := range slices.Sorted(maps.Keys(c.assignments)) {
		c.moveAssignment(c.assignments[id], now)
	}
}

func (c *Core) resumeSubscription(s *subscription, now time.Time) {
	s.fire(c, now)
	if s.conflict != nil && len(s.serving) < 2 {
		c.endConflict(s, now)
	}
	if s.claim != nil {
		c.moveClaim(s.claim, now)
	}
	c.coverLost(s.group, s.name)
}
