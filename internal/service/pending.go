package service

import (
	"maps"
	"slices"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// pending is what the core asked to be written and was not yet. Records are kept by key and read from the core when
// the transaction is built, so that whatever happened meanwhile is in it.
type pending struct {
	events      []coordination.Event
	past        []coordination.EpisodeRecord
	roster      map[coordination.PeerKey]struct{}
	conclusions map[coordination.PeerKey]struct{}
	closed      map[coordination.PeerKey]struct{}
	// forgotten are peers whose records go, with the revision of their shutdown fact.
	forgotten   map[coordination.PeerKey]uint64
	claims      map[coordination.SubscriptionKey]struct{}
	conflicts   map[coordination.SubscriptionKey]struct{}
	mass        map[string]struct{}
	assignments map[string]struct{}
	// dismissals are facts that the core has taken up.
	dismissals map[string]struct{}
	// handedOut are assignments given to their target for the first time: facts to come.
	handedOut []string
}

// pendingPerJournal bounds the events that wait for the store, as a multiple of the journal.
const pendingPerJournal = 10

func newPending() pending {
	return pending{
		roster: map[coordination.PeerKey]struct{}{}, conclusions: map[coordination.PeerKey]struct{}{},
		closed: map[coordination.PeerKey]struct{}{}, forgotten: map[coordination.PeerKey]uint64{},
		claims: map[coordination.SubscriptionKey]struct{}{}, conflicts: map[coordination.SubscriptionKey]struct{}{},
		mass: map[string]struct{}{}, assignments: map[string]struct{}{}, dismissals: map[string]struct{}{},
	}
}

func put[K comparable](set map[K]struct{}, keys []K) {
	for _, k := range keys {
		set[k] = struct{}{}
	}
}

// conclusionsPending reports whether a fenced transaction is due.
func (p *pending) conclusionsPending() bool {
	return len(p.events)+len(p.past)+len(p.conclusions)+len(p.closed)+len(p.forgotten)+
		len(p.claims)+len(p.conflicts)+len(p.mass)+len(p.assignments)+len(p.dismissals) > 0
}

// take moves a bounded part out. A peer's events and its records go together: a record that says "told" must not be
// durable before what it told. What is not about one peer goes at once; there is little of it.
func (p *pending) take() pending {
	taken := *p
	*p = newPending()
	p.handedOut, taken.handedOut = taken.handedOut, nil
	if len(taken.conclusions)+len(taken.forgotten) <= batchRecords {
		return taken
	}
	chosen := taken.chosen()
	later := func(e *coordination.Event) bool {
		k := coordination.PeerKey{Group: e.Data.Group, InstanceID: e.Data.InstanceID}
		_, now := chosen[k]
		return aboutPeer(e.Type) && !now
	}
	all := taken.events
	taken.events = nil
	for i := range all {
		if later(&all[i]) {
			p.events = append(p.events, all[i])
		} else {
			taken.events = append(taken.events, all[i])
		}
	}
	postpone(taken.conclusions, p.conclusions, chosen)
	postpone(taken.forgotten, p.forgotten, chosen)
	postpone(taken.roster, p.roster, chosen)
	return taken
}

// chosen are the peers of the next transaction: those whose events are oldest, then any.
func (p *pending) chosen() map[coordination.PeerKey]struct{} {
	chosen := make(map[coordination.PeerKey]struct{}, batchRecords)
	for i := range p.events {
		if len(chosen) == batchRecords {
			return chosen
		}
		if e := &p.events[i]; aboutPeer(e.Type) {
			chosen[coordination.PeerKey{Group: e.Data.Group, InstanceID: e.Data.InstanceID}] = struct{}{}
		}
	}
	for _, k := range append(slices.Collect(maps.Keys(p.forgotten)), slices.Collect(maps.Keys(p.conclusions))...) {
		if len(chosen) == batchRecords {
			break
		}
		chosen[k] = struct{}{}
	}
	return chosen
}

// aboutPeer: the event is told of one peer's conclusion record.
func aboutPeer(t coordination.EventType) bool {
	if t == coordination.EventOrphanClaimed {
		return false // told of the claim's
	}
	return MatchEventType("peer.*", t) || MatchEventType("orphan.*", t)
}

func postpone[V any](from, to map[coordination.PeerKey]V, chosen map[coordination.PeerKey]struct{}) {
	for k, v := range from {
		if _, now := chosen[k]; !now {
			to[k] = v
			delete(from, k)
		}
	}
}

// bound drops the oldest events beyond most, and counts them: the store has been away for very long.
func (p *pending) bound(most int) (dropped int) {
	dropped = max(len(p.events)-most, 0)
	p.events = p.events[dropped:]
	return dropped
}

// merge puts back what could not be written, before what came since.
func (p *pending) merge(back pending) {
	p.events = append(back.events, p.events...)
	p.past = append(back.past, p.past...)
	p.handedOut = append(back.handedOut, p.handedOut...)
	maps.Copy(p.roster, back.roster)
	maps.Copy(p.conclusions, back.conclusions)
	maps.Copy(p.closed, back.closed)
	maps.Copy(p.forgotten, back.forgotten)
	maps.Copy(p.claims, back.claims)
	maps.Copy(p.conflicts, back.conflicts)
	maps.Copy(p.mass, back.mass)
	maps.Copy(p.assignments, back.assignments)
	maps.Copy(p.dismissals, back.dismissals)
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
	p.events = append(p.events, out.Events...)
	if n := p.bound(pendingPerJournal * s.opts.JournalSize); n > 0 {
		s.opts.Metrics.Dropped("pending_events", n)
	}
	p.past = append(p.past, out.Past...)
	put(p.conclusions, out.Conclusions)
	put(p.closed, out.Closed)
	for _, f := range out.Forgotten {
		p.forgotten[f.PeerKey] = max(p.forgotten[f.PeerKey], f.ShutdownRevision)
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
