package api

import (
	"context"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// CreateAssignment implements apigen.StrictServerInterface.
func (h *handlers) CreateAssignment(ctx context.Context, request apigen.CreateAssignmentRequestObject) (apigen.CreateAssignmentResponseObject, error) {
	b := request.Body
	if b.Subscriptions == nil {
		return nil, invalid("/subscriptions", "is required")
	}
	var wrong wrongFields
	message := coordination.Assignment{
		Group:            wrong.group(b.Group),
		TargetInstanceID: b.TargetInstanceID,
		Subscriptions:    b.Subscriptions,
		SourceInstanceID: value(b.SourceInstanceID),
		AssignedAt:       wrong.time("/assigned_at", b.AssignedAt),
		Priority:         value(b.Priority),
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	made, err := h.service.Assign(ctx, message)
	if err != nil {
		return nil, err
	}
	return apigen.CreateAssignment201JSONResponse{
		Body:    assignment(made),
		Headers: apigen.CreateAssignment201ResponseHeaders{Location: h.location("/v1/assignments", made.ID)},
	}, nil
}

// ListAssignments implements apigen.StrictServerInterface.
func (h *handlers) ListAssignments(_ context.Context, request apigen.ListAssignmentsRequestObject) (apigen.ListAssignmentsResponseObject, error) {
	p := request.Params
	at, err := page(p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	states, err := known[apigen.AssignmentState, service.AssignmentState]("/state", p.State)
	if err != nil {
		return nil, err
	}
	list, err := h.service.Assignments(service.AssignmentQuery{
		Page: at, Group: value(p.Group), TargetInstanceID: value(p.TargetInstanceID), State: states,
	})
	if err != nil {
		return nil, err
	}
	return apigen.ListAssignments200JSONResponse{Items: each(list.Items, assignment), NextCursor: textOrNull(list.NextCursor), Total: list.Total}, nil
}

// GetAssignment implements apigen.StrictServerInterface.
func (h *handlers) GetAssignment(_ context.Context, request apigen.GetAssignmentRequestObject) (apigen.GetAssignmentResponseObject, error) {
	a, err := h.service.AssignmentByID(request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetAssignment200JSONResponse(assignment(a)), nil
}

// AcknowledgeAssignment implements apigen.StrictServerInterface.
func (h *handlers) AcknowledgeAssignment(ctx context.Context, request apigen.AcknowledgeAssignmentRequestObject) (apigen.AcknowledgeAssignmentResponseObject, error) {
	a, err := h.service.AcknowledgeAssignment(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.AcknowledgeAssignment200JSONResponse(assignment(a)), nil
}

func assignment(a service.Assignment) apigen.Assignment {
	out := apigen.Assignment{
		ID:               a.ID,
		Group:            a.Group,
		TargetInstanceID: a.TargetInstanceID,
		Subscriptions:    orEmpty(a.Subscriptions),
		SourceInstanceID: textOrNull(a.SourceInstanceID),
		AssignedAt:       shown(a.AssignedAt),
		Priority:         a.Priority,
		State:            apigen.AssignmentState(a.State),
		ExpiresAt:        orNull(a.ExpiresAt),
		DeliveredAt:      orNull(a.DeliveredAt),
		EndedAt:          orNull(a.EndedAt),
	}
	if a.State == service.AssignmentAcknowledged {
		out.AcknowledgedAt = out.EndedAt
	}
	return out
}
