package coordination

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The model is the design's state machine written down a second time, with no index, no timer and no thought of
// speed: after every input everything is recomputed by looking at every peer, and before every comparison the whole
// list of inputs is run again from the start. It knows one leading replica without trouble of its own.

// modelInput is one input; exactly one of the pointers is set, or op says what it is.
type modelInput struct {
	at       time.Time
	op       string // beat, shutdown, cancel, remove, dismiss, tick
	key      PeerKey
	beat     *Heartbeat
	shutdown *Shutdown
	sub      string // of a dismissal
}

func (in modelInput) String() string {
	switch in.op {
	case "beat":
		h := in.beat
		return fmt.Sprintf("beat %v stamp=%s subs=%v(%t) inflight=%d(%t) inc=%q",
			in.key, clockText(h.Timestamp), h.Subscriptions, h.HasSubscriptions, h.InFlightCount, h.HasInFlight, h.Incarnation)
	case "shutdown":
		n := in.shutdown
		return fmt.Sprintf("shutdown %v %s init=%s end=%s timeout=%s(%t) subs=%v(%t) inflight=%d inc=%q", in.key, n.Intent,
			clockText(n.InitiatedAt), clockText(n.ExpectedCompletionAt), n.DrainTimeout, n.HasDrainTimeout, n.Subscriptions, n.HasSubscriptions,
			n.InFlightCount, n.Incarnation)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %v %s", in.op, in.key, in.sub))
}

func clockText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format("15:04:05.999999999")
}

type modelNotice struct {
	number              int
	intent              Intent
	initiated, deadline time.Time
	subs                []string
	incarnation         string
	rejoined            bool // how it was closed
}

type modelOrphan struct {
	sub        string
	state      OrphanState
	resolution Resolution
	told       bool
}

type modelEpisode struct {
	opened   time.Time
	closed   bool
	cause    Status
	intent   Intent
	deadline time.Time
	orphans  []*modelOrphan
}

func (e *modelEpisode) find(sub string) *modelOrphan {
	if e == nil {
		return nil
	}
	for _, o := range e.orphans {
		if o.sub == sub {
			return o
		}
	}
	return nil
}

func (e *modelEpisode) subs(keep func(*modelOrphan) bool) []string {
	var out []string
	for _, o := range e.orphans {
		if keep(o) {
			out = append(out, o.sub)
		}
	}
	return out
}

func unresolved(o *modelOrphan) bool { return o.state != OrphanResolved }

type modelChange struct {
	at     time.Time
	status Status
}

type modelPeer struct {
	key     PeerKey
	removed bool
	history []modelChange // observed statuses, oldest first

	heard    time.Time
	content  *Heartbeat
	stamp    time.Time
	stamped  bool
	offsets  []time.Duration // of this process, oldest first
	suspects []modelSuspect

	incarnation   string
	superseded    []string
	takeoverStamp time.Time
	ghosts        int
	ghostAt       time.Time
	idConflict    bool
	busy          bool // an earlier message of this process showed work

	notice, closed      *modelNotice
	notices             int
	finished, overdue   bool
	lastOverdue, idleAt time.Time

	told        Status
	toldNotices int
	episode     *modelEpisode
}

type modelSuspect struct{ arrival, stamp time.Time }

func (p *modelPeer) status() Status {
	if len(p.history) == 0 {
		return ""
	}
	return p.history[len(p.history)-1].status
}

func (p *modelPeer) since() time.Time { return p.history[len(p.history)-1].at }

// statusAsOf is the status that was observed at t.
func (p *modelPeer) statusAsOf(t time.Time) Status {
	s := Status("")
	for _, c := range p.history {
		if !c.at.After(t) {
			s = c.status
		}
	}
	return s
}

// subs are the effective subscriptions: the notification's, else the last heartbeat's.
func (p *modelPeer) subs() []string {
	switch {
	case p.notice != nil:
		return p.notice.subs
	case p.content != nil:
		return p.content.Subscriptions
	}
	return nil
}

// leftOpen: the peer is gone and something it left behind is not resolved.
func (p *modelPeer) leftOpen() bool { return p.absent() && len(p.episode.subs(unresolved)) > 0 }

func (p *modelPeer) absent() bool { return p.episode != nil && !p.episode.closed }

// lost is the orphan of the absence that goes on.
func (p *modelPeer) lost(sub string) *modelOrphan {
	if p == nil || !p.absent() {
		return nil
	}
	return p.episode.find(sub)
}

