package api

import (
	"context"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// GetSummary implements apigen.StrictServerInterface.
func (h *handlers) GetSummary(context.Context, apigen.GetSummaryRequestObject) (apigen.GetSummaryResponseObject, error) {
	s := h.service.Summary()
	return apigen.GetSummary200JSONResponse{
		Now:         shown(s.Now),
		Peers:       peerCounts(s.Peers, s.Overdue),
		OpenOrphans: s.OpenOrphans,
		OpenClaims:  s.OpenClaims,
		Groups:      each(s.Groups, groupSummary),
		GraceUntil:  orNull(s.GraceUntil),
		Leader:      leader(s.Leader),
		Parts:       each(s.Parts, part),
	}, nil
}

func groupSummary(g service.GroupSummary) apigen.GroupSummary {
	return apigen.GroupSummary{
		Group:                   g.Group,
		Peers:                   peerCounts(g.Peers, g.Overdue),
		OpenOrphans:             g.OpenOrphans,
		Conflicts:               g.Conflicts,
		HeartbeatTimeoutSeconds: g.HeartbeatTimeout.Seconds(),
		MassStalenessUntil:      orNull(g.MassStaleUntil),
		SharedSubscriptions:     g.Shared,
	}
}

func peerCounts(counts map[coordination.Status]int, overdue int) apigen.PeerCounts {
	out := apigen.PeerCounts{
		Healthy:    counts[coordination.StatusHealthy],
		Stale:      counts[coordination.StatusStale],
		Draining:   counts[coordination.StatusDraining],
		Terminated: counts[coordination.StatusTerminated],
		Unknown:    counts[coordination.StatusUnknown],
		Overdue:    overdue,
	}
	out.Total = out.Healthy + out.Stale + out.Draining + out.Terminated + out.Unknown
	return out
}

func part(p service.PartHealth) apigen.Part {
	return apigen.Part{Name: p.Name, Kind: p.Kind, Ready: p.Ready, Reason: textOrNull(p.Reason), Since: orNull(p.Since)}
}
