package coordination

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The property: whatever comes in, in whatever order, the core and the model say the same.

const (
	propertyTimeout   = 12 * time.Second
	propertyRetention = 50 * time.Second
)

var propertyStart = time.Date(2026, 7, 27, 12, 0, 0, 0, time.UTC)

// sender is the generator's idea of one worker: what makes its messages hang together.
type sender struct {
	process  int           // number of restarts
	named    bool          // sends incarnations
	stampers bool          // sends timestamps
	clock    time.Duration // ahead of the service's
	subs     []string
	inFlight int64
	lastInit time.Time
}

func (s *sender) incarnation(process int) string {
	if !s.named {
		return ""
	}
	return fmt.Sprintf("run-%d", process)
}

// fleet generates inputs.
type fleet struct {
	rt      *rapid.T
	now     time.Time
	senders map[PeerKey]*sender
	groups  []string
	ids     []string
	pool    []string
}

func pick[T any](rt *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(rt, label)
}

func (f *fleet) key() PeerKey {
	return PeerKey{pick(f.rt, "group", f.groups...), pick(f.rt, "id", f.ids...)}
}

func (f *fleet) sender(k PeerKey) *sender {
	s := f.senders[k]
	if s == nil {
		s = &sender{
			named: pick(f.rt, "named", true, false), stampers: pick(f.rt, "stamps", true, true, true, false),
			clock: pick(f.rt, "clock", 0, 0, 0, 2*time.Second, 3*time.Second, -3*time.Second, time.Hour, -time.Hour), subs: f.subs(),
		}
		f.senders[k] = s
	}
	return s
}

func (f *fleet) subs() []string {
	mask := rapid.IntRange(0, 1<<len(f.pool)-1).Draw(f.rt, "subscriptions")
	var subs []string
	for i, s := range f.pool {
		if mask&(1<<i) != 0 {
			subs = append(subs, s)
		}
	}
	return subs
}

func (f *fleet) pass() {
	f.now = f.now.Add(pick(f.rt, "pause",
		0, 0, 0, 1, 100*time.Millisecond, time.Second, time.Second, 3*time.Second, propertyTimeout/3-1, propertyTimeout/3, propertyTimeout/2,
		propertyTimeout-1, propertyTimeout, propertyTimeout+1,
	))
}

// inputs draws one action and returns what it sends.
func (f *fleet) inputs() []modelInput {
	f.pass()
	k := f.key()
	switch pick(f.rt, "action",
		"beat", "beat", "beat", "beat", "idle", "done", "round", "round", "restart", "clock", "shutdown", "shutdown", "cancel", "remove", "tick", "tick") {
	case "beat":
		s := f.sender(k)
		if rapid.Bool().Draw(f.rt, "changes") {
			s.subs = f.subs()
		}
		s.inFlight = pick[int64](f.rt, "in flight", 0, 5)
		return []modelInput{f.beat(k, s)}
	case "idle":
		s := f.sender(k)
		s.inFlight = 0
		return []modelInput{f.beat(k, s)}
	case "done":
		s := f.sender(k)
		s.inFlight, s.subs = 0, nil
		return []modelInput{f.beat(k, s)}
	case "round":
		return f.round(k.Group)
	case "restart":
		s := f.sender(k)
		s.process++
		s.clock = pick(f.rt, "clock", s.clock, 0, time.Hour)
		return []modelInput{f.beat(k, s)}
	case "clock":
		s := f.sender(k)
		s.clock += pick(f.rt, "step", time.Second, -time.Second, 3*time.Second, -3*time.Second, time.Hour, -time.Hour)
		return []modelInput{f.beat(k, s)}
	case "shutdown":
		return []modelInput{f.shutdown(k, f.sender(k))}
	case "cancel":
		return []modelInput{{at: f.now, op: "cancel", key: k}}
	case "remove":
		at := f.now
		f.now = f.now.Add(1) // two lives of one name never begin at the same instant
		return []modelInput{{at: at, op: "remove", key: k}}
	}
	return []modelInput{{at: f.now, op: "tick"}}
}