type modelMass struct {
	heldUntil    time.Time
	stale, peers int
}

type modelContest struct {
	since time.Time // two or more serve it since
	open  bool
	peers []string
}

type model struct {
	timeout, retention time.Duration
	shared             map[string]bool

	now      time.Time
	peers    []*modelPeer
	mass     map[string]*modelMass
	contests map[SubscriptionKey]*modelContest
	events   []string
	outcome  Outcome
	err      error
	// dismissedNothing: the orphan to be dismissed had ended before.
	dismissedNothing bool
}

// runModel runs all inputs from the start and returns the state after the last one; events are the last input's.
func runModel(timeout, retention time.Duration, shared map[string]bool, inputs []modelInput) *model {
	m := &model{
		timeout: timeout, retention: retention, shared: shared,
		mass: map[string]*modelMass{}, contests: map[SubscriptionKey]*modelContest{},
	}
	for _, in := range inputs {
		m.events, m.outcome, m.err, m.dismissedNothing, m.now = nil, "", nil, false, in.at
		m.passTime()
		m.apply(in)
	}
	return m
}

func (m *model) find(k PeerKey) *modelPeer {
	for _, p := range m.peers {
		if p.key == k && !p.removed {
			return p
		}
	}
	return nil
}

func (m *model) alive() []*modelPeer {
	return slices.DeleteFunc(slices.Clone(m.peers), func(p *modelPeer) bool { return p.removed })
}

// servers are the healthy peers of the group that report the subscription.
func (m *model) servers(k SubscriptionKey, except *modelPeer) []string {
	var ids []string
	for _, p := range m.alive() {
		if p != except && p.key.Group == k.Group && p.status() == StatusHealthy && slices.Contains(p.subs(), k.Subscription) {
			ids = append(ids, p.key.InstanceID)
		}
	}
	slices.Sort(ids)
	return ids
}

// names are all subscriptions anybody ever had, in every group.
func (m *model) names() []SubscriptionKey {
	seen := map[SubscriptionKey]bool{}
	for _, p := range m.peers {
		for _, s := range p.subs() {
			seen[SubscriptionKey{p.key.Group, s}] = true
		}
		if p.episode != nil {
			for _, o := range p.episode.orphans {
				seen[SubscriptionKey{p.key.Group, o.sub}] = true
			}
		}
	}
	for k := range m.contests {
		seen[k] = true
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b SubscriptionKey) int {
		return strings.Compare(a.Group+"/"+a.Subscription, b.Group+"/"+b.Subscription)
	})
}

func (m *model) covered() map[SubscriptionKey]bool {
	c := map[SubscriptionKey]bool{}
	for _, k := range m.names() {
		c[k] = len(m.servers(k, nil)) > 0
	}
	return c
}

// passTime lets happen what time alone brings by now, seen at once, as one look at all peers.
func (m *model) passTime() {
	covered := m.covered()
	var forgotten []*modelPeer
	for _, p := range m.alive() {
		lasting := p.status() != StatusHealthy && p.status() != StatusDraining && m.statusOf(p) == p.status()
		if m.now.Sub(p.heard) <= m.timeout {
			continue // its next heartbeat would begin another life
		}
		if lasting && m.now.Sub(p.since()) > m.retention && !p.leftOpen() {
			forgotten = append(forgotten, p)
		}
	}
	turnedStale := m.observe()
	for _, group := range slices.Sorted(maps.Keys(m.mass)) {
		m.endHold(group)
	}
	m.draw(covered, turnedStale)
	for _, p := range forgotten {
		m.forget(p, ResolvedRemoved)
	}
}

func (m *model) endHold(group string) {
	mass := m.mass[group]
	if mass.heldUntil.IsZero() || m.now.Before(mass.heldUntil) {
		return
	}
	m.event(EventGroupMassStalenessEnded, EventData{Group: group, StaleCount: mass.stale, PeerCount: mass.peers, HeldUntil: &mass.heldUntil})
	mass.heldUntil = time.Time{}
	for _, p := range m.alive() {
		if p.key.Group == group && p.absent() {
			m.release(p)
		}
	}
}

