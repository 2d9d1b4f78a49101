package api

import (
	"context"
	"time"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/service"
)

// CreateWebhook implements apigen.StrictServerInterface.
func (h *handlers) CreateWebhook(ctx context.Context, request apigen.CreateWebhookRequestObject) (apigen.CreateWebhookResponseObject, error) {
	b := request.Body
	made, err := h.webhooks.Create(ctx, service.WebhookCreate{
		URL:         b.URL,
		EventTypes:  value(b.EventTypes),
		Groups:      value(b.Groups),
		Headers:     value(b.Headers),
		Description: value(b.Description),
		Secret:      value(b.Secret),
		Disabled:    b.Enabled != nil && !*b.Enabled,
	})
	if err != nil {
		return nil, err
	}
	return apigen.CreateWebhook201JSONResponse{
		Body:    webhook(made),
		Headers: apigen.CreateWebhook201ResponseHeaders{Location: h.location("/v1/webhooks", made.ID)},
	}, nil
}

// ListWebhooks implements apigen.StrictServerInterface.
func (h *handlers) ListWebhooks(ctx context.Context, request apigen.ListWebhooksRequestObject) (apigen.ListWebhooksResponseObject, error) {
	at, err := page(request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := h.webhooks.List(ctx, at)
	if err != nil {
		return nil, err
	}
	return apigen.ListWebhooks200JSONResponse{Items: each(list.Items, webhook), NextCursor: textOrNull(list.NextCursor), Total: list.Total}, nil
}

// GetWebhook implements apigen.StrictServerInterface.
func (h *handlers) GetWebhook(ctx context.Context, request apigen.GetWebhookRequestObject) (apigen.GetWebhookResponseObject, error) {
	w, err := h.webhooks.Get(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetWebhook200JSONResponse(webhook(w)), nil
}

// UpdateWebhook implements apigen.StrictServerInterface.
func (h *handlers) UpdateWebhook(ctx context.Context, request apigen.UpdateWebhookRequestObject) (apigen.UpdateWebhookResponseObject, error) {
	b := request.Body
	w, err := h.webhooks.Patch(ctx, request.ID, service.WebhookPatch{
		URL: b.URL, EventTypes: b.EventTypes, Groups: b.Groups, Headers: b.Headers, Description: b.Description, Enabled: b.Enabled,
	})
	if err != nil {
		return nil, err
	}
	return apigen.UpdateWebhook200JSONResponse(webhook(w)), nil
}

// DeleteWebhook implements apigen.StrictServerInterface.
func (h *handlers) DeleteWebhook(ctx context.Context, request apigen.DeleteWebhookRequestObject) (apigen.DeleteWebhookResponseObject, error) {
	if err := h.webhooks.Delete(ctx, request.ID); err != nil {
		return nil, err
	}
	return apigen.DeleteWebhook204Response{}, nil
}

// TestWebhook implements apigen.StrictServerInterface.
func (h *handlers) TestWebhook(ctx context.Context, request apigen.TestWebhookRequestObject) (apigen.TestWebhookResponseObject, error) {
	d, err := h.webhooks.Test(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return apigen.TestWebhook202JSONResponse{
		Body:    delivery(d),
		Headers: apigen.TestWebhook202ResponseHeaders{Location: h.location("/v1/deliveries", d.ID)},
	}, nil
}

// RotateWebhookSecret implements apigen.StrictServerInterface.
func (h *handlers) RotateWebhookSecret(ctx context.Context, request apigen.RotateWebhookSecretRequestObject) (apigen.RotateWebhookSecretResponseObject, error) {
	var rotation service.RotateSecret
	if b := request.Body; b != nil {
		rotation.Secret = value(b.Secret)
		if b.OverlapSeconds != nil {
			overlap := duration(*b.OverlapSeconds)
			rotation.Overlap = &overlap
		}
	}
	w, err := h.webhooks.RotateSecret(ctx, request.ID, rotation)
	if err != nil {
		return nil, err
	}
	return apigen.RotateWebhookSecret200JSONResponse(webhook(w)), nil
}

func webhook(w service.Webhook) apigen.Webhook {
	return apigen.Webhook{
		ID:                 w.ID,
		URL:                w.URL,
		EventTypes:         orEmpty(w.EventTypes),
		Groups:             orEmpty(w.Groups),
		Headers:            orEmptyMap(w.Headers),
		Description:        w.Description,
		Enabled:            w.Enabled,
		DisabledReason:     textOrNull(w.DisabledReason),
		DisabledAt:         orNull(w.DisabledAt),
		CreatedAt:          shown(w.CreatedAt),
		UpdatedAt:          shown(w.UpdatedAt),
		OldSecretExpiresAt: orNull(w.OldSecretExpiresAt),
		Secret:             textOrNull(w.Secret),
		Counts: apigen.WebhookCounts{
			Pending:       w.Counts.Pending,
			Delivered:     w.Counts.Delivered,
			Dead:          w.Counts.Dead,
			FailingSince:  orNull(w.Counts.FailingSince),
			NextAttemptAt: orNull(w.Counts.NextAttemptAt),
		},
	}
}

// secondsOrNull is null for no time at all.
func secondsOrNull(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return seconds(&d)
}
