package api

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

func TestEverySentinelHasItsKindOfProblem(t *testing.T) {
	t.Parallel()
	mapped := map[string]bool{}
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := s.X.(*ast.Ident); ok {
				mapped[pkg.Name+"."+s.Sel.Name] = true
			}
		}
		return true
	})
	sentinels := append(sentinelsOf(t, "coordination"), sentinelsOf(t, "service")...)
	assert.Greater(t, len(sentinels), 15)
	for _, name := range sentinels {
		assert.True(t, mapped[name], "%s is not in the table of errors.go", name)
	}
}

// sentinelsOf lists a package's exported error variables.
func sentinelsOf(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob("../" + pkg + "/*.go")
	require.NoError(t, err)
	var names []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			vars, ok := decl.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Err") {
					names = append(names, pkg+"."+v.Names[0].Name)
				}
			}
		}
	}
	return names
}

func TestAnIDInAPathIsUnescapedExactlyOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	ids := []string{
		"a/b", "/", "a b", "a+b", "a,b", "a;b", "a:b", "a?b", "a#b", "a&b=c", "%", "%41", "%2F", "%252F", "%2", "a%20b",
		"..", ".", "../x", "ümläut", "名前", "💥", `"quoted"`, "<b>", "'", "\\", "*", "shutdown", ":instance_id",
	}
	for _, id := range ids {
		h.want(200, "POST", "/v1/heartbeats", map[string]any{"instance_id": id, "group": "odd/ids"})
	}
	for _, id := range ids {
		path := "/v1/peers/" + url.PathEscape(id) + "?group=" + url.QueryEscape("odd/ids")
		if id == "." || id == ".." {
			path = strings.ReplaceAll(path, ".", "%2E")
		}
		var p apigen.Peer
		h.want(200, "GET", path, nil).decode(t, &p)
		assert.Equal(t, id, p.InstanceID)
	}
	var view map[string][]string
	h.want(200, "GET", "/v1/orphaned-subscriptions?group=odd%2Fids", nil).decode(t, &view)
	for _, id := range ids {
		path := "/v1/peers/" + strings.ReplaceAll(url.PathEscape(id), ".", "%2E") + "?group=odd%2Fids"
		assert.Equal(t, "not-draining", slug(h.want(409, "DELETE", strings.Replace(path, "?", "/shutdown?", 1), nil).problem(t)), id)
		h.want(204, "DELETE", path, nil)
	}
}

func TestListsArePagedWithoutLossWhileRecordsComeAndGo(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		h.want(200, "POST", "/v1/heartbeats", map[string]any{"instance_id": id})
	}
	var seen []string
	for cursor := ""; ; {
		var list apigen.PeerList
		h.want(200, "GET", "/v1/peers?limit=2&cursor="+cursor, nil).decode(t, &list)
		for _, p := range list.Items {
			seen = append(seen, p.InstanceID)
		}
		if list.NextCursor == nil {
			break
		}
		cursor = *list.NextCursor
		if len(seen) == 2 {
			h.want(204, "DELETE", "/v1/peers/b", nil)
			h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"aa"}`)
			h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"cc"}`)
		}
	}
	assert.Equal(t, []string{"a", "b", "c", "cc", "d", "e", "f", "g"}, seen)
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	h := start(t)
	tests := map[string]struct {
		method, path string
		status       int
		allow        string
	}{
		"an unknown path":              {"GET", "/v1/nothing", 404, ""},
		"the root, without a web part": {"GET", "/", 404, ""},
		"below a known path":           {"GET", "/v1/leader/x", 404, ""},
		"an escaped slash in a route":  {"GET", "/v1%2Fpeers", 404, ""},
		"an unknown method":            {"PUT", "/v1/peers", 405, "OPTIONS, GET, HEAD"},
		"a method nobody knows":        {"BREW", "/v1/heartbeats", 405, "OPTIONS, POST"},
		"reading what is written":      {"GET", "/v1/heartbeats", 405, "OPTIONS, POST"},
		"writing what is read":         {"POST", "/v1/summary", 405, "OPTIONS, GET, HEAD"},
		"options":                      {"OPTIONS", "/v1/peers", 204, "OPTIONS, GET"},
		"head":                         {"HEAD", "/v1/peers", 200, ""},
		"head of what cannot be read":  {"HEAD", "/v1/heartbeats", 405, "OPTIONS, POST"},
		"head of nothing":              {"HEAD", "/v1/nothing", 404, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := h.want(tt.status, tt.method, tt.path, nil)
			if tt.allow != "" {
				assert.Equal(t, tt.allow, r.header.Get("Allow"))
			}
			if tt.method == "HEAD" {
				assert.Empty(t, r.body)
			}
		})
	}
	r := h.want(200, "HEAD", "/v1/events", nil, "Accept", "text/event-stream")
	assert.Equal(t, "application/json", r.header.Get("Content-Type"))
	h.want(404, "GET", "/v1/peers/", nil)
}