// statusOf is the status at now: first match wins.
func (m *model) statusOf(p *modelPeer) Status {
	switch {
	case p.notice != nil && (p.finished || !m.now.Before(p.notice.deadline)):
		return StatusTerminated
	case p.notice != nil:
		return StatusDraining
	case p.heard.IsZero():
		return StatusUnknown
	case m.now.Sub(p.heard) > m.timeout:
		return StatusStale
	}
	return StatusHealthy
}

// settle looks at everybody and draws all conclusions: covered says what was covered before.
func (m *model) settle(covered map[SubscriptionKey]bool) { m.draw(covered, m.observe()) }

// observe takes down what everybody's status is now, and names the groups in which somebody turned stale.
func (m *model) observe() (turnedStale map[string]bool) {
	turnedStale = map[string]bool{}
	for _, p := range m.alive() {
		if s := m.statusOf(p); s != p.status() {
			p.history = append(p.history, modelChange{m.now, s})
			turnedStale[p.key.Group] = turnedStale[p.key.Group] || s == StatusStale
		}
	}
	return turnedStale
}

func (m *model) draw(covered map[SubscriptionKey]bool, turnedStale map[string]bool) {
	for _, group := range slices.Sorted(maps.Keys(turnedStale)) {
		if turnedStale[group] {
			m.judgeMass(group)
		}
	}
	for _, p := range m.alive() {
		m.conclude(p)
	}
	m.cover(covered)
	m.contest()
}

// judgeMass: at least half of the peers that were healthy one timeout earlier, four at least, are stale now.
func (m *model) judgeMass(group string) {
	mass := m.mass[group]
	if mass == nil {
		mass = &modelMass{}
		m.mass[group] = mass
	}
	if !mass.heldUntil.IsZero() {
		return
	}
	healthy, stale := 0, 0
	for _, p := range m.peers {
		if p.key.Group != group || p.statusAsOf(m.now.Add(-m.timeout)) != StatusHealthy {
			continue
		}
		healthy++
		if !p.removed && p.status() == StatusStale {
			stale++
		}
	}
	if healthy >= 4 && 2*stale >= healthy {
		*mass = modelMass{m.now.Add(m.timeout), stale, healthy}
		m.event(EventGroupMassStaleness, EventData{Group: group, StaleCount: stale, PeerCount: healthy, HeldUntil: &mass.heldUntil})
	}
}

func (m *model) holding(group string) bool {
	mass := m.mass[group]
	return mass != nil && !mass.heldUntil.IsZero()
}

func (m *model) conclude(p *modelPeer) {
	newNotice := p.notice != nil && p.notice.number > p.toldNotices
	from := p.told
	if p.status() == from && !newNotice {
		if p.notice != nil && p.absent() {
			m.leave(p) // the notification may say something new
		}
		return
	}
	p.told = p.status()
	if from == "" && !p.heard.IsZero() {
		m.peerEvent(EventPeerJoined, p, from)
	}
	switch p.status() {
	case StatusHealthy, StatusUnknown:
		if from == "" || from == StatusHealthy || from == StatusUnknown {
			return
		}
		event := EventPeerRecovered
		if from != StatusStale && p.closed != nil && p.closed.rejoined {
			event = EventPeerRejoined
		}
		m.peerEvent(event, p, from)
		m.closeEpisode(p, ResolvedRecovered)
	case StatusStale:
		m.peerEvent(EventPeerStale, p, from)
		m.leave(p)
	case StatusDraining, StatusTerminated:
		if newNotice {
			p.toldNotices = p.notice.number
			m.peerEvent(EventPeerDraining, p, from)
		}
		if p.status() == StatusTerminated && from != StatusTerminated {
			m.peerEvent(EventPeerTerminated, p, from)
		}
		m.leave(p)
	}
}

// leave opens the peer's episode or carries it on.
func (m *model) leave(p *modelPeer) {
	if !p.absent() {
		p.episode = &modelEpisode{opened: m.now}
	}
	e := p.episode
	before := e.cause
	e.cause, e.intent, e.deadline = p.status(), "", time.Time{}
	if p.notice != nil {
		e.intent, e.deadline = p.notice.intent, p.notice.deadline
	}
	for _, sub := range p.subs() {
		if e.find(sub) != nil {
			continue
		}
		o := &modelOrphan{sub: sub, state: OrphanOpen}
		switch {
		case len(m.servers(SubscriptionKey{p.key.Group, sub}, p)) > 0:
			o.state, o.resolution = OrphanResolved, ResolvedTakenOver
		case e.cause == StatusStale && m.holding(p.key.Group):
			o.state = OrphanHeld
		}
		e.orphans = append(e.orphans, o)
	}
	escalates := e.cause == StatusTerminated && before != "" && before != StatusTerminated
	toldOpen := len(e.subs(func(o *modelOrphan) bool { return o.told && o.state == OrphanOpen })) > 0
	m.release(p)
	if escalates && toldOpen {
		m.orphanEvent(EventOrphanEscalated, p, e.subs(unresolved), "")
	}
}

