package web

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/web/views"
)

const (
	subscriptionsNamed = 2
	// skewShown is the clock skew that the service begins to correct for.
	skewShown = 2 * time.Second
	loadUnits = 40.0
	loadHigh  = 0.8
)

func (s *site) peers(v view, sum service.Summary) (views.PeerTable, error) {
	list, err := s.Service.Peers(v.peerQuery())
	if err != nil {
		return views.PeerTable{}, err
	}
	slices.SortStableFunc(list.Items, byUrgency)
	t := views.PeerTable{
		Part: s.partURL(v, "peers"), Shown: shown(len(list.Items), list.Total), ShowGroup: v.group == "" && len(sum.Groups) > 1,
	}
	for i := range list.Items {
		t.Rows = append(t.Rows, s.peerRow(v, sum, &list.Items[i]))
	}
	first, next := v, v
	first.cursor, next.cursor = "", list.NextCursor
	if v.cursor != "" {
		t.First = s.url(first)
	}
	if list.NextCursor != "" {
		t.Next = s.url(next)
	}
	if v.group != "" || v.status != "" || v.q != "" {
		t.Clear = s.homeURL(v)
	}
	return t, nil
}

func shown(here, total int) string {
	if here == total {
		return grouped(total)
	}
	return grouped(here) + " of " + grouped(total)
}

// byUrgency orders a page: orphaned, overdue, draining, stale, then by name.
func byUrgency(a, b service.Peer) int {
	return cmp.Or(
		-cmp.Compare(min(a.OpenOrphans, 1), min(b.OpenOrphans, 1)),
		cmp.Compare(urgency(&a), urgency(&b)),
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.InstanceID, b.InstanceID),
	)
}

func urgency(p *service.Peer) int {
	switch {
	case p.Overdue:
		return 0
	case p.Status == coordination.StatusDraining:
		return 1
	case p.Status == coordination.StatusStale:
		return 2
	}
	return 3
}

func (s *site) peerRow(v view, sum service.Summary, p *service.Peer) views.PeerRow {
	row := views.PeerRow{
		ID: elementID("p", p.Group, p.InstanceID), Name: p.InstanceID, Group: p.Group, Href: s.peerURL(v, p.Group, p.InstanceID),
		Status: peerStatus(p), Flags: flags(p), LastSeen: optional(ageOf(sum.Now, p.LastSeen), p.LastSeen),
		Drain: drain(sum.Now, p), Version: p.Labels["version"],
		Spark: sparkline(p.Intervals, timeoutOf(sum, p.Group)),
	}
	row.Subs = p.Subscriptions[:min(subscriptionsNamed, len(p.Subscriptions))]
	if more := len(p.Subscriptions) - len(row.Subs); more > 0 {
		row.SubsMore = "+" + strconv.Itoa(more)
	}
	if p.OpenOrphans > 0 {
		row.Orphans = counted(p.OpenOrphans, "orphan", "orphans")
	}
	if p.LastHeartbeat != nil && p.Status != coordination.StatusTerminated {
		row.Load = load(p.LastHeartbeat.LoadFactor)
	}
	return row
}

func peerStatus(p *service.Peer) views.Status {
	if p.Overdue {
		return views.Status{Key: "overdue", Label: "Overdue"}
	}
	return status(p.Status)
}

func status(st coordination.Status) views.Status {
	return views.Status{Key: string(st), Label: statusLabel(st)}
}

func flags(p *service.Peer) []string {
	var list []string
	if p.LastHeartbeat != nil && p.LastHeartbeat.IsLeader {
		list = append(list, "leader")
	}
	if p.IDConflict {
		list = append(list, "id conflict")
	}
	if p.ClockSkew != nil && p.ClockSkew.Abs() > skewShown {
		list = append(list, "clock "+signed(*p.ClockSkew))
	}
	if len(p.Directives) > 0 {
		list = append(list, "drain requested")
	}
	return list
}

func drain(now time.Time, p *service.Peer) *views.Drain {
	if p.Shutdown == nil {
		return nil
	}
	deadline := p.Shutdown.Deadline
	if p.Overdue && !p.OverdueSince.IsZero() {
		deadline = p.OverdueSince
	}
	d := &views.Drain{Deadline: clockOf(now, deadline), Overdue: p.Overdue, Intent: intent(p.Shutdown.Intent)}
	d.Over = p.Status == coordination.StatusTerminated && !p.Overdue
	switch {
	case d.Over && deadline.After(now):
		d.Early = true
	case !d.Over:
		d.Deadline.Text = "until " + d.Deadline.Text
		d.InFlight = strconv.FormatInt(inFlight(p), 10) + " in flight"
	}
	return d
}

// inFlight is the newest word on work in flight.
func inFlight(p *service.Peer) int64 {
	if hb := p.LastHeartbeat; hb != nil && hb.ReceivedAt.After(p.Shutdown.ReceivedAt) {
		return hb.InFlightCount
	}
	return p.Shutdown.InFlightCount
}

func intent(i coordination.Intent) string {
	if i == coordination.IntentHealthFailure {
		return "health failure"
	}
	return string(i)
}

func load(factor float64) *views.Load {
	return &views.Load{
		Text:  strconv.FormatFloat(factor, 'f', loadDecimals(factor), 64),
		Width: strconv.Itoa(int(math.Round(min(factor, 1) * loadUnits))),
		High:  factor >= loadHigh,
	}
}

func loadDecimals(factor float64) int {
	if factor < 100 {
		return 2
	}
	return 0
}

// timeoutOf is a group's heartbeat timeout, 0 when the group is not known.
func timeoutOf(sum service.Summary, group string) time.Duration {
	for _, g := range sum.Groups {
		if g.Group == group {
			return g.HeartbeatTimeout
		}
	}
	return 0
}