func TestCrossSiteWritesAreRefused(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{api: func(o *Options) { o.TrustedOrigins = []string{"https://ops.example"} }})
	for _, path := range []string{"/v1/heartbeats", "/v1/heartbeats/batch", "/v1/leader/handoff", "/v1/claims"} {
		for name, header := range map[string][]string{
			"sec-fetch-site":    {"Sec-Fetch-Site", "cross-site"},
			"same site":         {"Sec-Fetch-Site", "same-site"},
			"origin":            {"Origin", "https://evil.example"},
			"origin of no site": {"Origin", "null"},
		} {
			assert.Equal(t, "cross-site", slug(h.want(403, "POST", path, "{}", header...).problem(t)), "%s %s", path, name)
		}
	}
	h.want(200, "GET", "/v1/peers", nil, "Sec-Fetch-Site", "cross-site")
	const body = `{"instance_id":"a"}`
	h.want(200, "POST", "/v1/heartbeats", body, "Sec-Fetch-Site", "same-origin")
	h.want(200, "POST", "/v1/heartbeats", body, "Origin", h.url)
	h.want(200, "POST", "/v1/heartbeats", body, "Sec-Fetch-Site", "cross-site", "Origin", "https://ops.example")
}

func TestAnswersTellABrowserToDoNothingWithThem(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, path := range []string{"/v1/peers", "/docs", "/v1/nothing", "/livez"} {
		header := h.do("GET", path, nil).header
		assert.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
		assert.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'", path)
		assert.NotContains(t, header.Get("Content-Security-Policy"), "unsafe", path)
		assert.Equal(t, "DENY", header.Get("X-Frame-Options"), path)
		assert.Equal(t, "no-store", header.Get("Cache-Control"), path)
		assert.Empty(t, header.Get("Server"), path)
	}
}

func TestAPanicIsALogged500(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	h := startWith(t, setup{api: func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
	}})
	assert.Equal(t, "internal", slug(h.want(500, "GET", "/metrics", nil).problem(t)))
	assert.Contains(t, log.String(), "boom")
	assert.Contains(t, log.String(), "stack=")
	h.want(200, "GET", "/livez", nil)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestBehindABasePath(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{api: func(o *Options) {
		o.BasePath = "/coord"
		o.Web = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(`{"type":"page","title":"` + r.URL.Path + `","status":418}`))
		})
	}})
	h.want(200, "POST", "/coord/v1/heartbeats", `{"instance_id":"a/b"}`)
	h.want(200, "GET", "/coord/v1/peers/a%2Fb", nil)
	r := h.want(201, "POST", "/coord/v1/claims", `{"instance_id":"a/b","subscription":"s"}`)
	location := r.header.Get("Location")
	assert.True(t, strings.HasPrefix(location, "/coord/v1/claims/"), location)
	h.want(200, "GET", location, nil)
	assert.Contains(t, string(h.want(200, "GET", "/coord/openapi.yaml", nil).body), "\n  - url: /coord\n")
	assert.Equal(t, "/peers/x", h.want(418, "GET", "/coord/peers/x", nil).problem(t).Title)
	assert.Equal(t, "/", h.want(418, "GET", "/coord", nil).problem(t).Title)
	h.want(404, "GET", "/v1/peers", nil)
	h.want(404, "POST", "/v1/heartbeats", `{"instance_id":"a"}`)
	h.want(404, "GET", "/coordinates", nil)
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	var ready bool
	h := startWith(t, setup{api: func(o *Options) { o.Ready = func() (bool, []string) { return ready, []string{"starting"} } }})
	r := h.want(503, "GET", "/readyz", nil)
	assert.JSONEq(t, `{"ready":false,"reasons":["starting"]}`, string(r.body))
	assert.Equal(t, "1", r.header.Get("Retry-After"))
	h.want(503, "GET", "/readyz?verbose", nil)
	h.want(200, "GET", "/livez", nil)
	ready = true
	h.want(200, "GET", "/readyz", nil)
}