// release opens held orphans unless the hold still goes on, and tells of what is open and untold.
func (m *model) release(p *modelPeer) {
	e := p.episode
	untold := false
	for _, o := range e.orphans {
		if o.state == OrphanHeld && (e.cause != StatusStale || !m.holding(p.key.Group)) {
			o.state = OrphanOpen
		}
		if o.state == OrphanOpen && !o.told {
			o.told, untold = true, true
		}
	}
	if untold {
		m.orphanEvent(EventOrphanDetected, p, e.subs(func(*modelOrphan) bool { return true }), "")
	}
}

// resolve ends orphans of one peer together; only those that were told of are told to have ended.
func (m *model) resolve(p *modelPeer, how Resolution, subs []string) {
	var told []string
	for _, sub := range subs {
		o := p.episode.find(sub)
		if o.told {
			told = append(told, sub)
		}
		o.state, o.resolution, o.told = OrphanResolved, how, false
	}
	if len(told) > 0 {
		m.orphanEvent(EventOrphanResolved, p, told, how)
	}
}

func (m *model) closeEpisode(p *modelPeer, how Resolution) {
	if p.absent() {
		m.resolve(p, how, p.episode.subs(unresolved))
		p.episode.closed = true
	}
}

// cover resolves what somebody serves now, and reopens what nobody serves any more and no other record tells.
func (m *model) cover(before map[SubscriptionKey]bool) {
	for _, p := range m.alive() {
		if !p.absent() {
			continue
		}
		taken := p.episode.subs(func(o *modelOrphan) bool {
			return unresolved(o) && len(m.servers(SubscriptionKey{p.key.Group, o.sub}, p)) > 0
		})
		m.resolve(p, ResolvedTakenOver, taken)
	}
	reopened := map[*modelPeer]bool{}
	for _, k := range m.names() {
		if before[k] && len(m.servers(k, nil)) == 0 {
			if p := m.reopen(k); p != nil {
				reopened[p] = true
			}
		}
	}
	for _, p := range m.alive() {
		if reopened[p] {
			m.release(p)
		}
	}
}

func (m *model) reopen(k SubscriptionKey) *modelPeer {
	var newest *modelPeer
	for _, p := range m.alive() {
		if p.key.Group != k.Group || !p.absent() {
			continue
		}
		o := p.episode.find(k.Subscription)
		if o == nil {
			continue
		}
		if unresolved(o) {
			return nil
		}
		if o.resolution != ResolvedTakenOver {
			continue
		}
		later := newest != nil && p.episode.opened.After(newest.episode.opened)
		same := newest != nil && p.episode.opened.Equal(newest.episode.opened) && p.key.InstanceID < newest.key.InstanceID
		if newest == nil || later || same {
			newest = p
		}
	}
	if newest != nil {
		o := newest.episode.find(k.Subscription)
		o.state, o.resolution = OrphanOpen, ""
	}
	return newest
}

// contest follows which subscriptions two or more healthy peers serve, and tells of those that last for longer than
// one timeout.
func (m *model) contest() {
	for _, k := range m.names() {
		c := m.contests[k]
		if c == nil {
			c = &modelContest{}
			m.contests[k] = c
		}
		if len(m.servers(k, nil)) >= 2 {
			if c.since.IsZero() {
				c.since = m.now
			}
			if !c.open && !m.shared[k.Group] && m.now.Sub(c.since) > m.timeout {
				c.open, c.peers = true, m.servers(k, nil)
				m.event(EventSubscriptionConflict, EventData{Group: k.Group, Subscription: k.Subscription, Peers: c.peers})
			}
			continue
		}
		if c.open {
			m.event(EventSubscriptionConflictResolved, EventData{Group: k.Group, Subscription: k.Subscription, Peers: c.peers})
		}
		*c = modelContest{}
	}
}