// round is a beat of everybody in the group, so that groups live long enough to die together.
func (f *fleet) round(group string) []modelInput {
	all := make([]modelInput, 0, len(f.ids))
	for _, id := range f.ids {
		k := PeerKey{group, id}
		s := f.sender(k)
		h := &Heartbeat{
			Group: group, InstanceID: id, Subscriptions: s.subs, HasSubscriptions: true, InFlightCount: s.inFlight, HasInFlight: true,
			Incarnation: s.incarnation(s.process),
		}
		if s.stampers {
			h.Timestamp = f.now.Add(s.clock)
		}
		all = append(all, modelInput{at: f.now, op: "beat", key: k, beat: h})
	}
	return all
}

func (f *fleet) beat(k PeerKey, s *sender) modelInput {
	h := &Heartbeat{
		Group: k.Group, InstanceID: k.InstanceID, Subscriptions: s.subs, HasSubscriptions: true, InFlightCount: s.inFlight, HasInFlight: true,
		Incarnation: f.incarnation(s),
	}
	if pick(f.rt, "missing keys", false, false, false, true) {
		h.Subscriptions, h.HasSubscriptions, h.InFlightCount, h.HasInFlight = nil, false, 0, false
	}
	if s.stampers {
		h.Timestamp = f.now.Add(s.clock - pick(f.rt, "under way", 0, 0, 0, time.Second, propertyTimeout, propertyTimeout+1))
	}
	return modelInput{at: f.now, op: "beat", key: k, beat: h}
}

func (f *fleet) incarnation(s *sender) string {
	switch pick(f.rt, "incarnation", "own", "own", "own", "own", "none", "old") {
	case "none":
		return ""
	case "old":
		return s.incarnation(max(0, s.process-1))
	}
	return s.incarnation(s.process)
}

func (f *fleet) shutdown(k PeerKey, s *sender) modelInput {
	init := f.now.Add(s.clock - pick(f.rt, "under way", 0, 0, time.Second, propertyTimeout))
	if !s.lastInit.IsZero() && pick(f.rt, "again", false, false, true) {
		init = s.lastInit
	}
	s.lastInit = init
	n := &Shutdown{
		Group: k.Group, InstanceID: k.InstanceID, Intent: pick(f.rt, "intent", IntentGraceful, IntentMaintenance, IntentPreemption, IntentHealthFailure),
		InitiatedAt: init, InFlightCount: s.inFlight, Incarnation: f.incarnation(s),
	}
	drain := pick(f.rt, "drain", 0, 1, time.Second, 5*time.Second, propertyTimeout, 3*propertyTimeout)
	if pick(f.rt, "relative", false, false, true) {
		n.DrainTimeout, n.HasDrainTimeout = drain, true
	} else {
		n.ExpectedCompletionAt = init.Add(drain)
	}
	switch pick(f.rt, "leaves behind", "default", "own", "some") {
	case "own":
		n.Subscriptions, n.HasSubscriptions = s.subs, true
	case "some":
		n.Subscriptions, n.HasSubscriptions = f.subs(), true
	}
	return modelInput{at: f.now, op: "shutdown", key: k, shutdown: n}
}

// coreRun feeds the same inputs to the core.
type coreRun struct {
	core     *Core
	revision uint64
	events   []string
	outcome  Outcome
	err      error
	// ids maps the id of every event raised so far to what it said; twice has the ids that came again.
	ids   map[string]string
	twice []string
}

func newCoreRun() *coreRun {
	cfg := DefaultConfig()
	cfg.Default.HeartbeatTimeout = propertyTimeout
	cfg.Groups = map[string]GroupSettings{"shared": {HeartbeatTimeout: propertyTimeout, Shared: true}}
	cfg.PeerRetention = propertyRetention
	r := &coreRun{core: New(cfg), ids: map[string]string{}}
	r.core.SetLeading(propertyStart, true, 7)
	return r
}

func (r *coreRun) take(out *Output) {
	for i := range out.Events {
		text := eventText(out.Events[i].Type, out.Events[i].Data)
		r.events = append(r.events, text)
		if before, again := r.ids[out.Events[i].ID]; again {
			r.twice = append(r.twice, before+" | "+text)
		}
		r.ids[out.Events[i].ID] = text
	}
}