func TestRequestsAreObservedByTheirRoute(t *testing.T) {
	t.Parallel()
	type seen struct {
		method, route string
		status        int
	}
	var mu sync.Mutex
	var all []seen
	h := startWith(t, setup{api: func(o *Options) {
		o.Observe = func(method, route string, status int, elapsed time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			assert.GreaterOrEqual(t, elapsed, time.Duration(0))
			all = append(all, seen{method, route, status})
		}
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
	}})
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"a"}`)
	h.want(422, "POST", "/v1/heartbeats", `{}`)
	h.want(404, "GET", "/v1/peers/nobody", nil)
	h.want(404, "GET", "/v1/nothing", nil)
	h.want(500, "GET", "/metrics", nil)
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []seen{
		{"POST", "/v1/heartbeats", 200},
		{"POST", "/v1/heartbeats", 422},
		{"GET", "/v1/peers/:instance_id", 404},
		{"GET", "", 404},
		{"GET", "/metrics", 500},
	}, all)
}

func TestHeartbeatReplyIsEncodedAsTheContractsType(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 27, 14, 0, 0, 123456789, time.FixedZone("", 7200))
	base := service.HeartbeatReply{
		Status: coordination.StatusHealthy, Outcome: coordination.OutcomeAccepted, ReceivedAt: at,
		HeartbeatTimeout: 15 * time.Second, NextHeartbeat: 4833333333 * time.Nanosecond, Leader: "node-a",
	}
	tests := map[string]func(*service.HeartbeatReply){
		"usual":           func(*service.HeartbeatReply) {},
		"no leader":       func(r *service.HeartbeatReply) { r.Leader = "" },
		"an odd leader":   func(r *service.HeartbeatReply) { r.Leader = "nöde \"<a>\" & \u2028" },
		"a whole second":  func(r *service.HeartbeatReply) { r.ReceivedAt = at.Truncate(time.Second) },
		"a tiny timeout":  func(r *service.HeartbeatReply) { r.HeartbeatTimeout = 50 * time.Millisecond },
		"a large timeout": func(r *service.HeartbeatReply) { r.HeartbeatTimeout = 1000 * time.Hour },
		"with a claim":    func(r *service.HeartbeatReply) { r.Claims = []service.Claim{{ID: "c", FencingToken: 1, ClaimedAt: at}} },
		"an assignment":   func(r *service.HeartbeatReply) { r.Assignments = []service.Assignment{{ID: "a", AssignedAt: at}} },
		"with a directive": func(r *service.HeartbeatReply) {
			r.Directives = []service.Directive{{Type: "drain", RequestedAt: at, Reason: "x"}}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := base
			change(&reply)
			want, err := json.Marshal(heartbeatReply(&reply))
			require.NoError(t, err)
			got, err := appendHeartbeatReply(nil, &reply)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
		})
	}
}

func TestOptionsThatCannotWorkAreNamed(t *testing.T) {
	t.Parallel()
	h := start(t)
	for want, change := range map[string]func(*Options){
		"Service":        func(o *Options) { o.Service = nil },
		"Webhooks":       func(o *Options) { o.Webhooks = nil },
		"Spec":           func(o *Options) { o.Spec = nil },
		"contract":       func(o *Options) { o.Spec = []byte("openapi: [") },
		"BasePath":       func(o *Options) { o.BasePath = "coord/" },
		"limits":         func(o *Options) { o.MaxBody = -1 },
		"stream times":   func(o *Options) { o.StreamKeepAlive = -1 },
		"trusted origin": func(o *Options) { o.TrustedOrigins = []string{"ops.example"} },
	} {
		o := h.api.opts
		change(&o)
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
}

func TestTheReferencePageNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.want(200, "GET", "/docs", nil)
	page := string(r.body)
	for _, item := range h.contract.doc.Paths.Map() {
		for _, op := range item.Operations() {
			assert.Contains(t, page, `id="`+op.OperationID+`"`)
			assert.Contains(t, page, `href="#`+op.OperationID+`"`)
		}
	}
	for name := range h.contract.doc.Components.Schemas {
		assert.Contains(t, page, `id="schema-`+name+`"`)
	}
	for _, unwanted := range []string{"<script", "<style", " style=", "onclick", "javascript:", "ZgotmplZ"} {
		assert.NotContains(t, page, unwanted)
	}
	for _, link := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if target, ok := strings.CutPrefix(link[1], "#"); ok {
			assert.Contains(t, page, `id="`+target+`"`, "a link to nowhere")
			continue
		}
		h.want(200, "GET", "/"+link[1], nil)
	}
	assert.NotContains(t, string(h.want(200, "GET", "/docs/style.css", nil).body), "url(")
}

func TestAHeartbeatOfAWrongTypeIsRefusedAlone(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{})
	var reply apigen.HeartbeatBatchReply
	h.want(200, "POST", "/v1/heartbeats/batch",
		`{"heartbeats":[{"instance_id":"a"},{"instance_id":3,"labels":[]},{"instance_id":"b"},"c"]}`).decode(t, &reply)
	assert.Equal(t, 2, reply.Accepted)
	require.Len(t, reply.Rejected, 2)
	assert.Equal(t, 1, reply.Rejected[0].Index)
	require.NotNil(t, reply.Rejected[0].Problem.Errors)
	assert.Equal(t, "/heartbeats/1/instance_id", (*reply.Rejected[0].Problem.Errors)[0].Pointer)
	assert.Equal(t, "/heartbeats/1/labels", (*reply.Rejected[0].Problem.Errors)[1].Pointer)
	assert.Equal(t, 3, reply.Rejected[1].Index)
	h.want(200, "GET", "/v1/peers/b", nil)
}

func TestAQueryThatCannotBeReadIsNotDropped(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{})
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"a"}`)
	h.want(400, "GET", "/v1/peers?group=%zz", nil)
	h.want(400, "DELETE", "/v1/peers/a?group=%zz", nil)
	h.want(200, "GET", "/v1/peers/a", nil)
}

func TestNoEventTypesIsNotTheDefault(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{})
	h.want(422, "POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","event_types":[]}`)
	h.want(201, "POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/"}`)
}
