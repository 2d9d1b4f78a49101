package coordination

import (
	"cmp"
	"slices"
	"time"
)

// AssignmentState is where an assignment is in its life.
type AssignmentState string

// The assignment states.
const (
	AssignmentPending      AssignmentState = "pending"
	AssignmentDelivered    AssignmentState = "delivered"
	AssignmentAcknowledged AssignmentState = "acknowledged"
	AssignmentExpired      AssignmentState = "expired"
	// AssignmentCovered: the target reports the subscriptions.
	AssignmentCovered AssignmentState = "covered"
)

// AssignmentRecord is one durable assignment.
type AssignmentRecord struct {
	ID               string          `json:"id"`
	Group            string          `json:"group"`
	TargetInstanceID string          `json:"target_instance_id"`
	Subscriptions    []string        `json:"subscriptions"`
	SourceInstanceID string          `json:"source_instance_id"`
	AssignedAt       time.Time       `json:"assigned_at"`
	Priority         int64           `json:"priority"`
	State            AssignmentState `json:"state"`
	ExpiresAt        time.Time       `json:"expires_at"`
	DeliveredAt      time.Time       `json:"delivered_at,omitzero"`
	EndedAt          time.Time       `json:"ended_at,omitzero"`
	// Told is the last state that an event was raised for.
	Told AssignmentState `json:"told,omitempty"`

	Revision uint64 `json:"-"`
}

// Target is the peer the assignment is addressed to.
func (r *AssignmentRecord) Target() PeerKey { return PeerKey{r.Group, r.TargetInstanceID} }

type assignment struct {
	alarm
	AssignmentRecord
}

func (a *assignment) open() bool {
	return a.State == AssignmentPending || a.State == AssignmentDelivered
}

// ApplyAssignment takes a committed assignment fact.
func (c *Core) ApplyAssignment(now time.Time, rec AssignmentRecord) *Output {
	out := c.begin(now)
	if held := c.assignments[rec.ID]; held != nil {
		if rec.Revision <= held.Revision {
			return out
		}
		if toldStage(held.Told) > toldStage(rec.Told) {
			rec.Told = held.Told
		}
		c.dropTarget(held)
	}
	a := &assignment{AssignmentRecord: rec}
	c.assignments[rec.ID] = a
	out.AssignmentIDs = append(out.AssignmentIDs, rec.ID)
	out.Touched = true
	if a.open() {
		pending := append(slices.Clone(c.targets[a.Target()]), a)
		slices.SortStableFunc(pending, byPriority)
		c.targets[a.Target()] = pending
	}
	c.moveAssignment(a, now)
	return out
}

// byPriority orders by priority, the highest first, then by age.
func byPriority(a, b *assignment) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.AssignedAt.Compare(b.AssignedAt), cmp.Compare(a.ID, b.ID))
}

func (c *Core) dropTarget(a *assignment) {
	k := a.Target()
	rest := slices.DeleteFunc(slices.Clone(c.targets[k]), func(x *assignment) bool { return x == a })
	if len(rest) == 0 {
		delete(c.targets, k)
	} else {
		c.targets[k] = rest
	}
}

// PlanAcknowledge returns the acknowledged record of an open assignment.
func (c *Core) PlanAcknowledge(now time.Time, id string) (rec AssignmentRecord, again bool, err error) {
	c.begin(now)
	a := c.assignments[id]
	switch {
	case a == nil:
		return rec, false, ErrNotFound
	case a.State == AssignmentAcknowledged:
		return a.AssignmentRecord, true, nil
	case !a.open():
		return rec, false, ErrEnded
	}
	rec = a.AssignmentRecord
	rec.State, rec.EndedAt = AssignmentAcknowledged, now
	return rec, false, nil
}

// PendingFor are the open assignments of a peer, the most urgent first.
func (c *Core) PendingFor(k PeerKey) []AssignmentRecord {
	open := c.targets[k]
	if len(open) == 0 {
		return nil
	}
	recs := make([]AssignmentRecord, len(open))
	for i, a := range open {
		recs[i] = a.AssignmentRecord
	}
	return recs
}

