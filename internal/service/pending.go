package service

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// pending is what the core asked to be written and was not yet. Records are kept by key and read from the core when
// the transaction is built, so that whatever happened meanwhile is in it.
//
// A subject's events and its records go together: a record that says "told" must not be durable before what it told. So
// they wait by subject, in a queue from which as much as fits a transaction is taken at a time, at a cost that does not
// depend on its length.
type pending struct {
	units map[subject]*unit
	queue []subject
	// said numbers the events, waiting counts those that wait.
	said    uint64
	waiting int

	roster map[coordination.PeerKey]struct{}
	// handedOut are assignments given to their target for the first time: facts to come.
	handedOut []string
}

// subject is what a conclusion is about; which fields are set depends on the kind.
type subject struct {
	kind  subjectKind
	group string
	// id is the peer's, the subscription or the id of the assignment or dismissal.
	id string
}

type subjectKind byte

const (
	aboutNothing subjectKind = iota // events without a record
	aboutPeer                       // its conclusion record, always written
	aboutClaim
	aboutConflict
	aboutGroup
	aboutAssignment
	aboutDismissal // a fact that the core has taken up
)

func peerSubject(k coordination.PeerKey) subject { return subject{aboutPeer, k.Group, k.InstanceID} }

func subscriptionSubject(kind subjectKind, k coordination.SubscriptionKey) subject {
	return subject{kind, k.Group, k.Subscription}
}

func (s subject) peer() coordination.PeerKey {
	return coordination.PeerKey{Group: s.group, InstanceID: s.id}
}

func (s subject) subscription() coordination.SubscriptionKey {
	return coordination.SubscriptionKey{Group: s.group, Subscription: s.id}
}

// subjectOf is what an event is about: with its record it is told.
func subjectOf(e *coordination.Event) subject {
	d := &e.Data
	switch {
	case e.Type == coordination.EventOrphanClaimed:
		return subject{aboutClaim, d.Group, d.Subscriptions[0]}
	case MatchEventType("peer.*", e.Type), MatchEventType("orphan.*", e.Type):
		return subject{aboutPeer, d.Group, d.InstanceID}
	case MatchEventType("subscription.*", e.Type):
		return subject{aboutConflict, d.Group, d.Subscription}
	case MatchEventType("group.*", e.Type):
		return subject{kind: aboutGroup, group: d.Group}
	case MatchEventType("assignment.*", e.Type):
		return subject{kind: aboutAssignment, id: d.AssignmentID}
	}
	return subject{}
}

// unit is what waits about one subject. Past, closed, forgotten and shutdown are a peer's.
type unit struct {
	events []numberedEvent
	past   []coordination.EpisodeRecord
	// closed: a rejoin closed the shutdown fact; stamp is set once that is part of a transaction.
	closed bool
	stamp  bool
	// forgotten: the peer's records go, the shutdown fact at this revision.
	forgotten bool
	shutdown  uint64
}

// cost is the most keys that a unit touches, the roster record of a peer among them.
func (u *unit) cost(kind subjectKind) int {
	if kind != aboutPeer {
		return 1
	}
	n := 2 + len(u.past)
	if u.closed {
		n++
	}
	if u.forgotten {
		n += 4
	}
	return n
}

type numberedEvent struct {
	number uint64
	coordination.Event
}

const (
	// pendingPerJournal bounds the events that wait for the store, as a multiple of the journal.
	pendingPerJournal = 10
	// batchUnits bounds one transaction of the committer, where the store would allow more.
	batchUnits = 256
	// reserved is what a transaction keeps for the journal: its new record and an old one that leaves.
	reserved = 2
)

func newPending() pending {
	return pending{units: map[subject]*unit{}, roster: map[coordination.PeerKey]struct{}{}}
}

// about is what waits about a subject.
func (p *pending) about(sub subject) *unit {
	u := p.units[sub]
	if u == nil {
		u = &unit{}
		p.units[sub] = u
		p.queue = append(p.queue, sub)
	}
	return u
}

// add queues an event.
func (p *pending) add(e coordination.Event) {
	p.said++
	p.waiting++
	u := p.about(subjectOf(&e))
	u.events = append(u.events, numberedEvent{p.said, e})
}

// conclusionsPending reports whether a fenced transaction is due.
func (p *pending) conclusionsPending() bool { return len(p.queue) > 0 }

// take moves a part out that fits a transaction of that many keys: the subjects that have waited longest. A single one
// that does not fit goes alone, with as much of its history as fits.
func (p *pending) take(room int) pending {
	taken := newPending()
	room -= reserved
	n := 0
	for n < len(p.queue) && n < batchUnits {
		sub := p.queue[n]
		u := p.units[sub]
		if n == 0 && u.cost(sub.kind) > room {
			p.takeFirst(&taken, sub, u, room)
			return taken
		}
		if room -= u.cost(sub.kind); room < 0 {
			break
		}
		n++
		p.moveTo(&taken, sub, u)
		delete(p.units, sub)
	}
	p.queue = p.queue[n:]
	return taken
}

