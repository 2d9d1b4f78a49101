package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/standalone"
	webhooks "github.com/coordsvc/coordsvc/internal/webhook"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is the real service on the embedded parts behind a real server. Every answer is held against the contract.
type harness struct {
	t        *testing.T
	api      *API
	service  *service.Service
	store    *flakyStore
	url      string
	client   *http.Client
	contract *contract
}

// flakyStore is the Store port with a switch: while it is away, commits fail as if the engine could not be asked.
type flakyStore struct {
	service.Store
	mu   sync.Mutex
	away error
}

func (s *flakyStore) goAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

func (s *flakyStore) Commit(ctx context.Context, txn service.Txn) (uint64, error) {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away != nil {
		return 0, away
	}
	return s.Store.Commit(ctx, txn)
}

type setup struct {
	api     func(*Options)
	service func(*service.Options)
	server  func(*httptest.Server)
}

func start(t *testing.T) *harness {
	t.Helper()
	return startWith(t, setup{})
}

func startWith(t *testing.T, with setup) *harness {
	t.Helper()
	h := &harness{t: t, contract: readContract(t)}
	elector, store := openEngines(t)
	h.store = &flakyStore{Store: store}
	bus, err := standalone.NewBus(standalone.BusOptions{})
	require.NoError(t, err)
	options := service.Options{
		Store: h.store, Elector: elector, Bus: bus, Core: coordination.DefaultConfig(), Limits: coordination.DefaultLimits(),
	}
	if with.service != nil {
		with.service(&options)
	}
	h.service, err = service.New(options)
	require.NoError(t, err)
	hooks, err := webhooks.New(webhooks.Options{Store: h.store, Journal: h.service, Elector: elector, Events: h.service})
	require.NoError(t, err)
	require.NoError(t, h.service.Load(t.Context()))
	run(t, elector.Run, h.service.Run, hooks.Run, func(ctx context.Context) error { return bus.Run(ctx, h.service) })

	apiOptions := Options{Service: h.service, Webhooks: hooks, Spec: h.contract.raw}
	if with.api != nil {
		with.api(&apiOptions)
	}
	h.api, err = New(apiOptions)
	require.NoError(t, err)
	h.serve(with.server)
	h.awaitEvent(coordination.EventLeaderChanged)
	return h
}

func openEngines(t *testing.T) (*standalone.Elector, *standalone.Store) {
	t.Helper()
	var store *standalone.Store
	elector, err := standalone.NewElector(standalone.ElectorOptions{
		Identity: "node-a",
		Epoch: func(ctx context.Context, identity string, fence service.Fence) (uint64, error) {
			return service.TakeEpoch(store, time.Now)(ctx, identity, fence)
		},
	})
	require.NoError(t, err)
	store, err = standalone.OpenStore(t.Context(), standalone.StoreOptions{Dir: t.TempDir(), Holds: elector.Holds})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return elector, store
}