func (m *model) apply(in modelInput) {
	covered := m.covered()
	p := m.find(in.key)
	var had []string
	if p != nil {
		had = p.subs()
	}
	switch in.op {
	case "beat":
		if p == nil {
			p = &modelPeer{key: in.key, history: []modelChange{{in.at, StatusUnknown}}}
			m.peers = append(m.peers, p)
		}
		m.outcome = m.beat(p, in.beat)
	case "shutdown":
		if p == nil {
			p = &modelPeer{key: in.key, history: []modelChange{{in.at, StatusUnknown}}}
			m.peers = append(m.peers, p)
		}
		m.outcome = m.shutdown(p, in.shutdown)
	case "cancel":
		m.err = m.cancel(p)
	case "remove":
		if p == nil {
			m.err = ErrNotFound
			return
		}
		m.forget(p, ResolvedRemoved)
		return
	case "dismiss":
		if o := p.lost(in.sub); o == nil || !unresolved(o) {
			m.dismissedNothing = true
			return
		}
		m.resolve(p, ResolvedDismissed, []string{in.sub})
		return
	}
	for _, s := range had {
		if !slices.Contains(p.subs(), s) {
			covered[SubscriptionKey{in.key.Group, s}] = true // whatever told of it before does so no more
		}
	}
	m.settle(covered)
}

// forget drops a peer; whatever it served is uncovered now, and whatever it told nobody tells any more.
func (m *model) forget(p *modelPeer, how Resolution) {
	uncovers := map[SubscriptionKey]bool{}
	for _, sub := range p.subs() {
		o := p.episode.find(sub)
		uncovers[SubscriptionKey{p.key.Group, sub}] = p.status() == StatusHealthy || (p.absent() && o != nil && unresolved(o))
	}
	m.closeEpisode(p, how)
	m.event(EventPeerRemoved, EventData{Group: p.key.Group, InstanceID: p.key.InstanceID, PreviousStatus: p.status()})
	p.removed = true
	p.history = append(p.history, modelChange{m.now, ""})
	m.settle(uncovers)
}

func (m *model) cancel(p *modelPeer) error {
	switch {
	case p == nil:
		return ErrNotFound
	case p.notice == nil:
		return ErrNotDraining
	case p.status() == StatusTerminated:
		return ErrPeerTerminated
	}
	m.close(p, false)
	return nil
}

func (m *model) close(p *modelPeer, rejoined bool) {
	p.notice.rejoined = rejoined
	p.closed, p.notice = p.notice, nil
	p.finished, p.overdue, p.lastOverdue, p.idleAt = false, false, time.Time{}, time.Time{}
}

func (m *model) beat(p *modelPeer, h *Heartbeat) Outcome {
	if h.Incarnation != "" && slices.Contains(p.superseded, h.Incarnation) {
		m.ghost(p, h)
		return OutcomeIgnoredStale
	}
	restarted := h.Incarnation != "" && p.incarnation != "" && h.Incarnation != p.incarnation
	if restarted {
		m.supersede(p, h.Incarnation, h.Timestamp)
	} else if h.Incarnation != "" {
		p.incarnation = h.Incarnation
	}
	m.quietGhost(p)
	newest := m.newest(p, h)
	p.heard = m.now
	if !newest {
		return OutcomeIgnoredOlder
	}
	p.content, p.stamp, p.stamped = h, h.Timestamp, !h.Timestamp.IsZero()
	if p.stamped {
		p.offsets = append(p.offsets, m.now.Sub(h.Timestamp))
	} else {
		p.stamp = m.now
	}
	p.suspects = nil
	back := p.notice != nil && m.drainBeat(p, h)
	p.busy = p.busy || shows(h.InFlightCount, h.Subscriptions)
	if back {
		m.close(p, true)
		return OutcomeRejoined
	}
	return OutcomeAccepted
}

func shows(inFlight int64, subs []string) bool { return inFlight > 0 || len(subs) > 0 }

// newest: content is ordered by the sender's clock, until three beats in a row show that it was set back.
func (m *model) newest(p *modelPeer, h *Heartbeat) bool {
	if h.Timestamp.IsZero() || !p.stamped || !h.Timestamp.Before(p.stamp) {
		return true
	}
	if p.stamp.Sub(h.Timestamp) <= m.timeout {
		return false
	}
	next := modelSuspect{m.now, h.Timestamp}
	if n := len(p.suspects); n > 0 {
		arrived := float64(next.arrival.Sub(p.suspects[n-1].arrival))
		stamped := float64(next.stamp.Sub(p.suspects[n-1].stamp))
		if stamped < 0.8*arrived || stamped > 1.2*arrived {
			p.suspects = nil
		}
	}
	p.suspects = append(p.suspects, next)
	if len(p.suspects) < 3 || m.now.Sub(p.suspects[0].arrival) < m.timeout/2 {
		return false
	}
	p.offsets = nil
	return true
}

