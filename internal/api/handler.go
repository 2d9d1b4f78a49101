package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/service"
)

const heartbeatPath = "/v1/heartbeats"

// contentPolicy lets pages use nothing but this service's own files, and no inline script or style.
const contentPolicy = "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// API is the HTTP entrance, an http.Handler.
type API struct {
	opts     Options
	service  service.Coordinator
	webhooks service.Webhooks
	log      *slog.Logger
	kinds    []kind
	bodies   *bodies
	streams  *streams
	router   *echo.Echo
	origins  *http.CrossOriginProtection
	jsonType []string
	docs     []byte
	spec     []byte
}

// New builds the entrance. It fails when an option is wrong or the contract cannot be rendered.
func New(opts Options) (*API, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	a := &API{
		opts: opts, service: opts.Service, webhooks: opts.Webhooks,
		log:      opts.Logger.With("component", "api"),
		kinds:    kinds(),
		jsonType: []string{"application/json"},
		bodies:   newBodies(opts.MaxBody, opts.MaxBatchBody),
		streams:  newStreams(opts.MaxStreams),
		origins:  http.NewCrossOriginProtection(),
		spec:     servedSpec(opts.Spec, opts.BasePath),
	}
	for _, origin := range opts.TrustedOrigins {
		if err := a.origins.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("api: trusted origin %q: %w", origin, err)
		}
	}
	page, err := renderDocs(a.spec)
	if err != nil {
		return nil, fmt.Errorf("api: render the contract: %w", err)
	}
	a.docs = page
	a.router = a.newRouter()
	return a, nil
}

func (a *API) newRouter() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Binder = a.bodies
	e.HTTPErrorHandler = a.handleError
	apigen.RegisterHandlers(e, &routes{ServerInterface: apigen.NewStrictHandler(&handlers{API: a}, nil), api: a})
	return e
}

// Routes lists what is served, as method and echo path.
func (a *API) Routes() []*echo.Route { return a.router.Routes() }

// EndStreams ends all event streams and refuses new ones; everything else goes on.
func (a *API) EndStreams() { a.streams.end() }

// Streams says how many event streams are open, and how many were cut so far because their client did not read.
func (a *API) Streams() (open int, cut uint64) { return a.streams.counts() }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := recorder{ResponseWriter: w}
	if a.opts.Observe != nil {
		start := a.opts.Now()
		defer func() { a.opts.Observe(r.Method, rec.route, rec.status, a.opts.Now().Sub(start)) }()
	}
	defer a.recoverPanic(&rec, r)
	a.serve(&rec, r)
}

// serve answers, and leaves with w which route it was.
func (a *API) serve(w *recorder, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == heartbeatPath && a.opts.BasePath == "" {
		a.serveHeartbeat(w, r)
		return
	}
	secure(w.Header())
	path, ok := strings.CutPrefix(r.URL.Path, a.opts.BasePath)
	if !ok || path != "" && path[0] != '/' {
		a.refuse(w, r, echo.ErrNotFound)
		return
	}
	if a.opts.BasePath != "" {
		r = withoutBase(r, a.opts.BasePath)
	}
	if err := a.origins.Check(r); err != nil {
		a.refuseCrossSite(w, r, err)
		return
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		// A parameter that is dropped because it cannot be read would widen what is asked for.
		a.send(w, r, newAnswer(http.StatusBadRequest, "bad-parameter", "A parameter cannot be read", "The query is not percent-encoded as it should be."), err)
		return
	}
	if a.opts.Web != nil && !isAPI(r.URL.Path) {
		a.opts.Web.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodPost && r.URL.Path == heartbeatPath {
		a.serveHeartbeat(w, r)
		return
	}
	if r.Method == http.MethodHead {
		r = asGet(r)
	}
	a.route(w, r)
}

// route lets the router answer.
func (a *API) route(w *recorder, r *http.Request) {
	c := a.router.AcquireContext()
	defer a.router.ReleaseContext(c)
	c.Reset(r, w)
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	a.router.Router().Find(r.Method, path, c)
	w.route = c.Path()
	if err := c.Handler()(c); err != nil {
		a.handleError(err, c)
	}
}

// secure sets the headers that keep a browser from doing more with an answer than show it.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// isAPI tells the API's paths from the dashboard's.
func isAPI(path string) bool {
	if path == "/v1" || strings.HasPrefix(path, "/v1/") || path == "/docs" || strings.HasPrefix(path, "/docs/") {
		return true
	}
	switch path {
	case "/livez", "/healthz", "/readyz", "/metrics", "/openapi.yaml":
		return true
	}
	return false
}

// withoutBase cuts the base path, from the escaped path too.
func withoutBase(r *http.Request, base string) *http.Request {
	out := r.Clone(r.Context())
	out.URL.Path = orDefault(strings.TrimPrefix(r.URL.Path, base), "/")
	out.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, base)
	return out
}

