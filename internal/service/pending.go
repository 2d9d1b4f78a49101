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
// A peer's events and its records go together: a record that says "told" must not be durable before what it told. So they
// wait by peer, in a queue from which a bounded number is taken at a time, at a cost that does not depend on its length.
type pending struct {
	peers map[coordination.PeerKey]*peerPending
	queue []coordination.PeerKey
	// events are those that are not about one peer; said numbers all of them, waiting counts them.
	events  []numberedEvent
	said    uint64
	waiting int

	roster      map[coordination.PeerKey]struct{}
	claims      map[coordination.SubscriptionKey]struct{}
	conflicts   map[coordination.SubscriptionKey]struct{}
	mass        map[string]struct{}
	assignments map[string]struct{}
	// dismissals are facts that the core has taken up.
	dismissals map[string]struct{}
	// handedOut are assignments given to their target for the first time: facts to come.
	handedOut []string
}

// peerPending is what waits about one peer; its conclusion record is always among it.
type peerPending struct {
	events []numberedEvent
	past   []coordination.EpisodeRecord
	// closed: a rejoin closed the shutdown fact; stamp is set once that is part of a transaction.
	closed bool
	stamp  bool
	// forgotten: the peer's records go, the shutdown fact at this revision.
	forgotten bool
	shutdown  uint64
}

type numberedEvent struct {
	number uint64
	coordination.Event
}

// pendingPerJournal bounds the events that wait for the store, as a multiple of the journal.
const pendingPerJournal = 10

func newPending() pending {
	return pending{
		peers: map[coordination.PeerKey]*peerPending{}, roster: map[coordination.PeerKey]struct{}{},
		claims: map[coordination.SubscriptionKey]struct{}{}, conflicts: map[coordination.SubscriptionKey]struct{}{},
		mass: map[string]struct{}{}, assignments: map[string]struct{}{}, dismissals: map[string]struct{}{},
	}
}

func put[K comparable](set map[K]struct{}, keys []K) {
	for _, k := range keys {
		set[k] = struct{}{}
	}
}

// about is what waits about a peer.
func (p *pending) about(k coordination.PeerKey) *peerPending {
	pp := p.peers[k]
	if pp == nil {
		pp = &peerPending{}
		p.peers[k] = pp
		p.queue = append(p.queue, k)
	}
	return pp
}

// add queues an event.
func (p *pending) add(e coordination.Event) {
	p.said++
	p.waiting++
	n := numberedEvent{p.said, e}
	if !aboutPeer(e.Type) {
		p.events = append(p.events, n)
		return
	}
	pp := p.about(coordination.PeerKey{Group: e.Data.Group, InstanceID: e.Data.InstanceID})
	pp.events = append(pp.events, n)
}

// aboutPeer: the event is told of one peer's conclusion record.
func aboutPeer(t coordination.EventType) bool {
	if t == coordination.EventOrphanClaimed {
		return false // told of the claim's
	}
	return MatchEventType("peer.*", t) || MatchEventType("orphan.*", t)
}

// conclusionsPending reports whether a fenced transaction is due.
func (p *pending) conclusionsPending() bool {
	return len(p.peers)+len(p.events)+len(p.claims)+len(p.conflicts)+len(p.mass)+len(p.assignments)+len(p.dismissals) > 0
}

// take moves a bounded part out: the peers that have waited longest, and all that is not about one peer, of which
// there is little.
func (p *pending) take() pending {
	taken := *p
	n := min(len(p.queue), batchRecords)
	*p = newPending()
	p.said, p.handedOut, p.roster = taken.said, taken.handedOut, taken.roster
	if n < len(taken.queue) {
		p.peers, p.queue = taken.peers, taken.queue[n:]
		taken.peers = make(map[coordination.PeerKey]*peerPending, n)
	}
	taken.queue = taken.queue[:n:n]
	taken.handedOut, taken.roster = nil, map[coordination.PeerKey]struct{}{}
	all := taken.waiting
	taken.waiting = len(taken.events)
	for _, k := range taken.queue {
		if pp := p.peers[k]; pp != nil {
			taken.peers[k] = pp
			delete(p.peers, k)
		}
		taken.waiting += len(taken.peers[k].events)
		if _, dirty := p.roster[k]; dirty {
			taken.roster[k] = struct{}{}
			delete(p.roster, k)
		}
	}
	p.waiting = all - taken.waiting
	return taken
}

// told are all events of a part, in the order in which they were concluded.
func (p *pending) told() []coordination.Event {
	all := slices.Clone(p.events)
	for _, pp := range p.peers {
		all = append(all, pp.events...)
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
	p.events = append(back.events, p.events...)
	var first []coordination.PeerKey
	for _, k := range back.queue {
		older := back.peers[k]
		if newer := p.peers[k]; newer != nil {
			newer.events = append(older.events, newer.events...)
			newer.past = append(older.past, newer.past...)
			newer.closed = newer.closed || older.closed
			newer.forgotten = newer.forgotten || older.forgotten
			newer.shutdown = max(newer.shutdown, older.shutdown)
			continue
		}
		p.peers[k] = older
		first = append(first, k)
	}
	p.queue = append(first, p.queue...)
	p.waiting += back.waiting
	p.handedOut = append(back.handedOut, p.handedOut...)
	maps.Copy(p.roster, back.roster)
	maps.Copy(p.claims, back.claims)
	maps.Copy(p.conflicts, back.conflicts)
	maps.Copy(p.mass, back.mass)
	maps.Copy(p.assignments, back.assignments)
	maps.Copy(p.dismissals, back.dismissals)
}

// bound gives up events beyond most, those that have waited longest, and counts them: the store has been away for very long.
func (p *pending) bound(most int) (dropped int) {
	for i := 0; p.waiting > most && i < len(p.queue); i++ {
		pp := p.peers[p.queue[i]]
		dropped += len(pp.events)
		p.waiting -= len(pp.events)
		pp.events = nil
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
	put(s.pending.roster, out.Peers)
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
		p.about(k)
	}
	for i := range out.Past {
		pp := p.about(out.Past[i].Key().PeerKey)
		pp.past = append(pp.past, out.Past[i])
	}
	for _, k := range out.Closed {
		p.about(k).closed = true
	}
	for _, f := range out.Forgotten {
		pp := p.about(f.PeerKey)
		pp.forgotten, pp.shutdown = true, max(pp.shutdown, f.ShutdownRevision)
	}
	if n := p.bound(pendingPerJournal * s.opts.JournalSize); n > 0 {
		s.opts.Metrics.Dropped("pending_events", n)
	}
	put(p.claims, out.Claims)
	put(p.conflicts, out.Conflicts)
	put(p.mass, out.Mass)
	put(p.assignments, out.Assignments)
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
