package coordination

import (
	"slices"
	"time"
)

// ClaimState is where a claim is in its life.
type ClaimState string

// The claim states.
const (
	ClaimActive   ClaimState = "active"
	ClaimDone     ClaimState = "done"
	ClaimReleased ClaimState = "released"
	// ClaimExpired: its holder left, turned stale or was never heard for one timeout.
	ClaimExpired ClaimState = "expired"
	// ClaimRevoked: the orphan recovered, was dismissed or removed, or somebody else serves the subscription.
	ClaimRevoked ClaimState = "revoked"
)

// ClaimRecord is the newest claim on one subscription. It is never deleted: Token is what the
// next claim's token must exceed.
type ClaimRecord struct {
	Group        string     `json:"group"`
	Subscription string     `json:"subscription"`
	ID           string     `json:"id"`
	InstanceID   string     `json:"instance_id"`
	Token        uint64     `json:"token"`
	State        ClaimState `json:"state"`
	Ready        bool       `json:"ready"`
	NotBefore    time.Time  `json:"not_before,omitzero"`
	ClaimedAt    time.Time  `json:"claimed_at"`
	EndedAt      time.Time  `json:"ended_at,omitzero"`
	OrphanID     string     `json:"orphan_id,omitempty"`
	// Told: orphan.claimed was raised.
	Told bool `json:"told,omitempty"`

	Revision uint64 `json:"-"`
}

// Key is the subscription the claim is on.
func (r *ClaimRecord) Key() SubscriptionKey { return SubscriptionKey{r.Group, r.Subscription} }

type claim struct {
	alarm
	ClaimRecord
	sub *subscription
	// appliedAt is when this replica learnt of it: a restart gives its holder a full timeout again.
	appliedAt time.Time
}

func (cl *claim) active() bool { return cl.State == ClaimActive }

func (cl *claim) holder() PeerKey { return PeerKey{cl.Group, cl.InstanceID} }

// ClaimPlan is what a claim request would do. Record is to be committed on the condition
// that the subscription's claim record is still at Base; Held is set when the claimant holds it already.
type ClaimPlan struct {
	Record *ClaimRecord
	Base   uint64
	Held   *ClaimRecord
}

// PlanClaim decides whether k's instance may claim. Of any number that ask at once, the commit lets one win.
func (c *Core) PlanClaim(now time.Time, k SubscriptionKey, instance string) (ClaimPlan, error) {
	c.begin(now)
	var s *subscription
	if g := c.groups[k.Group]; g != nil {
		s = g.subs[k.Subscription]
	}
	if held, err := c.refuseClaim(s, now, k, instance); held != nil || err != nil {
		return ClaimPlan{Held: held}, err
	}
	rec := &ClaimRecord{
		Group: k.Group, Subscription: k.Subscription, InstanceID: instance, State: ClaimActive, ClaimedAt: now, Token: c.floor + 1,
	}
	plan := ClaimPlan{Record: rec}
	if s != nil && s.claim != nil {
		plan.Base = s.claim.Revision
		rec.Token = max(c.floor, s.claim.Token) + 1
	}
	rec.ID = claimID(k, rec.Token)
	if s != nil {
		if p := s.owner(); p != nil {
			rec.OrphanID = p.episode.find(k.Subscription).ID
		}
		rec.Ready, rec.NotBefore = c.readiness(s, now)
		if !c.leading {
			rec.Ready = false // only the leader says so
		}
	} else {
		rec.Ready = c.leading
	}
	return plan, nil
}

func (c *Core) refuseClaim(s *subscription, now time.Time, k SubscriptionKey, instance string) (*ClaimRecord, error) {
	if p := c.peer(PeerKey{k.Group, instance}); p != nil && p.gone() {
		return nil, ErrClaimantUnfit
	}
	if s == nil {
		return nil, nil
	}
	if cl := s.claim; cl != nil && cl.active() {
		if cl.InstanceID == instance {
			held := cl.ClaimRecord
			return &held, nil
		}
		return nil, &HeldError{Reason: ErrClaimHeld, Holder: cl.InstanceID}
	}
	if by := names(s.serving, nil); len(by) > 0 {
		return nil, c.servedError(s, now, by[0])
	}
	if until := s.group.mass.record.HeldUntil; s.onlyHeld() {
		return nil, &HeldError{Reason: ErrHeld, RetryAfter: max(until.Sub(now), time.Second)}
	}
	return nil, nil
}