func (m *model) supersede(p *modelPeer, next string, stamp time.Time) {
	p.superseded = append(p.superseded, p.incarnation)
	p.incarnation, p.takeoverStamp, p.ghosts = next, stamp, 0
	p.stamped, p.busy, p.offsets, p.suspects = false, false, nil, nil
}

// ghost is a beat of a superseded incarnation: one may have been under way at the restart; one that was stamped
// afterwards, or a second one, shows that both still run.
func (m *model) ghost(p *modelPeer, h *Heartbeat) {
	m.quietGhost(p)
	p.ghosts++
	p.ghostAt = m.now
	late := h.Timestamp.IsZero() || (!p.takeoverStamp.IsZero() && h.Timestamp.After(p.takeoverStamp))
	if p.idConflict || m.now.Sub(p.heard) > m.timeout || (!late && p.ghosts < 2) {
		return
	}
	p.idConflict = true
	m.event(EventPeerIDConflict, EventData{
		Group: p.key.Group, InstanceID: p.key.InstanceID, Incarnations: []string{h.Incarnation, p.incarnation},
	})
}

// quietGhost ends an id conflict when the superseded process was not heard for more than one timeout.
func (m *model) quietGhost(p *modelPeer) {
	if p.idConflict && m.now.Sub(p.ghostAt) > m.timeout {
		p.idConflict, p.ghosts = false, 0
	}
}

// drainBeat judges a beat of a peer that announced its shutdown and reports whether the peer is back.
func (m *model) drainBeat(p *modelPeer, h *Heartbeat) bool {
	n := p.notice
	if h.Incarnation != "" && n.incarnation != "" && h.Incarnation != n.incarnation {
		return true
	}
	explicitlyIdle := h.HasInFlight && h.HasSubscriptions && !shows(h.InFlightCount, h.Subscriptions)
	if p.status() == StatusDraining {
		p.finished = p.busy && explicitlyIdle
		return false
	}
	p.overdue = h.InFlightCount > 0
	switch {
	case p.overdue:
		p.lastOverdue, p.idleAt = m.now, time.Time{}
		return false
	case len(h.Subscriptions) == 0:
		p.idleAt = time.Time{}
		if explicitlyIdle {
			p.finished, p.lastOverdue = true, time.Time{}
		}
		return false
	case p.idleAt.IsZero():
		p.idleAt = m.now
		return false
	}
	third := m.timeout / 3
	return m.now.Sub(p.idleAt) >= third && m.now.Sub(p.lastOverdue) >= third
}

func (m *model) shutdown(p *modelPeer, s *Shutdown) Outcome {
	if m.past(p, s) {
		return OutcomeIgnoredStale
	}
	n := &modelNotice{
		number: p.notices + 1, intent: s.Intent, initiated: s.InitiatedAt, deadline: m.deadline(p, s), subs: s.Subscriptions, incarnation: s.Incarnation,
	}
	if n.initiated.IsZero() {
		n.initiated = m.now
	}
	if !s.HasSubscriptions {
		n.subs = p.subs()
	}
	if n.incarnation == "" {
		n.incarnation = p.incarnation
	}
	p.busy = p.busy || shows(s.InFlightCount, n.subs)
	if p.incarnation == "" {
		p.incarnation = n.incarnation
	}
	outcome := OutcomeAccepted
	if held := p.notice; held != nil && p.status() == StatusDraining && oneProcess(held.incarnation, n.incarnation) {
		outcome = OutcomeMerged
		intent := n.intent
		if held.intent.Urgency() > intent.Urgency() {
			intent = held.intent
		}
		if n.initiated.Before(held.initiated) {
			*n = *held
		}
		n.number, n.intent = held.number, intent
	} else {
		p.finished, p.overdue, p.lastOverdue, p.idleAt = false, false, time.Time{}, time.Time{}
	}
	p.notice = n
	p.notices = n.number
	return outcome
}

