package api

import (
	"context"
	"strings"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// ListPeers implements apigen.StrictServerInterface.
func (h *handlers) ListPeers(_ context.Context, request apigen.ListPeersRequestObject) (apigen.ListPeersResponseObject, error) {
	p := request.Params
	at, err := page(p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	statuses, err := known[apigen.PeerStatus, coordination.Status]("/status", p.Status)
	if err != nil {
		return nil, err
	}
	labels, err := labelFilter(value(p.Label))
	if err != nil {
		return nil, err
	}
	list, err := h.service.Peers(service.PeerQuery{
		Page: at, Group: value(p.Group), Status: statuses, Subscription: value(p.Subscription), Q: value(p.Q), Labels: labels,
	})
	if err != nil {
		return nil, err
	}
	return apigen.ListPeers200JSONResponse{Items: each(list.Items, peer), NextCursor: textOrNull(list.NextCursor), Total: list.Total}, nil
}

// labelFilter reads key=value pairs.
func labelFilter(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, val, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, invalid("/label", "must be key=value")
		}
		if before, twice := labels[key]; twice && before != val {
			return nil, invalid("/label", "asks for two values of one key, which no peer has")
		}
		labels[key] = val
	}
	return labels, nil
}

// GetPeer implements apigen.StrictServerInterface.
func (h *handlers) GetPeer(_ context.Context, request apigen.GetPeerRequestObject) (apigen.GetPeerResponseObject, error) {
	key, err := peerKey(request.InstanceID, request.Params.Group)
	if err != nil {
		return nil, err
	}
	p, err := h.service.Peer(key)
	if err != nil {
		return nil, err
	}
	return apigen.GetPeer200JSONResponse(peer(p)), nil
}

// DeletePeer implements apigen.StrictServerInterface.
func (h *handlers) DeletePeer(ctx context.Context, request apigen.DeletePeerRequestObject) (apigen.DeletePeerResponseObject, error) {
	key, err := peerKey(request.InstanceID, request.Params.Group)
	if err != nil {
		return nil, err
	}
	if err := h.service.RemovePeer(ctx, key); err != nil {
		return nil, err
	}
	return apigen.DeletePeer204Response{}, nil
}

// CancelShutdown implements apigen.StrictServerInterface.
func (h *handlers) CancelShutdown(ctx context.Context, request apigen.CancelShutdownRequestObject) (apigen.CancelShutdownResponseObject, error) {
	key, err := peerKey(request.InstanceID, request.Params.Group)
	if err != nil {
		return nil, err
	}
	p, err := h.service.CancelDrain(ctx, key)
	if err != nil {
		return nil, err
	}
	return apigen.CancelShutdown200JSONResponse(peer(p)), nil
}

func peer(p service.Peer) apigen.Peer {
	out := apigen.Peer{
		Group:                p.Group,
		InstanceID:           p.InstanceID,
		Status:               apigen.PeerStatus(p.Status),
		Overdue:              p.Overdue,
		Incarnation:          textOrNull(p.Incarnation),
		FirstSeen:            orNull(p.FirstSeen),
		LastSeen:             orNull(p.LastSeen),
		TimeRemainingSeconds: seconds(p.TimeRemaining),
		Subscriptions:        orEmpty(p.Subscriptions),
		ClockSkewSeconds:     seconds(p.ClockSkew),
		Labels:               orEmptyMap(p.Labels),
	}
	if hb := p.LastHeartbeat; hb != nil {
		out.LastHeartbeat = &apigen.HeartbeatMessage{
			Group:         p.Group,
			InstanceID:    p.InstanceID,
			Timestamp:     shown(hb.Timestamp),
			ReceivedAt:    shown(hb.ReceivedAt),
			Subscriptions: orEmpty(hb.Subscriptions),
			InFlightCount: hb.InFlightCount,
			IsLeader:      hb.IsLeader,
			LoadFactor:    hb.LoadFactor,
		}
	}
	if p.Shutdown != nil {
		n := notification(p.Shutdown)
		out.Shutdown = &n
	}
	return out
}
