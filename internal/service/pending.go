package service

import (
	"maps"

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
	forgotten   map[coordination.PeerKey]struct{}
	claims      map[coordination.SubscriptionKey]struct{}
	conflicts   map[coordination.SubscriptionKey]struct{}
	mass        map[string]struct{}
	assignments map[string]struct{}
	// dismissals are facts that the core has taken up.
	dismissals map[string]struct{}
	// handedOut are assignments given to their target for the first time: facts to come.
	handedOut []string
}

func newPending() pending {
	return pending{
		roster: map[coordination.PeerKey]struct{}{}, conclusions: map[coordination.PeerKey]struct{}{},
		closed: map[coordination.PeerKey]struct{}{}, forgotten: map[coordination.PeerKey]struct{}{},
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
	p.past = append(p.past, out.Past...)
	put(p.conclusions, out.Conclusions)
	put(p.closed, out.Closed)
	put(p.forgotten, out.Forgotten)
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
