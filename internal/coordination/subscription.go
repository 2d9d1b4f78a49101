package coordination

import (
	"slices"
	"time"
)

// maxNamed bounds how many peers an event or a view names for one subscription.
const maxNamed = 20

// subscription is what a group knows about one name.
type subscription struct {
	alarm
	group *group
	name  string
	// listed: every peer that has it among its effective subscriptions; serving: the healthy ones among them.
	listed  map[*peer]struct{}
	serving map[*peer]struct{}
	// episodes of peers that left it behind and are still gone.
	episodes map[*peer]struct{}

	// Two or more serve it since contestedAt.
	contestedAt time.Time
	conflict    *ConflictRecord
	conflicts   uint64
	claim       *claim
}

// ConflictRecord is the leader's conclusion that one subscription is processed twice.
type ConflictRecord struct {
	Group        string    `json:"group"`
	Subscription string    `json:"subscription"`
	Number       uint64    `json:"number"`
	Open         bool      `json:"open"`
	Since        time.Time `json:"since"`
	Peers        []string  `json:"peers"`
}

func (g *group) subscription(name string) *subscription {
	s := g.subs[name]
	if s == nil {
		s = &subscription{group: g, name: name}
		g.subs[name] = s
	}
	return s
}

// drop frees a subscription that nobody lists, left behind or claimed.
func (g *group) drop(s *subscription) {
	if len(s.listed) == 0 && len(s.episodes) == 0 && s.claim == nil && s.conflict == nil && s.conflicts == 0 {
		delete(g.subs, s.name)
	}
}

func add(set *map[*peer]struct{}, p *peer) {
	if *set == nil {
		*set = make(map[*peer]struct{}, 1)
	}
	(*set)[p] = struct{}{}
}

func (c *Core) list(p *peer, name string, now time.Time) {
	s := p.group.subscription(name)
	add(&s.listed, p)
	if p.serving() {
		add(&s.serving, p)
		c.contest(s, now)
	}
}

func (c *Core) unlist(p *peer, name string, now time.Time) { c.unlistAs(p, name, p.serving(), now) }

func (c *Core) unlistAs(p *peer, name string, served bool, now time.Time) {
	s := p.group.subs[name]
	if s == nil {
		return
	}
	delete(s.listed, p)
	if served {
		delete(s.serving, p)
		c.contest(s, now)
	}
	p.group.drop(s)
}

// setServing moves p in or out of the cover of its subscriptions.
func (c *Core) setServing(p *peer, serving bool, now time.Time) {
	for _, name := range p.subs {
		s := p.group.subscription(name)
		if serving {
			add(&s.serving, p)
		} else {
			delete(s.serving, p)
		}
		c.contest(s, now)
	}
}

// settleCover draws the conclusions from a peer's serving or not serving its subscriptions.
func (c *Core) settleCover(p *peer, now time.Time) {
	if p.removed() {
		return
	}
	c.moveAssignments(p, now)
	ceased := p.ceased
	p.ceased = false
	if p.status == StatusHealthy {
		c.takeOver(p, p.subs, now)
		return
	}
	if !ceased {
		return
	}
	for _, name := range p.subs {
		c.coverLost(p.group, name)
	}
}

// contest follows how many healthy peers serve a subscription.
func (c *Core) contest(s *subscription, now time.Time) {
	if len(s.serving) >= 2 {
		if s.contestedAt.IsZero() {
			s.contestedAt = now
			if !s.group.settings.Shared {
				c.due.arm(s, s.conflictAt())
			}
		}
		return
	}
	s.contestedAt = time.Time{}
	if s.conflict != nil && c.leading {
		c.endConflict(s, now)
	}
}

// conflictAt: two served it for longer than one timeout.
func (s *subscription) conflictAt() time.Time {
	return justAfter(s.contestedAt.Add(s.group.settings.HeartbeatTimeout))
}

func (s *subscription) fire(c *Core, now time.Time) {
	if s.contestedAt.IsZero() || s.group.settings.Shared || s.conflict != nil {
		return
	}
	if at := s.conflictAt(); now.Before(at) {
		c.due.arm(s, at)
		return
	}
	if c.leading {
		c.openConflict(s, now)
	}
}

func (c *Core) openConflict(s *subscription, now time.Time) {
	s.conflicts++
	s.conflict = &ConflictRecord{
		Group: s.group.name, Subscription: s.name, Number: s.conflicts, Open: true, Since: s.contestedAt, Peers: names(s.serving, nil),
	}
	s.group.contested[s] = struct{}{}
	c.saveConflict(s)
	c.raise(now, c.idFor(s.group.name, s.name, EventSubscriptionConflict, s.conflicts), EventSubscriptionConflict, EventData{
		Group: s.group.name, Subscription: s.name, Peers: s.conflict.Peers,
	})
}

func (c *Core) endConflict(s *subscription, now time.Time) {
	peers := s.conflict.Peers
	s.conflict = nil
	delete(s.group.contested, s)
	c.saveConflict(s)
	c.raise(now, c.idFor(s.group.name, s.name, EventSubscriptionConflictResolved, s.conflicts), EventSubscriptionConflictResolved, EventData{
		Group: s.group.name, Subscription: s.name, Peers: peers,
	})
}

func (c *Core) saveConflict(s *subscription) {
	c.out.Conflicts = append(c.out.Conflicts, SubscriptionKey{s.group.name, s.name})
	c.out.Touched = true
}

// ConflictRecord is the conclusion to write for a subscription.
func (c *Core) ConflictRecord(k SubscriptionKey) ConflictRecord {
	if g := c.groups[k.Group]; g != nil {
		if s := g.subs[k.Subscription]; s != nil {
			if s.conflict != nil {
				return *s.conflict
			}
			return ConflictRecord{Group: k.Group, Subscription: k.Subscription, Number: s.conflicts}
		}
	}
	return ConflictRecord{Group: k.Group, Subscription: k.Subscription}
}

// ApplyConflict takes the leader's conclusion from the store.
func (c *Core) ApplyConflict(rec ConflictRecord) {
	s := c.group(rec.Group).subscription(rec.Subscription)
	s.conflicts = max(s.conflicts, rec.Number)
	switch {
	case rec.Open && s.conflict == nil:
		s.group.contested[s] = struct{}{}
		s.conflict = &rec
	case !rec.Open && s.conflict != nil:
		delete(s.group.contested, s)
		s.conflict = nil
	}
}

// names lists instance ids of a set in order, without one, at most maxNamed. Of a very large set, which is a shared group's, any will do.
func names(set map[*peer]struct{}, except *peer) []string {
	var ids []string
	for p := range set {
		if p != except {
			ids = append(ids, p.key.InstanceID)
		}
		if len(ids) == 50*maxNamed {
			break
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), maxNamed)]
}

// inOrder lists a set of peers by name: whatever is told about several is told in one order on every run.
func inOrder(set map[*peer]struct{}) []*peer {
	peers := make([]*peer, 0, len(set))
	for p := range set {
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(a, b *peer) int { return ComparePeers(a.key, b.key) })
	return peers
}