// servedError names who serves; one that is only presumed alive during its grace is worth another try.
func (c *Core) servedError(s *subscription, now time.Time, by string) error {
	for p := range s.serving {
		if p.status == StatusHealthy {
			return &HeldError{Reason: ErrServed, Holder: p.key.InstanceID}
		}
	}
	retry := time.Second
	for p := range s.serving {
		if at := c.silenceDeadline(p); !at.IsZero() {
			retry = max(retry, at.Sub(now))
		}
	}
	return &HeldError{Reason: ErrServed, Holder: by, RetryAfter: retry}
}

// onlyHeld: it was left behind, and every record of that is still held.
func (s *subscription) onlyHeld() bool {
	held := false
	for p := range s.episodes {
		switch p.episode.find(s.name).State {
		case OrphanOpen:
			return false
		case OrphanHeld:
			held = true
		}
	}
	return held
}

// owner is the peer whose open orphan a claim is for: the newest.
func (s *subscription) owner() *peer {
	var newest *peer
	for p := range s.episodes {
		if p.episode.find(s.name).State != OrphanOpen {
			continue
		}
		if newest == nil || newerEpisode(p, newest) {
			newest = p
		}
	}
	return newest
}

// readiness: a holder may start when everyone who left the subscription behind is surely gone.
// The estimate is the drain deadline, moved while work is overdue.
func (c *Core) readiness(s *subscription, now time.Time) (ready bool, notBefore time.Time) {
	ready = true
	for p := range s.episodes {
		if c.safe(p, now) || !p.gone() {
			continue
		}
		ready = false
		at := p.shutdown.Deadline
		if p.status == StatusTerminated {
			at = c.quietAt(p)
		}
		if at.After(notBefore) {
			notBefore = at
		}
	}
	return ready, notBefore
}

// ApplyClaim takes a committed claim fact.
func (c *Core) ApplyClaim(now time.Time, rec ClaimRecord) *Output {
	out := c.begin(now)
	s := c.group(rec.Group).subscription(rec.Subscription)
	if s.claim != nil && rec.Revision <= s.claim.Revision {
		return out
	}
	if s.claim != nil {
		rec.Told = rec.Told || (s.claim.Told && s.claim.ID == rec.ID)
		c.unlinkClaim(s.claim)
	}
	cl := &claim{ClaimRecord: rec, sub: s, appliedAt: now}
	s.claim = cl
	c.claims[rec.ID] = cl
	out.ClaimIDs = append(out.ClaimIDs, rec.ID)
	out.Touched = true
	if cl.active() {
		c.openClaims++
		c.holders[cl.holder()] = append(c.holders[cl.holder()], cl)
		c.moveClaim(cl, now)
	}
	return out
}

func (c *Core) unlinkClaim(cl *claim) {
	delete(c.claims, cl.ID)
	c.out.ClaimIDs = append(c.out.ClaimIDs, cl.ID)
	c.dropHolder(cl)
}

func (c *Core) dropHolder(cl *claim) {
	k := cl.holder()
	held := c.holders[k]
	i := slices.Index(held, cl)
	if i < 0 {
		return
	}
	c.openClaims--
	if held = slices.Delete(held, i, i+1); len(held) == 0 {
		delete(c.holders, k)
	} else {
		c.holders[k] = held
	}
}

// PlanRelease returns the released record of an active claim.
func (c *Core) PlanRelease(now time.Time, id string) (ClaimPlan, error) {
	c.begin(now)
	cl := c.claims[id]
	switch {
	case cl == nil:
		return ClaimPlan{}, ErrNotFound
	case cl.State == ClaimReleased:
		held := cl.ClaimRecord
		return ClaimPlan{Held: &held}, nil
	case !cl.active():
		return ClaimPlan{}, ErrEnded
	}
	rec := cl.ClaimRecord
	rec.State, rec.EndedAt, rec.Ready = ClaimReleased, now, false
	return ClaimPlan{Record: &rec, Base: cl.Revision}, nil
}

// moveClaim draws the leader's conclusions about one claim.
func (c *Core) moveClaim(cl *claim, now time.Time) {
	if !c.leading || !cl.active() {
		return
	}
	c.tellClaim(cl, now)
	if c.holderGone(cl, now) {
		c.endClaim(cl, now, ClaimExpired)
		return
	}
	if p := c.peer(cl.holder()); p != nil && p.status == StatusHealthy {
		if _, serves := cl.sub.serving[p]; serves {
			c.takeOver(p, []string{cl.Subscription}, now)
			return
		}
	}
	if cl.Ready {
		return
	}
	ready, notBefore := c.readiness(cl.sub, now)
	if ready != cl.Ready || !notBefore.Equal(cl.NotBefore) {
		cl.Ready, cl.NotBefore = ready, notBefore
		c.saveClaim(cl)
	}
}