func (r *coreRun) apply(in modelInput) {
	r.events, r.outcome, r.err = nil, "", nil
	r.take(r.core.Tick(in.at))
	switch in.op {
	case "beat":
		var res HeartbeatResult
		var out *Output
		out, res, r.err = r.core.Heartbeat(in.at, in.beat, Arrival{Entrance: EntranceHTTP})
		r.outcome = res.Outcome
		r.take(out)
	case "shutdown":
		plan, err := r.core.PlanShutdown(in.at, in.shutdown, EntranceHTTP)
		r.outcome, r.err = plan.Outcome, err
		r.commit(in.at, plan)
	case "cancel":
		plan, err := r.core.PlanCancel(in.at, in.key)
		r.err = err
		r.commit(in.at, plan)
	case "remove":
		out, known := r.core.Remove(in.at, in.key)
		if !known {
			r.err = ErrNotFound
		}
		r.take(out)
	case "dismiss":
		id := orphanID(r.core.peer(in.key).episode, in.sub)
		out, err := r.core.Dismiss(in.at, id, "by hand")
		r.err = err
		r.take(out)
	}
}

func (r *coreRun) commit(now time.Time, plan ShutdownPlan) {
	if plan.Record == nil {
		return
	}
	r.revision++
	rec := *plan.Record
	rec.Revision = r.revision
	r.take(r.core.ApplyShutdown(now, &rec))
}

// snapshot is one text for everything that can be seen.
type snapshot map[string]string

func (m *model) snapshot() snapshot {
	s := snapshot{}
	for _, p := range m.alive() {
		line := fmt.Sprintf("%s overdue=%t subs=%v conflict=%t", p.status(), p.overdue, p.subs(), p.idConflict)
		if p.notice != nil {
			line += fmt.Sprintf(" %s until %s", p.notice.intent, clockText(p.notice.deadline))
		}
		s[fmt.Sprint(p.key)] = line
		if p.absent() {
			for _, o := range p.episode.orphans {
				s[fmt.Sprint(p.key, " left ", o.sub)] = strings.TrimSpace(fmt.Sprint(o.state, " ", o.resolution))
			}
		}
	}
	conflicts := map[string]int{}
	for k, c := range m.contests {
		if c.open {
			s[fmt.Sprint("conflict ", k)] = ""
			conflicts[k.Group]++
		}
	}
	for _, p := range m.alive() {
		if _, counted := s["count "+p.key.Group]; !counted {
			s["count "+p.key.Group] = m.count(p.key.Group, conflicts[p.key.Group])
		}
	}
	return s
}

// count is one group in numbers.
func (m *model) count(group string, conflicts int) string {
	byStatus := map[Status]int{}
	overdue, open := 0, 0
	for _, p := range m.alive() {
		if p.key.Group != group {
			continue
		}
		byStatus[p.status()]++
		if p.overdue {
			overdue++
		}
		if p.absent() {
			open += len(p.episode.subs(unresolved))
		}
	}
	return fmt.Sprintf("%v overdue=%d orphans=%d conflicts=%d held=%t", byStatus, overdue, open, conflicts, m.holding(group))
}

func (r *coreRun) snapshot(groups, ids []string) snapshot {
	s := snapshot{}
	for _, g := range groups {
		for _, id := range ids {
			k := PeerKey{g, id}
			v, known := r.core.Peer(k)
			if !known {
				continue
			}
			line := fmt.Sprintf("%s overdue=%t subs=%v conflict=%t", v.Status, v.Overdue, v.Subs, v.IDConflict)
			if v.Shutdown != nil {
				line += fmt.Sprintf(" %s until %s", v.Shutdown.Intent, clockText(v.Shutdown.Deadline))
			}
			s[fmt.Sprint(k)] = line
			if e := r.core.peer(k).episode; e != nil && e.ClosedAt.IsZero() {
				for _, o := range e.Orphans {
					s[fmt.Sprint(k, " left ", o.Subscription)] = strings.TrimSpace(fmt.Sprint(o.State, " ", o.Resolution))
				}
			}
		}
		for _, v := range r.core.GroupViews() {
			if v.Name == g && v.Total > 0 {
				maps.DeleteFunc(v.Peers, func(_ Status, n int) bool { return n == 0 })
				s["count "+g] = fmt.Sprintf("%v overdue=%d orphans=%d conflicts=%d held=%t",
					v.Peers, v.Overdue, v.OpenOrphans, v.Conflicts, !v.MassStaleUntil.IsZero())
			}
		}
		for _, c := range r.core.Conflicts(g) {
			s[fmt.Sprint("conflict ", SubscriptionKey{g, c.Subscription})] = ""
		}
	}
	return s
}

