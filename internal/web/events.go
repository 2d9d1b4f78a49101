package web

import (
	"strconv"
	"strings"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/web/views"
)

// events lists the newest ones; instance narrows to one peer's.
func (s *site) events(v view, sum service.Summary, instance string) (views.EventList, error) {
	list, err := s.Service.Events(service.EventQuery{Page: service.Page{Limit: eventsPerPage}, Group: v.group, InstanceID: instance})
	if err != nil {
		return views.EventList{}, err
	}
	l := views.EventList{Part: s.partURL(v, "events"), ShowGroup: v.group == "" && len(sum.Groups) > 1}
	for i := range list.Items {
		e := &list.Items[i].Event
		row := views.EventRow{
			ID: elementID("e", e.ID), Type: string(e.Type), Tone: tone(e.Type), At: clockOf(sum.Now, e.Timestamp),
			Group: e.Data.Group, Text: eventText(e),
		}
		if e.Data.InstanceID != "" && e.Data.InstanceID != instance {
			row.Peer, row.PeerHref = e.Data.InstanceID, s.peerURL(v, e.Data.Group, e.Data.InstanceID)
		}
		l.Rows = append(l.Rows, row)
	}
	return l, nil
}

// tone is the colour of an event's line.
func tone(t coordination.EventType) string {
	switch t {
	case coordination.EventPeerJoined, coordination.EventPeerRecovered, coordination.EventPeerRejoined, coordination.EventOrphanResolved:
		return "healthy"
	case coordination.EventPeerDraining:
		return "draining"
	case coordination.EventPeerStale, coordination.EventGroupMassStaleness, coordination.EventPeerIDConflict,
		coordination.EventSubscriptionConflict:
		return "stale"
	case coordination.EventPeerTerminated, coordination.EventPeerRemoved:
		return "terminated"
	case coordination.EventOrphanDetected, coordination.EventOrphanEscalated, coordination.EventWebhookDisabled:
		return "orphan"
	default:
		return ""
	}
}

const namesInEvent = 2

// eventText says in a few words what the type alone does not.
func eventText(e *coordination.Event) string {
	d := &e.Data
	switch e.Type {
	case coordination.EventPeerDraining:
		return joined(intent(d.Intent), inFlightText(d.InFlightCount))
	case coordination.EventPeerIDConflict:
		return "incarnations " + some(d.Incarnations, namesInEvent)
	case coordination.EventOrphanDetected, coordination.EventOrphanEscalated:
		return joined(some(d.Uncovered, namesInEvent), string(d.Cause))
	case coordination.EventOrphanClaimed:
		return joined(some(d.Subscriptions, namesInEvent), prefixed("by ", d.Claimant))
	case coordination.EventOrphanResolved:
		return joined(some(d.Subscriptions, namesInEvent), resolution(d.Resolution)+prefixed(" by ", d.Claimant))
	case coordination.EventSubscriptionConflict, coordination.EventSubscriptionConflictResolved:
		return joined(d.Subscription, prefixed("by ", some(d.Peers, namesInEvent)))
	case coordination.EventGroupMassStaleness, coordination.EventGroupMassStalenessEnded:
		return strconv.Itoa(d.StaleCount) + " of " + strconv.Itoa(d.PeerCount) + " peers"
	case coordination.EventLeaderChanged:
		return joined(d.Identity, "epoch "+decimal(d.Epoch))
	case coordination.EventWebhookDisabled:
		return joined(d.URL, d.Reason)
	case coordination.EventPeerJoined, coordination.EventAssignmentCreated, coordination.EventAssignmentDelivered,
		coordination.EventAssignmentAcknowledged, coordination.EventAssignmentExpired:
		return some(d.Subscriptions, namesInEvent)
	default:
		return ""
	}
}

func inFlightText(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10) + " in flight"
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// joined puts a middle dot between what is there.
func joined(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(" · ")
		}
		b.WriteString(p)
	}
	return b.String()
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