// run runs parts until the test ends.
func run(t *testing.T, parts ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	for _, part := range parts {
		done.Go(func() {
			if err := part(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("a part failed: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

func (h *harness) serve(adjust func(*httptest.Server)) {
	server := httptest.NewUnstartedServer(h.api)
	if adjust != nil {
		adjust(server)
	}
	server.Start()
	transport := &http.Transport{}
	h.url = server.URL
	h.client = &http.Client{Transport: &checkedTransport{h: h, next: transport}}
	h.t.Cleanup(func() {
		h.api.EndStreams()
		transport.CloseIdleConnections()
		server.Close()
	})
}

// awaitEvent waits until the journal holds an event of the type and returns the first.
func (h *harness) awaitEvent(want coordination.EventType) coordination.Event {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	var pos service.Position
	for {
		entries, err := h.service.After(ctx, pos, 100)
		require.NoError(h.t, err, "waiting for %s", want)
		for _, e := range entries {
			if pos = e.Position; e.Event.Type == want {
				return e.Event
			}
		}
	}
}

// reply is an answer that has been read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) decode(t *testing.T, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(r.body, into), "%s", r.body)
}

// problem is the answer as a problem.
type problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Holder string  `json:"holder"`
	Errors []fault `json:"errors"`
}

type fault struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

func (r reply) problem(t *testing.T) problem {
	t.Helper()
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), "%s", r.body)
	var p problem
	r.decode(t, &p)
	require.Equal(t, r.status, p.Status)
	return p
}

func (h *harness) do(method, path string, body any, header ...string) reply {
	h.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		require.NoError(h.t, err)
		reader = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, reader)
	require.NoError(h.t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := h.client.Do(r)
	require.NoError(h.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(h.t, err)
	return reply{status: response.StatusCode, header: response.Header, body: raw}
}

// want is do with the status expected.
func (h *harness) want(status int, method, path string, body any, header ...string) reply {
	h.t.Helper()
	r := h.do(method, path, body, header...)
	require.Equal(h.t, status, r.status, "%s %s: %s", method, path, r.body)
	return r
}

// contract is openapi.yaml and what of it has been seen to work.
type contract struct {
	raw []byte
	doc *openapi3.T

	mu sync.Mutex
	// answered are the operations that answered 2xx.
	answered map[string]bool
}

func readContract(t *testing.T) *contract {
	t.Helper()
	raw, err := os.ReadFile("../../openapi.yaml")
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	return &contract{raw: raw, doc: doc, answered: map[string]bool{}}
}

// find is the operation behind a request, nil when there is none.
func (c *contract) find(method string, u *url.URL) (path string, item *openapi3.PathItem, op *openapi3.Operation) {
	have := strings.Split(u.EscapedPath(), "/")
	best := -1
	for template, candidate := range c.doc.Paths.Map() {
		fixed, ok := matches(strings.Split(template, "/"), have)
		if ok && fixed > best {
			best, path, item = fixed, template, candidate
		}
	}
	if item == nil {
		return "", nil, nil
	}
	return path, item, item.GetOperation(method)
}

// matches tells whether a path fits a template, and by how many fixed segments.
func matches(template, have []string) (fixed int, ok bool) {
	if len(template) != len(have) {
		return 0, false
	}
	for i, segment := range template {
		switch {
		case strings.HasPrefix(segment, "{") && have[i] != "":
		case segment == have[i]:
			fixed++
		default:
			return 0, false
		}
	}
	return fixed, true
}

// check holds an answer against the contract.
func (c *contract) check(r *http.Request, response *http.Response, body []byte) error {
	path, item, op := c.find(r.Method, r.URL)
	if op == nil || response.StatusCode == http.StatusMethodNotAllowed {
		return c.checkRefusal(r, response, body)
	}
	options := &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true}
	if kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";"); !strings.HasSuffix(kind, "json") {
		// Text has no schema worth checking, and HEAD no body; its kind is still held against the contract.
		options.ExcludeResponseBody = true
		documented := op.Responses.Status(response.StatusCode)
		if response.StatusCode != http.StatusNoContent && (documented == nil || documented.Value.Content.Get(kind) == nil) {
			return errors.New("content type " + kind + " is not in the contract")
		}
	}
	err := openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: r, Route: &routers.Route{Spec: c.doc, Path: path, PathItem: item, Method: r.Method, Operation: op},
		},
		Status: response.StatusCode, Header: response.Header, Body: io.NopCloser(bytes.NewReader(body)), Options: options,
	})
	if err == nil && response.StatusCode < 300 {
		c.mu.Lock()
		c.answered[op.OperationID] = true
		c.mu.Unlock()
	}
	return err
}

// checkRefusal holds what any path may answer against the schema of problems.
func (c *contract) checkRefusal(r *http.Request, response *http.Response, body []byte) error {
	if r.Method == http.MethodOptions || r.Method == http.MethodHead {
		return nil
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	if response.StatusCode < 400 || response.Header.Get("Content-Type") != "application/problem+json" {
		return errors.New("not a problem")
	}
	return c.doc.Components.Schemas["Problem"].Value.VisitJSON(value)
}

// checkedTransport fails the test when an answer is not as the contract says.
type checkedTransport struct {
	h    *harness
	next http.RoundTripper
}

func (c *checkedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return response, nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	checked := r.Clone(r.Context())
	path, inside := strings.CutPrefix(r.URL.Path, c.h.api.opts.BasePath)
	if !inside {
		path = "/outside"
	}
	checked.URL.Path = path
	checked.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, c.h.api.opts.BasePath)
	if err := c.h.contract.check(checked, response, body); err != nil {
		c.h.t.Errorf("%s %s answered %d against the contract: %v\n%s", r.Method, r.URL, response.StatusCode, err, body)
	}
	return response, nil
}
