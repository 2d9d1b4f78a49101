package api

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
)

// routes is what the router calls: the strict server, but for the operations below, which need the request itself.
type routes struct {
	apigen.ServerInterface
	api *API
}

// PostHeartbeat is reached when the path is spelled with escapes; serve takes all others itself.
func (r *routes) PostHeartbeat(c echo.Context) error {
	return r.api.heartbeat(c.Response(), c.Request())
}

// PostHeartbeatBatch implements apigen.ServerInterface.
func (r *routes) PostHeartbeatBatch(c echo.Context) error {
	return r.api.heartbeatBatch(c.Response(), c.Request())
}

// ListEvents implements apigen.ServerInterface.
func (r *routes) ListEvents(c echo.Context, params apigen.ListEventsParams) error {
	return r.api.events(c.Response(), c.Request(), params)
}

// GetMetrics implements apigen.ServerInterface.
func (r *routes) GetMetrics(c echo.Context) error {
	if r.api.opts.Metrics == nil {
		return echo.ErrNotFound
	}
	r.api.opts.Metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}

// GetOpenAPI implements apigen.ServerInterface.
func (r *routes) GetOpenAPI(c echo.Context) error {
	return c.Blob(200, "application/yaml", r.api.spec)
}

// GetDocs implements apigen.ServerInterface.
func (r *routes) GetDocs(c echo.Context) error {
	return c.Blob(200, "text/html; charset=utf-8", r.api.docs)
}

// GetDocsStyle implements apigen.ServerInterface.
func (r *routes) GetDocsStyle(c echo.Context) error {
	return c.Blob(200, "text/css; charset=utf-8", docsStyle())
}

// handlers implements the strict server's interface, one file a resource.
type handlers struct {
	bypassed
	*API
}

// bypassed are the operations that routes answers itself. It stays nil: naming them here makes the compiler see that
// handlers has all others.
type bypassed interface {
	PostHeartbeat(ctx context.Context, request apigen.PostHeartbeatRequestObject) (apigen.PostHeartbeatResponseObject, error)
	PostHeartbeatBatch(ctx context.Context, request apigen.PostHeartbeatBatchRequestObject) (apigen.PostHeartbeatBatchResponseObject, error)
	ListEvents(ctx context.Context, request apigen.ListEventsRequestObject) (apigen.ListEventsResponseObject, error)
	GetMetrics(ctx context.Context, request apigen.GetMetricsRequestObject) (apigen.GetMetricsResponseObject, error)
	GetOpenAPI(ctx context.Context, request apigen.GetOpenAPIRequestObject) (apigen.GetOpenAPIResponseObject, error)
	GetDocs(ctx context.Context, request apigen.GetDocsRequestObject) (apigen.GetDocsResponseObject, error)
	GetDocsStyle(ctx context.Context, request apigen.GetDocsStyleRequestObject) (apigen.GetDocsStyleResponseObject, error)
}