// NotDelivered names a peer's assignments that were never handed out.
func (c *Core) NotDelivered(k PeerKey) []string {
	var ids []string
	for _, a := range c.targets[k] {
		if a.State == AssignmentPending {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// PlanDelivered returns the record of an assignment that was handed out for the first time; false when there
// is nothing left to say of it.
func (c *Core) PlanDelivered(now time.Time, id string) (AssignmentRecord, bool) {
	a := c.assignments[id]
	if a == nil || a.State != AssignmentPending {
		return AssignmentRecord{}, false
	}
	rec := a.AssignmentRecord
	rec.State, rec.DeliveredAt = AssignmentDelivered, now
	return rec, true
}

// moveAssignment draws the leader's conclusions about one assignment.
func (c *Core) moveAssignment(a *assignment, now time.Time) {
	if c.leading && a.open() {
		switch {
		case c.coveredByTarget(a):
			c.endAssignment(a, now, AssignmentCovered)
		case !now.Before(a.ExpiresAt):
			c.endAssignment(a, now, AssignmentExpired)
		}
	}
	if a.open() {
		if a.ExpiresAt.After(now) {
			c.due.arm(a, a.ExpiresAt)
		}
	} else {
		c.dropTarget(a)
	}
	c.tellAssignment(a, now)
}

func (a *assignment) fire(c *Core, now time.Time) {
	if c.assignments[a.ID] == a { // not replaced meanwhile
		c.moveAssignment(a, now)
	}
}

func (c *Core) endAssignment(a *assignment, now time.Time, how AssignmentState) {
	a.State, a.EndedAt = how, now
	c.out.Assignments = append(c.out.Assignments, a.ID)
	c.out.AssignmentIDs = append(c.out.AssignmentIDs, a.ID)
	c.out.Touched = true
}

// coveredByTarget: the target reports every subscription as a healthy peer.
func (c *Core) coveredByTarget(a *assignment) bool {
	p := c.peer(a.Target())
	if p == nil || p.status != StatusHealthy {
		return false
	}
	g := c.groups[a.Group]
	for _, name := range a.Subscriptions {
		s := g.subs[name]
		if s == nil {
			return false
		}
		if _, serves := s.serving[p]; !serves {
			return false
		}
	}
	return true
}

type assignmentStage struct {
	state AssignmentState
	event EventType
}

// assignmentStages are the states that have an event, in the order of a life. A covered assignment counts
// as acknowledged: the target does what it was asked to.
func assignmentStages() []assignmentStage {
	return []assignmentStage{
		{AssignmentPending, EventAssignmentCreated},
		{AssignmentDelivered, EventAssignmentDelivered},
		{AssignmentAcknowledged, EventAssignmentAcknowledged},
		{AssignmentCovered, EventAssignmentAcknowledged},
		{AssignmentExpired, EventAssignmentExpired},
	}
}

// toldStage orders the states that were told.
func toldStage(s AssignmentState) int {
	return slices.IndexFunc(assignmentStages(), func(st assignmentStage) bool { return st.state == s })
}

// tellAssignment raises the events of the stages that were reached and not told.
func (c *Core) tellAssignment(a *assignment, now time.Time) {
	if !c.leading || a.Told == a.State {
		return
	}
	started := a.Told == ""
	for _, stage := range assignmentStages() {
		reached := stage.state == a.State || (stage.state == AssignmentDelivered && !a.DeliveredAt.IsZero()) || stage.state == AssignmentPending
		if started && reached {
			c.raiseAssignment(a, now, stage.event)
		}
		if stage.state == a.Told {
			started = true
		}
	}
	a.Told = a.State
	c.out.Assignments = append(c.out.Assignments, a.ID)
	c.out.AssignmentIDs = append(c.out.AssignmentIDs, a.ID)
}

func (c *Core) raiseAssignment(a *assignment, now time.Time, t EventType) {
	priority := a.Priority
	c.raise(now, c.idFor(a.ID, "", t, 0), t, EventData{
		Group: a.Group, InstanceID: a.TargetInstanceID, AssignmentID: a.ID, Subscriptions: a.Subscriptions,
		SourceInstanceID: a.SourceInstanceID, Priority: &priority,
	})
}

// moveAssignments looks at what is addressed to p, once its subscriptions or status changed.
func (c *Core) moveAssignments(p *peer, now time.Time) {
	for _, a := range c.targets[p.key] {
		c.moveAssignment(a, now)
	}
}

// AssignmentRecord finds an assignment.
func (c *Core) AssignmentRecord(id string) (AssignmentRecord, bool) {
	if a := c.assignments[id]; a != nil {
		return a.AssignmentRecord, true
	}
	return AssignmentRecord{}, false
}

// StampAssignment tells at which revision an assignment now stands in the store.
func (c *Core) StampAssignment(id string, revision uint64) {
	if a := c.assignments[id]; a != nil {
		a.Revision = max(a.Revision, revision)
	}
}

// ForgetAssignment drops an ended assignment from memory, when its record goes.
func (c *Core) ForgetAssignment(id string) {
	if a := c.assignments[id]; a != nil {
		c.dropTarget(a)
		delete(c.assignments, id)
		c.out.AssignmentIDs = append(c.out.AssignmentIDs, id)
	}
}