// asGet answers HEAD like GET; net/http leaves the body out. A stream has no HEAD: it would never end.
func asGet(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	out.Method = http.MethodGet
	out.Header.Del("Accept")
	return out
}

// handleError is echo's error handler: what a handler returned, or that there is no such route or method.
func (a *API) handleError(err error, c echo.Context) {
	if c.Response().Committed {
		a.logFailure(c.Request(), err, c.Response().Status)
		return
	}
	out := a.answerTo(err)
	if out.problem.Status == http.StatusMethodNotAllowed {
		out.allow = allowed(c.Response().Header().Get("Allow"))
		out.problem.Detail = new(c.Request().Method + " is not among " + out.allow + ".")
	}
	a.send(c.Response(), c.Request(), out, err)
}

// allowed adds HEAD, which echo does not know of.
func allowed(methods string) string {
	if strings.Contains(methods, http.MethodGet) && !strings.Contains(methods, http.MethodHead) {
		return strings.Replace(methods, http.MethodGet, "GET, HEAD", 1)
	}
	return methods
}

func (a *API) refuseCrossSite(w http.ResponseWriter, r *http.Request, cause error) {
	const title, detail = "Cross-site requests are refused", "The request comes from another origin."
	a.send(w, r, newAnswer(http.StatusForbidden, "cross-site", title, detail), cause)
}

// refuse answers with the problem that err stands for.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	a.send(w, r, a.answerTo(err), err)
}

func (a *API) send(w http.ResponseWriter, r *http.Request, out answer, cause error) {
	a.logFailure(r, cause, out.problem.Status)
	if err := out.write(w); err != nil {
		a.log.DebugContext(r.Context(), "problem not sent", "error", err)
	}
}

// logFailure logs what the client cannot be told: why the service failed. The client's own mistakes are its own affair.
func (a *API) logFailure(r *http.Request, err error, status int) {
	level := slog.LevelDebug
	switch {
	case r.Context().Err() != nil:
	case status == http.StatusServiceUnavailable:
		level = slog.LevelWarn
	case status >= http.StatusInternalServerError:
		level = slog.LevelError
	}
	a.log.LogAttrs(r.Context(), level, "request failed", slog.String("method", r.Method),
		slog.String("path", r.URL.Path), slog.Int("status", status), slog.Any("error", err))
}

var errPanic = errors.New("panic")

func (a *API) recoverPanic(w *recorder, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler { //nolint:errorlint // net/http compares it the same way
		panic(cause)
	}
	a.log.ErrorContext(r.Context(), "request panicked", "method", r.Method, "path", r.URL.Path,
		"panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if w.status != 0 {
		// The answer has begun and cannot be taken back: cut it off, so that nobody takes it for whole.
		panic(http.ErrAbortHandler)
	}
	if err := a.answerTo(errPanic).write(w); err != nil {
		a.log.DebugContext(r.Context(), "problem not sent", "error", err)
	}
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	route  string
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, which some handlers look for.
func (w *recorder) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