// oneProcess: messages without an incarnation are of whatever process is there.
func oneProcess(a, b string) bool { return a == b || a == "" || b == "" }

// past: in the sender's own clock, before any shift.
func (m *model) past(p *modelPeer, s *Shutdown) bool {
	if s.Incarnation != "" && slices.Contains(p.superseded, s.Incarnation) {
		return true
	}
	if held := p.notice; held != nil && !s.InitiatedAt.IsZero() && s.InitiatedAt.Equal(held.initiated) && oneProcess(s.Incarnation, held.incarnation) {
		return true
	}
	if c := p.closed; c != nil && !s.InitiatedAt.IsZero() && !s.InitiatedAt.After(c.initiated) && (s.Incarnation == "" || s.Incarnation == c.incarnation) {
		return true
	}
	return !s.HasDrainTimeout && !p.stamp.IsZero() && p.stamp.Sub(s.ExpectedCompletionAt) > m.timeout
}

func (m *model) deadline(p *modelPeer, s *Shutdown) time.Time {
	switch {
	case s.HasDrainTimeout:
		return m.now.Add(s.DrainTimeout)
	case !s.InitiatedAt.IsZero() && !s.ExpectedCompletionAt.After(s.InitiatedAt):
		return m.now
	}
	skew := time.Duration(0)
	switch {
	case len(p.offsets) > 0:
		skew = slices.Min(p.offsets[max(0, len(p.offsets)-16):])
	case p.heard.IsZero() && !s.InitiatedAt.IsZero():
		skew = min(0, m.now.Sub(s.InitiatedAt))
	}
	if skew.Abs() > 2*time.Second {
		return s.ExpectedCompletionAt.Add(skew)
	}
	return s.ExpectedCompletionAt
}

func (m *model) peerEvent(t EventType, p *modelPeer, from Status) {
	d := EventData{Group: p.key.Group, InstanceID: p.key.InstanceID, Status: p.status(), PreviousStatus: from, Subscriptions: p.subs()}
	if p.notice != nil {
		d.Intent, d.Deadline = p.notice.intent, &p.notice.deadline
	}
	m.event(t, d)
}

func (m *model) orphanEvent(t EventType, p *modelPeer, subs []string, how Resolution) {
	e := p.episode
	d := EventData{
		Group: p.key.Group, InstanceID: p.key.InstanceID, Cause: e.cause, Intent: e.intent, Subscriptions: subs, Resolution: how,
		CoveredBy: map[string][]string{},
	}
	if !e.deadline.IsZero() {
		d.Deadline = &e.deadline
	}
	for _, sub := range subs {
		if unresolved(e.find(sub)) {
			d.Uncovered = append(d.Uncovered, sub)
		} else if by := m.servers(SubscriptionKey{p.key.Group, sub}, p); len(by) > 0 {
			d.CoveredBy[sub] = by
		}
	}
	m.event(t, d)
}

func (m *model) event(t EventType, d EventData) { m.events = append(m.events, eventText(t, d)) }

// eventText writes down what an event says, in an order of its own.
func eventText(t EventType, d EventData) string {
	sorted := func(s []string) []string { return slices.Sorted(slices.Values(s)) }
	when := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return clockText(*t)
	}
	text := fmt.Sprintf("%s %s/%s", t, d.Group, d.InstanceID)
	switch {
	case t == EventPeerRemoved:
		return fmt.Sprintf("%s was %s", text, d.PreviousStatus)
	case t == EventPeerIDConflict:
		return fmt.Sprintf("%s %v", text, d.Incarnations)
	case strings.HasPrefix(string(t), "peer."):
		return fmt.Sprintf("%s %s was %q subs=%v intent=%s deadline=%s", text, d.Status, d.PreviousStatus, d.Subscriptions, d.Intent, when(d.Deadline))
	case strings.HasPrefix(string(t), "orphan."):
		return fmt.Sprintf("%s %s subs=%v uncovered=%v covered=%v intent=%s deadline=%s %s", text, d.Cause, sorted(d.Subscriptions),
			sorted(d.Uncovered), d.CoveredBy, d.Intent, when(d.Deadline), d.Resolution)
	case strings.HasPrefix(string(t), "group."):
		return fmt.Sprintf("%s %d of %d until %s", text, d.StaleCount, d.PeerCount, when(d.HeldUntil))
	}
	return fmt.Sprintf("%s %s %v", text, d.Subscription, d.Peers)
}