// difference lists what two snapshots do not share.
func (s snapshot) difference(o snapshot) string {
	var b strings.Builder
	for k, v := range s {
		if w, known := o[k]; !known || v != w {
			fmt.Fprintf(&b, "  %s: core %q (%t), model %q\n", k, w, known, v)
		}
	}
	for k, w := range o {
		if _, known := s[k]; !known {
			fmt.Fprintf(&b, "  %s: core %q, model has none\n", k, w)
		}
	}
	return b.String()
}

func TestCoreAgreesWithTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := &fleet{
			rt: rt, now: propertyStart, senders: map[PeerKey]*sender{}, groups: []string{DefaultGroup, "shared"},
			ids: []string{"a", "b", "c", "d", "e"}, pool: []string{"s1", "s2", "s3"},
		}
		// A few peers live through longer stories than many.
		switch pick(rt, "cast", "one", "two", "many") {
		case "one":
			f.groups, f.ids = f.groups[:1], f.ids[:1]
		case "two":
			f.groups, f.ids = f.groups[:1], f.ids[:2]
		}
		r := newCoreRun()
		var inputs []modelInput
		var m *model
		steps := rapid.IntRange(1, 30).Draw(rt, "steps")
		for range steps {
			next := f.inputs()
			if m != nil && pick(rt, "dismisses", false, false, false, false, false, true) {
				next = append(next, f.dismissals(m)...)
			}
			for _, in := range next {
				inputs = append(inputs, in)
				m = runModel(propertyTimeout, propertyRetention, map[string]bool{"shared": true}, inputs)
				if in.op == "dismiss" && m.dismissedNothing {
					inputs = inputs[:len(inputs)-1]
					continue
				}
				r.apply(in)
				compare(rt, inputs, m, r, f)
			}
		}
	})
}

// dismissals draws an open orphan to dismiss, if there is one.
func (f *fleet) dismissals(m *model) []modelInput {
	var open []modelInput
	for _, p := range m.alive() {
		if p.absent() {
			for _, sub := range p.episode.subs(unresolved) {
				open = append(open, modelInput{at: f.now, op: "dismiss", key: p.key, sub: sub})
			}
		}
	}
	if len(open) == 0 {
		return nil
	}
	return []modelInput{pick(f.rt, "dismissed", open...)}
}

func compare(rt *rapid.T, inputs []modelInput, m *model, r *coreRun, f *fleet) {
	rt.Helper()
	var faults []string
	if m.outcome != r.outcome || !errors.Is(r.err, m.err) {
		faults = append(faults, fmt.Sprintf("  outcome: core %q %v, model %q %v", r.outcome, r.err, m.outcome, m.err))
	}
	if diff := m.snapshot().difference(r.snapshot(f.groups, f.ids)); diff != "" {
		faults = append(faults, diff)
	}
	got, want := slices.Sorted(slices.Values(r.events)), slices.Sorted(slices.Values(m.events))
	if !slices.Equal(got, want) {
		faults = append(faults, "  core raised\n    "+strings.Join(got, "\n    ")+"\n  model raised\n    "+strings.Join(want, "\n    "))
	}
	if len(r.twice) > 0 {
		faults = append(faults, "  two events under one id: "+strings.Join(r.twice, ", "))
	}
	if len(faults) == 0 {
		return
	}
	var log strings.Builder
	for _, in := range inputs {
		fmt.Fprintf(&log, "  %s %s\n", clockText(in.at), in)
	}
	rt.Fatalf("after\n%s%s", log.String(), strings.Join(faults, "\n"))
}