// takeFirst splits a peer whose closed episodes exceed a transaction: the events go with the first part.
func (p *pending) takeFirst(taken *pending, sub subject, u *unit, room int) {
	fits := max(0, len(u.past)-(u.cost(aboutPeer)-room))
	rest := &unit{past: u.past[fits:]}
	u.past = u.past[:fits:fits]
	p.moveTo(taken, sub, u)
	p.units[sub] = rest
}

func (p *pending) moveTo(taken *pending, sub subject, u *unit) {
	taken.units[sub] = u
	taken.queue = append(taken.queue, sub)
	taken.waiting += len(u.events)
	p.waiting -= len(u.events)
	if sub.kind != aboutPeer {
		return
	}
	if k := sub.peer(); contains(p.roster, k) {
		taken.roster[k] = struct{}{}
		delete(p.roster, k)
	}
}

func contains[K comparable](set map[K]struct{}, k K) bool {
	_, ok := set[k]
	return ok
}

// told are all events of a part, in the order in which they were concluded.
func (p *pending) told() []coordination.Event {
	var all []numberedEvent
	for _, u := range p.units {
		all = append(all, u.events...)
	}
	slices.SortFunc(all, func(a, b numberedEvent) int { return cmp.Compare(a.number, b.number) })
	events := make([]coordination.Event, len(all))
	for i := range all {
		events[i] = all[i].Event
	}
	return events
}

// merge puts back what could not be written, before what came since.
func (p *pending) merge(back pending) {
	var first []subject
	for _, sub := range back.queue {
		older := back.units[sub]
		if newer := p.units[sub]; newer != nil {
			newer.events = append(older.events, newer.events...)
			newer.past = append(older.past, newer.past...)
			newer.closed = newer.closed || older.closed
			newer.forgotten = newer.forgotten || older.forgotten
			newer.shutdown = max(newer.shutdown, older.shutdown)
			continue
		}
		p.units[sub] = older
		first = append(first, sub)
	}
	p.queue = append(first, p.queue...)
	p.waiting += back.waiting
	p.handedOut = append(back.handedOut, p.handedOut...)
	maps.Copy(p.roster, back.roster)
}

// bound gives up events beyond most, those that have waited longest, and counts them: the store has been away for very long.
func (p *pending) bound(most int) (dropped int) {
	for i := 0; p.waiting > most && i < len(p.queue); i++ {
		u := p.units[p.queue[i]]
		dropped += len(u.events)
		p.waiting -= len(u.events)
		u.events = nil
	}
	return dropped
}

// collect takes an output in: indexes follow at once, writes become pending. Under the lock.
func (s *Service) collect(out *coordination.Output) {
	for _, ch := range out.Changes {
		s.index.move(ch)
	}
	for _, k := range out.Peers {
		s.index.label(k, s.core.Labels(k))
	}
	for _, k := range out.Peers {
		s.pending.roster[k] = struct{}{}
	}
	for _, id := range out.OrphanIDs {
		s.indexOrphan(id)
	}
	for _, id := range out.ClaimIDs {
		s.indexClaim(id)
	}
	for _, id := range out.AssignmentIDs {
		s.indexAssignment(id)
	}
	if out.Touched {
		s.touch(out)
	}
	if !out.HasWrites() || !s.leading {
		return
	}
	p := &s.pending
	for i := range out.Events {
		p.add(out.Events[i])
	}
	for _, k := range out.Conclusions {
		p.about(peerSubject(k))
	}
	for i := range out.Past {
		u := p.about(peerSubject(out.Past[i].Key().PeerKey))
		u.past = append(u.past, out.Past[i])
	}
	for _, k := range out.Closed {
		p.about(peerSubject(k)).closed = true
	}
	for _, f := range out.Forgotten {
		u := p.about(peerSubject(f.PeerKey))
		u.forgotten, u.shutdown = true, max(u.shutdown, f.ShutdownRevision)
	}
	for _, k := range out.Claims {
		p.about(subscriptionSubject(aboutClaim, k))
	}
	for _, k := range out.Conflicts {
		p.about(subscriptionSubject(aboutConflict, k))
	}
	for _, name := range out.Mass {
		p.about(subject{kind: aboutGroup, group: name})
	}
	for _, id := range out.Assignments {
		p.about(subject{kind: aboutAssignment, id: id})
	}
	if n := p.bound(pendingPerJournal * s.opts.JournalSize); n > 0 {
		s.opts.Metrics.Dropped("pending_events", n)
	}
	s.wake()
}

func (s *Service) touch(out *coordination.Output) {
	s.feed.touch(scopePeers)
	if len(out.OrphanIDs) > 0 || len(out.Conflicts) > 0 || len(out.Mass) > 0 {
		s.feed.touch(scopeOrphans)
	}
	if len(out.ClaimIDs) > 0 {
		s.feed.touch(scopeClaims | scopeOrphans)
	}
	if len(out.AssignmentIDs) > 0 {
		s.feed.touch(scopeAssignments)
	}
}

// wake tells the committer that there is work.
func (s *Service) wake() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}
