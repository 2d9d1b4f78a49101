package coordination

// DecodeHeartbeat reads a heartbeat in the original protocol's to_dict form, with this service's additive keys
// (group, incarnation, labels). It judges form and type only; Limits.CheckHeartbeat judges ranges. The error
// is an *InvalidError.
func DecodeHeartbeat(data []byte) (Heartbeat, error) {
	h := Heartbeat{Group: DefaultGroup}
	var r wireReader
	var hasID, hasTimestamp bool
	names := []string{
		"instance_id", "timestamp", "subscriptions", "in_flight_count", "is_leader", "load_factor",
		"group", "incarnation", "labels",
	}
	r.read(data, names, func(i int) {
		switch i {
		case 0:
			r.requiredText(&h.InstanceID, &hasID)
		case 1:
			r.timestamp(&h.Timestamp, &hasTimestamp)
		case 2:
			h.HasSubscriptions = r.texts(&h.Subscriptions)
		case 3:
			h.HasInFlight = r.integer(&h.InFlightCount)
		case 4:
			r.boolean(&h.IsLeader)
		case 5:
			r.float(&h.LoadFactor)
		case 6:
			r.group(&h.Group)
		case 7:
			r.text(&h.Incarnation)
		case 8:
			h.Labels = r.labels()
		}
	})
	r.require(!hasID, "instance_id")
	r.require(!hasTimestamp, "timestamp")
	if err := r.end(); err != nil {
		return Heartbeat{}, err
	}
	return h, nil
}

// DecodeShutdown reads a shutdown notification in the to_dict form, with the additive keys group and incarnation.
// A completion before its start is kept as it came: it is a drain of no time. The error is an *InvalidError.
func DecodeShutdown(data []byte) (Shutdown, error) {
	n := Shutdown{Group: DefaultGroup}
	var r wireReader
	var hasID, hasIntent, hasInitiated, hasCompletion bool
	names := []string{
		"instance_id", "intent", "initiated_at", "expected_completion_at", "subscriptions", "in_flight_count",
		"metadata", "group", "incarnation",
	}
	r.read(data, names, func(i int) {
		switch i {
		case 0:
			r.requiredText(&n.InstanceID, &hasID)
		case 1:
			r.intent(&n.Intent, &hasIntent)
		case 2:
			r.timestamp(&n.InitiatedAt, &hasInitiated)
		case 3:
			r.timestamp(&n.ExpectedCompletionAt, &hasCompletion)
		case 4:
			n.HasSubscriptions = r.texts(&n.Subscriptions)
		case 5:
			r.integer(&n.InFlightCount)
		case 6:
			r.object(&n.Metadata)
		case 7:
			r.group(&n.Group)
		case 8:
			r.text(&n.Incarnation)
		}
	})
	r.require(!hasID, "instance_id")
	r.require(!hasIntent, "intent")
	r.require(!hasInitiated, "initiated_at")
	r.require(!hasCompletion, "expected_completion_at")
	if err := r.end(); err != nil {
		return Shutdown{}, err
	}
	return n, nil
}

// DecodeAssignment reads a work assignment in the to_dict form, with the additive keys id and group. The error
// is an *InvalidError.
func DecodeAssignment(data []byte) (Assignment, error) {
	a := Assignment{Group: DefaultGroup}
	var r wireReader
	var hasTarget, hasSubscriptions, hasSource, hasAssigned bool
	names := []string{
		"target_instance_id", "subscriptions", "source_instance_id", "assigned_at", "priority", "id", "group",
	}
	r.read(data, names, func(i int) {
		switch i {
		case 0:
			r.requiredText(&a.TargetInstanceID, &hasTarget)
		case 1:
			hasSubscriptions = r.texts(&a.Subscriptions)
		case 2:
			r.requiredText(&a.SourceInstanceID, &hasSource)
		case 3:
			r.timestamp(&a.AssignedAt, &hasAssigned)
		case 4:
			r.integer(&a.Priority)
		case 5:
			r.text(&a.ID)
		case 6:
			r.group(&a.Group)
		}
	})
	r.require(!hasTarget, "target_instance_id")
	r.require(!hasSubscriptions, "subscriptions")
	r.require(!hasSource, "source_instance_id")
	r.require(!hasAssigned, "assigned_at")
	if err := r.end(); err != nil {
		return Assignment{}, err
	}
	return a, nil
}

// group reads the group; an empty one is refused here, for behind the decoder "" and "default" would be two groups.
func (r *wireReader) group(to *string) {
	if r.absent() {
		return
	}
	r.text(to)
	if *to == "" {
		r.wrong.add(r.at, "is empty; name a group or leave the key out")
	}
}

func (r *wireReader) intent(to *Intent, present *bool) {
	var text string
	if r.absent() {
		return
	}
	*present = true
	before := len(r.wrong)
	r.text(&text)
	*to = Intent(text)
	if !to.Valid() && r.scan.fault == "" && len(r.wrong) == before {
		r.wrong.add(r.at, intentDetail)
	}
}