// holderGone: the holder left, turned stale, or was never heard for one timeout.
func (c *Core) holderGone(cl *claim, now time.Time) bool {
	p := c.peer(cl.holder())
	if p != nil && !p.lastSeen.IsZero() {
		return p.gone()
	}
	if p != nil && p.gone() {
		return true
	}
	timeout := cl.sub.group.settings.HeartbeatTimeout
	at := justAfter(later(cl.appliedAt.Add(timeout), cl.sub.group.graceAt, timeout))
	if now.Before(at) {
		c.due.arm(cl, at)
		return false
	}
	return true
}

func (cl *claim) fire(c *Core, now time.Time) {
	if cl.sub.claim == cl { // not replaced meanwhile
		c.moveClaim(cl, now)
	}
}

func (c *Core) tellClaim(cl *claim, now time.Time) {
	if cl.Told {
		return
	}
	cl.Told = true
	c.saveClaim(cl)
	d := EventData{
		Group: cl.Group, Claimant: cl.InstanceID, Subscriptions: []string{cl.Subscription}, Uncovered: []string{cl.Subscription},
		ClaimID: cl.ID, FencingToken: cl.Token,
	}
	if ref := c.orphans[cl.OrphanID]; ref != nil {
		e := ref.episode
		d.InstanceID, d.Cause, d.Intent, d.OrphanIDs = e.InstanceID, e.Cause, e.Intent, []string{cl.OrphanID}
		d.Deadline, d.LastSeen = optional(e.Deadline), optional(e.LastSeen)
	}
	c.raise(now, c.idFor(cl.ID, "", EventOrphanClaimed, cl.Token), EventOrphanClaimed, d)
}

// endClaim is the leader's conclusion that a claim is over.
func (c *Core) endClaim(cl *claim, now time.Time, how ClaimState) {
	if !c.leading || !cl.active() {
		return
	}
	c.dropHolder(cl)
	cl.State, cl.EndedAt, cl.Ready = how, now, false
	c.saveClaim(cl)
}

func (c *Core) saveClaim(cl *claim) {
	c.out.Claims = append(c.out.Claims, cl.Key())
	c.out.ClaimIDs = append(c.out.ClaimIDs, cl.ID)
	c.out.Touched = true
}

// moveClaims looks at every claim that p's leaving, working on or finishing decides.
func (c *Core) moveClaims(p *peer, now time.Time) {
	if !c.leading || c.openClaims == 0 {
		return
	}
	if p.episode != nil {
		for i := range p.episode.Orphans {
			if s := p.group.subs[p.episode.Orphans[i].Subscription]; s != nil && s.claim != nil {
				c.moveClaim(s.claim, now)
			}
		}
	}
	for _, cl := range slices.Clone(c.holders[p.key]) {
		c.moveClaim(cl, now)
	}
}

// orphanEnded revokes the claim on an orphan that ended without a takeover.
func (c *Core) orphanEnded(p *peer, name string, now time.Time, how Resolution) {
	s := p.group.subs[name]
	if s == nil || s.claim == nil || how == ResolvedTakenOver {
		return
	}
	for q := range s.episodes {
		if q != p && q.episode.find(name).State != OrphanResolved {
			return
		}
	}
	c.endClaim(s.claim, now, ClaimRevoked)
}

// ClaimRecord is the newest claim on a subscription.
func (c *Core) ClaimRecord(k SubscriptionKey) (ClaimRecord, bool) {
	if g := c.groups[k.Group]; g != nil {
		if s := g.subs[k.Subscription]; s != nil && s.claim != nil {
			return s.claim.ClaimRecord, true
		}
	}
	return ClaimRecord{}, false
}

// ClaimByID finds a claim while it is the newest of its subscription.
func (c *Core) ClaimByID(id string) (ClaimRecord, bool) {
	if cl := c.claims[id]; cl != nil {
		return cl.ClaimRecord, true
	}
	return ClaimRecord{}, false
}

// StampClaim tells at which revision the claim now stands in the store.
func (c *Core) StampClaim(k SubscriptionKey, revision uint64) {
	if g := c.groups[k.Group]; g != nil {
		if s := g.subs[k.Subscription]; s != nil && s.claim != nil {
			s.claim.Revision = max(s.claim.Revision, revision)
		}
	}
}

// ClaimsOf are the active claims that a peer holds.
func (c *Core) ClaimsOf(k PeerKey) []ClaimRecord {
	held := c.holders[k]
	if len(held) == 0 {
		return nil
	}
	recs := make([]ClaimRecord, len(held))
	for i, cl := range held {
		recs[i] = cl.ClaimRecord
	}
	return recs
}
