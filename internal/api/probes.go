package api

import (
	"context"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
)

// GetLivez implements apigen.StrictServerInterface.
func (h *handlers) GetLivez(context.Context, apigen.GetLivezRequestObject) (apigen.GetLivezResponseObject, error) {
	return apigen.GetLivez200JSONResponse{Status: apigen.Ok}, nil
}

// GetHealthz implements apigen.StrictServerInterface.
func (h *handlers) GetHealthz(context.Context, apigen.GetHealthzRequestObject) (apigen.GetHealthzResponseObject, error) {
	return apigen.GetHealthz200JSONResponse{Status: apigen.Ok}, nil
}

// GetReadyz implements apigen.StrictServerInterface. A part that is away does not make the replica unready: it
// answers what it can, and the reasons say what it cannot.
func (h *handlers) GetReadyz(_ context.Context, request apigen.GetReadyzRequestObject) (apigen.GetReadyzResponseObject, error) {
	ready, reasons := h.opts.Ready()
	out := apigen.Readiness{Ready: ready, Reasons: append([]string{}, reasons...)}
	parts := h.service.Health()
	for _, p := range parts {
		if !p.Ready {
			out.Reasons = append(out.Reasons, p.Name+": "+p.Reason)
		}
	}
	if v := request.Params.Verbose; v != nil && *v != "false" && *v != "0" {
		shownParts := each(parts, part)
		out.Parts = &shownParts
	}
	if !ready {
		return apigen.GetReadyz503JSONResponse{Body: out, Headers: apigen.GetReadyz503ResponseHeaders{RetryAfter: new(1)}}, nil
	}
	return apigen.GetReadyz200JSONResponse(out), nil
}
