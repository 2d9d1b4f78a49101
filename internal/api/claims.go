package api

import (
	"context"
	"math"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/service"
)

// CreateClaim implements apigen.StrictServerInterface.
func (h *handlers) CreateClaim(ctx context.Context, request apigen.CreateClaimRequestObject) (apigen.CreateClaimResponseObject, error) {
	var wrong wrongFields
	asked := service.ClaimRequest{
		Group: wrong.group(request.Body.Group), Subscription: request.Body.Subscription, InstanceID: request.Body.InstanceID,
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	c, created, err := h.service.Claim(ctx, asked)
	if err != nil {
		return nil, err
	}
	if !created {
		return apigen.CreateClaim200JSONResponse(claim(c)), nil
	}
	return apigen.CreateClaim201JSONResponse{
		Body:    claim(c),
		Headers: apigen.CreateClaim201ResponseHeaders{Location: h.location("/v1/claims", c.ID)},
	}, nil
}

// ListClaims implements apigen.StrictServerInterface.
func (h *handlers) ListClaims(_ context.Context, request apigen.ListClaimsRequestObject) (apigen.ListClaimsResponseObject, error) {
	p := request.Params
	at, err := page(p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	states, err := known[apigen.ClaimState, service.ClaimState]("/state", p.State)
	if err != nil {
		return nil, err
	}
	list, err := h.service.Claims(service.ClaimQuery{
		Page: at, Group: value(p.Group), InstanceID: value(p.InstanceID), Subscription: value(p.Subscription), State: states,
	})
	if err != nil {
		return nil, err
	}
	return apigen.ListClaims200JSONResponse{Items: each(list.Items, claim), NextCursor: textOrNull(list.NextCursor), Total: list.Total}, nil
}

// GetClaim implements apigen.StrictServerInterface.
func (h *handlers) GetClaim(_ context.Context, request apigen.GetClaimRequestObject) (apigen.GetClaimResponseObject, error) {
	c, err := h.service.ClaimByID(request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetClaim200JSONResponse(claim(c)), nil
}

// ReleaseClaim implements apigen.StrictServerInterface.
func (h *handlers) ReleaseClaim(ctx context.Context, request apigen.ReleaseClaimRequestObject) (apigen.ReleaseClaimResponseObject, error) {
	c, err := h.service.ReleaseClaim(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.ReleaseClaim200JSONResponse(claim(c)), nil
}

func claim(c service.Claim) apigen.Claim {
	return apigen.Claim{
		ID:           c.ID,
		Group:        c.Group,
		Subscription: c.Subscription,
		InstanceID:   c.InstanceID,
		FencingToken: signed(c.FencingToken),
		State:        apigen.ClaimState(c.State),
		Ready:        c.Ready,
		NotBefore:    orNull(c.NotBefore),
		ClaimedAt:    shown(c.ClaimedAt),
		EndedAt:      orNull(c.EndedAt),
		OrphanID:     textOrNull(c.OrphanID),
	}
}

// signed is a counter as the contract has it; none comes near the end of int64.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
