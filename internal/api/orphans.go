package api

import (
	"context"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// GetOrphanedSubscriptions implements apigen.StrictServerInterface.
func (h *handlers) GetOrphanedSubscriptions(_ context.Context, request apigen.GetOrphanedSubscriptionsRequestObject) (apigen.GetOrphanedSubscriptionsResponseObject, error) {
	var wrong wrongFields
	group := wrong.group(request.Params.Group)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	view := apigen.OrphanedSubscriptions(h.service.OrphanedSubscriptions(group))
	if view == nil {
		view = apigen.OrphanedSubscriptions{}
	}
	return apigen.GetOrphanedSubscriptions200JSONResponse(view), nil
}

// ListOrphans implements apigen.StrictServerInterface.
func (h *handlers) ListOrphans(_ context.Context, request apigen.ListOrphansRequestObject) (apigen.ListOrphansResponseObject, error) {
	p := request.Params
	at, err := page(p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	states, err := known[apigen.OrphanState, service.OrphanState]("/state", p.State)
	if err != nil {
		return nil, err
	}
	cause, err := knownOne[apigen.OrphanCause, coordination.Status]("/cause", p.Cause)
	if err != nil {
		return nil, err
	}
	list, err := h.service.Orphans(service.OrphanQuery{
		Page: at, Group: value(p.Group), State: states, Cause: cause, Subscription: value(p.Subscription),
		InstanceID: value(p.InstanceID), Claimable: value(p.Claimable),
	})
	if err != nil {
		return nil, err
	}
	return apigen.ListOrphans200JSONResponse{Items: each(list.Items, orphan), NextCursor: textOrNull(list.NextCursor), Total: list.Total}, nil
}

// GetOrphan implements apigen.StrictServerInterface.
func (h *handlers) GetOrphan(_ context.Context, request apigen.GetOrphanRequestObject) (apigen.GetOrphanResponseObject, error) {
	o, err := h.service.Orphan(request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetOrphan200JSONResponse(orphan(o)), nil
}

// DismissOrphan implements apigen.StrictServerInterface.
func (h *handlers) DismissOrphan(ctx context.Context, request apigen.DismissOrphanRequestObject) (apigen.DismissOrphanResponseObject, error) {
	reason := ""
	if request.Body != nil {
		reason = value(request.Body.Reason)
	}
	o, err := h.service.DismissOrphan(ctx, request.ID, reason)
	if err != nil {
		return nil, err
	}
	return apigen.DismissOrphan200JSONResponse(orphan(o)), nil
}

func orphan(o service.Orphan) apigen.Orphan {
	out := apigen.Orphan{
		ID:            o.ID,
		Group:         o.Group,
		Subscription:  o.Subscription,
		InstanceID:    o.InstanceID,
		Episode:       signed(o.Episode),
		Cause:         apigen.OrphanCause(o.Cause),
		Intent:        textOrNull(apigen.Intent(o.Intent)),
		State:         apigen.OrphanState(o.State),
		Resolution:    textOrNull(apigen.OrphanResolution(o.Resolution)),
		DismissReason: textOrNull(o.DismissReason),
		OpenedAt:      shown(o.OpenedAt),
		ResolvedAt:    orNull(o.ResolvedAt),
		Deadline:      orNull(o.Deadline),
		LastSeen:      orNull(o.LastSeen),
		CoveredBy:     orEmpty(o.CoveredBy),
		HeldUntil:     orNull(o.HeldUntil),
	}
	if o.Claim != nil {
		c := claim(*o.Claim)
		out.Claim = &c
	}
	return out
}
