package api

import (
	"context"
	"time"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// defaultDrain is how long a drain takes when the notification does not say.
const defaultDrain = 30 * time.Second

// PostShutdown implements apigen.StrictServerInterface.
func (h *handlers) PostShutdown(ctx context.Context, request apigen.PostShutdownRequestObject) (apigen.PostShutdownResponseObject, error) {
	n, err := shutdownMessage(request.Body)
	if err != nil {
		return nil, err
	}
	reply, err := h.service.Shutdown(ctx, n)
	if err != nil {
		return nil, err
	}
	out := apigen.PostShutdown202JSONResponse{
		Notification: notification(&reply.Notification),
		Status:       apigen.PeerStatus(reply.Status),
		Outcome:      apigen.ShutdownReplyOutcome(reply.Outcome),
	}
	if reply.Status == coordination.StatusDraining || reply.Status == coordination.StatusTerminated {
		out.TimeRemainingSeconds = seconds(&reply.TimeRemaining)
	}
	return out, nil
}

func shutdownMessage(b *apigen.ShutdownRequest) (coordination.Shutdown, error) {
	var wrong wrongFields
	n := coordination.Shutdown{
		Group:                wrong.group(b.Group),
		InstanceID:           b.InstanceID,
		Intent:               coordination.Intent(b.Intent),
		InitiatedAt:          wrong.time("/initiated_at", b.InitiatedAt),
		ExpectedCompletionAt: wrong.time("/expected_completion_at", b.ExpectedCompletionAt),
		Subscriptions:        value(b.Subscriptions),
		HasSubscriptions:     b.Subscriptions != nil,
		InFlightCount:        value(b.InFlightCount),
		Metadata:             value(b.Metadata),
		Incarnation:          value(b.Incarnation),
	}
	switch {
	case b.DrainTimeoutSeconds != nil:
		n.DrainTimeout, n.HasDrainTimeout = duration(*b.DrainTimeoutSeconds), true
	case b.ExpectedCompletionAt == nil:
		n.DrainTimeout, n.HasDrainTimeout = defaultDrain, true
	}
	return n, wrong.err()
}

func notification(n *service.ShutdownView) apigen.ShutdownNotification {
	return apigen.ShutdownNotification{
		Group:                n.Group,
		InstanceID:           n.InstanceID,
		Intent:               apigen.Intent(n.Intent),
		InitiatedAt:          shown(n.InitiatedAt),
		ExpectedCompletionAt: shown(n.ExpectedCompletionAt),
		Deadline:             shown(n.Deadline),
		ReceivedAt:           shown(n.ReceivedAt),
		Subscriptions:        orEmpty(n.Subscriptions),
		InFlightCount:        n.InFlightCount,
		Metadata:             object(n.Metadata),
		Incarnation:          textOrNull(n.Incarnation),
	}
}
