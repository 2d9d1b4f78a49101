package api

import (
	"context"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/service"
)

// ListDeliveries implements apigen.StrictServerInterface.
func (h *handlers) ListDeliveries(ctx context.Context, request apigen.ListDeliveriesRequestObject) (apigen.ListDeliveriesResponseObject, error) {
	at, err := page(request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	status, err := knownOne[apigen.DeliveryStatus, service.DeliveryStatus]("/status", request.Params.Status)
	if err != nil {
		return nil, err
	}
	list, err := h.webhooks.Deliveries(ctx, request.ID, service.DeliveriesRequest{Page: at, Status: status})
	if err != nil {
		return nil, err
	}
	return apigen.ListDeliveries200JSONResponse{Items: each(list.Items, delivery), NextCursor: textOrNull(list.NextCursor), Total: list.Total}, nil
}

// GetDelivery implements apigen.StrictServerInterface.
func (h *handlers) GetDelivery(ctx context.Context, request apigen.GetDeliveryRequestObject) (apigen.GetDeliveryResponseObject, error) {
	d, err := h.webhooks.Delivery(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetDelivery200JSONResponse(delivery(d)), nil
}

// RetryDelivery implements apigen.StrictServerInterface.
func (h *handlers) RetryDelivery(ctx context.Context, request apigen.RetryDeliveryRequestObject) (apigen.RetryDeliveryResponseObject, error) {
	d, err := h.webhooks.Retry(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.RetryDelivery202JSONResponse(delivery(d)), nil
}

func delivery(d service.Delivery) apigen.Delivery {
	out := apigen.Delivery{
		ID:            d.ID,
		WebhookID:     d.WebhookID,
		EventID:       d.EventID,
		EventType:     d.EventType,
		Status:        apigen.DeliveryStatus(d.Status),
		Cause:         textOrNull(string(d.Cause)),
		Test:          d.Test,
		CreatedAt:     shown(d.CreatedAt),
		NextAttemptAt: orNull(d.NextAttemptAt),
		FinishedAt:    orNull(d.FinishedAt),
		AttemptCount:  d.AttemptCount,
		Attempts:      each(d.Attempts, attempt),
	}
	if len(d.Event) > 0 {
		out.Event = &d.Event
	}
	return out
}

func attempt(a service.Attempt) apigen.DeliveryAttempt {
	out := apigen.DeliveryAttempt{
		At:                shown(a.At),
		DurationSeconds:   a.Duration.Seconds(),
		Error:             textOrNull(a.Error),
		Response:          textOrNull(a.Response),
		RetryAfterSeconds: secondsOrNull(a.RetryAfter),
	}
	if a.Status != 0 {
		out.Status = &a.Status
	}
	return out
}
