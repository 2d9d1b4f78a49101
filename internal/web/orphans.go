package web

import (
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/web/views"
)

// orphans lists the open ones, and the resolved ones when the view asks for them; instance narrows to one peer's.
func (s *site) orphans(v view, sum service.Summary, instance string) (views.OrphanList, error) {
	q := service.OrphanQuery{Page: service.Page{Limit: orphansPerPage}, Group: v.group, InstanceID: instance}
	if !v.allOrphans {
		q.State = []service.OrphanState{service.OrphanOpen, service.OrphanHeld}
	}
	list, err := s.Service.Orphans(q)
	if err != nil {
		return views.OrphanList{}, err
	}
	other := v
	other.allOrphans = !v.allOrphans
	l := views.OrphanList{
		Part: s.partURL(v, "orphans"), Total: grouped(list.Total), ShowGroup: v.group == "" && len(sum.Groups) > 1,
		Toggle: s.url(other), ToggleLabel: "with resolved",
	}
	if v.allOrphans {
		l.ToggleLabel = "open only"
	}
	if instance != "" {
		l.ShowGroup = false
	}
	for i := range list.Items {
		l.Rows = append(l.Rows, s.orphanRow(v, sum.Now, &list.Items[i]))
	}
	if more := list.Total - len(list.Items); more > 0 {
		l.More = "and " + grouped(more) + " more"
	}
	return l, nil
}

func (s *site) orphanRow(v view, now time.Time, o *service.Orphan) views.OrphanRow {
	r := views.OrphanRow{
		ID: elementID("o", o.ID), Subscription: o.Subscription, Group: o.Group,
		Peer: o.InstanceID, PeerHref: s.peerURL(v, o.Group, o.InstanceID),
		Cause: status(o.Cause), Opened: ageOf(now, o.OpenedAt), Claim: s.claim(v, now, o),
		CoveredBy: some(o.CoveredBy, subscriptionsNamed),
	}
	if o.Cause == coordination.StatusDraining && !o.Deadline.IsZero() {
		d := clockOf(now, o.Deadline)
		d.Text = "until " + d.Text
		r.Deadline = &views.Drain{Deadline: d}
	}
	switch o.State {
	case service.OrphanResolved:
		r.Resolution = resolution(o.Resolution)
		r.Resolved = optional(ageOf(now, o.ResolvedAt), o.ResolvedAt)
	case service.OrphanHeld:
		r.Held = optional(clockOf(now, o.HeldUntil), o.HeldUntil)
	case service.OrphanOpen:
	}
	return r
}

func resolution(r coordination.Resolution) string {
	if r == coordination.ResolvedTakenOver {
		return "taken over"
	}
	return string(r)
}

func (s *site) claim(v view, now time.Time, o *service.Orphan) views.Claim {
	c := o.Claim
	if c == nil {
		return views.Claim{State: "none"}
	}
	m := views.Claim{
		State: "waiting", Holder: c.InstanceID, HolderHref: s.peerURL(v, o.Group, c.InstanceID), Token: "#" + decimal(c.FencingToken),
		NotBefore: optional(clockOf(now, c.NotBefore), c.NotBefore),
	}
	if c.Ready {
		m.State = "ready"
	}
	return m
}
