package api

import (
	"context"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/service"
)

// GetLeader implements apigen.StrictServerInterface.
func (h *handlers) GetLeader(context.Context, apigen.GetLeaderRequestObject) (apigen.GetLeaderResponseObject, error) {
	return apigen.GetLeader200JSONResponse(leader(h.service.Leader())), nil
}

// HandOffLeadership implements apigen.StrictServerInterface.
func (h *handlers) HandOffLeadership(ctx context.Context, _ apigen.HandOffLeadershipRequestObject) (apigen.HandOffLeadershipResponseObject, error) {
	released, err := h.service.Handoff(ctx)
	if err != nil {
		return nil, err
	}
	return apigen.HandOffLeadership200JSONResponse{Released: released}, nil
}

func leader(l service.Leader) apigen.Leader {
	return apigen.Leader{Identity: textOrNull(l.Identity), IsLeader: l.IsLeader, Epoch: signed(l.Epoch), Replica: l.Replica}
}
