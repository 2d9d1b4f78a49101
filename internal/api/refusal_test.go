package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/service"
)

// badInput is a request that must be refused, and the field that the answer must name.
type badInput struct {
	path    string
	body    string
	status  int
	pointer string
}

func badInputs() map[string]badInput {
	const (
		heartbeats = "/v1/heartbeats"
		shutdowns  = "/v1/shutdowns"
		claims     = "/v1/claims"
		assigns    = "/v1/assignments"
		hooks      = "/v1/webhooks"
	)
	long := strings.Repeat("x", 256)
	tests := map[string]badInput{
		"heartbeat: wrong type of an id":       {heartbeats, `{"instance_id":7}`, 400, "/instance_id"},
		"heartbeat: missing id":                {heartbeats, `{}`, 422, "/instance_id"},
		"heartbeat: null id":                   {heartbeats, `{"instance_id":null}`, 422, "/instance_id"},
		"heartbeat: empty id":                  {heartbeats, `{"instance_id":""}`, 422, "/instance_id"},
		"heartbeat: id too long":               {heartbeats, `{"instance_id":"` + long + `"}`, 422, "/instance_id"},
		"heartbeat: empty group":               {heartbeats, `{"instance_id":"a","group":""}`, 422, "/group"},
		"heartbeat: group too long":            {heartbeats, `{"instance_id":"a","group":"` + long + `"}`, 422, "/group"},
		"heartbeat: time without a zone":       {heartbeats, `{"instance_id":"a","timestamp":"2026-07-27T12:00:00"}`, 422, "/timestamp"},
		"heartbeat: impossible time":           {heartbeats, `{"instance_id":"a","timestamp":"2026-02-30T12:00:00Z"}`, 422, "/timestamp"},
		"heartbeat: no time at all":            {heartbeats, `{"instance_id":"a","timestamp":""}`, 422, "/timestamp"},
		"heartbeat: time as a number":          {heartbeats, `{"instance_id":"a","timestamp":1785153600}`, 400, "/timestamp"},
		"heartbeat: negative count":            {heartbeats, `{"instance_id":"a","in_flight_count":-1}`, 422, "/in_flight_count"},
		"heartbeat: fractional count":          {heartbeats, `{"instance_id":"a","in_flight_count":1.5}`, 400, "/in_flight_count"},
		"heartbeat: count as a string":         {heartbeats, `{"instance_id":"a","in_flight_count":"1"}`, 400, "/in_flight_count"},
		"heartbeat: NaN":                       {heartbeats, `{"instance_id":"a","load_factor":NaN}`, 400, "/load_factor"},
		"heartbeat: infinity":                  {heartbeats, `{"instance_id":"a","load_factor":1e999}`, 400, "/load_factor"},
		"heartbeat: negative load":             {heartbeats, `{"instance_id":"a","load_factor":-0.1}`, 422, "/load_factor"},
		"heartbeat: boolean as a string":       {heartbeats, `{"instance_id":"a","is_leader":"yes"}`, 400, "/is_leader"},
		"heartbeat: subscriptions as a string": {heartbeats, `{"instance_id":"a","subscriptions":"s"}`, 400, "/subscriptions"},
		"heartbeat: empty subscription":        {heartbeats, `{"instance_id":"a","subscriptions":["s",""]}`, 422, "/subscriptions/1"},
		"heartbeat: subscription too long":     {heartbeats, `{"instance_id":"a","subscriptions":["` + long + `"]}`, 422, "/subscriptions/0"},
		"heartbeat: too many subscriptions":    {heartbeats, `{"instance_id":"a","subscriptions":[` + numbered(1001) + `]}`, 422, "/subscriptions"},
		"heartbeat: subscriptions over 64 KiB": {heartbeats, `{"instance_id":"a","subscriptions":[` + padded(300, 250) + `]}`, 422, "/subscriptions"},
		"heartbeat: a wrong label":             {heartbeats, `{"instance_id":"a","labels":{"zone":1}}`, 400, "/labels/zone"},
		"heartbeat: too many labels":           {heartbeats, `{"instance_id":"a","labels":{` + labels(65) + `}}`, 422, "/labels"},
		"heartbeat: incarnation too long":      {heartbeats, `{"instance_id":"a","incarnation":"` + long + `"}`, 422, "/incarnation"},
		"heartbeat: truncated":                 {heartbeats, `{"instance_id":"a","subscriptions":["s`, 400, "/subscriptions/0"},
		"heartbeat: trailing data":             {heartbeats, `{"instance_id":"a"}{"instance_id":"b"}`, 400, ""},
		"heartbeat: a field that stands twice": {heartbeats, `{"instance_id":"a","instance_id":"b"}`, 400, "/instance_id"},
		"heartbeat: no body":                   {heartbeats, ``, 400, ""},
		"heartbeat: no object":                 {heartbeats, `"a"`, 400, ""},
		"heartbeat: 100,000 brackets":          {heartbeats, `{"instance_id":"a","labels":` + strings.Repeat("[", 100_000), 400, "/labels"},
		"heartbeat: 100,000 unknown brackets":  {heartbeats, `{"instance_id":"a","x":` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000) + "}", 400, "/x"},
		"heartbeat: 11 MB":                     {heartbeats, `{"instance_id":"a","x":"` + strings.Repeat("x", 11<<20) + `"}`, 413, ""},
		"batch: 11 MB":                         {heartbeats + "/batch", `{"heartbeats":[],"x":"` + strings.Repeat("x", 11<<20) + `"}`, 413, ""},
		"batch: no heartbeats":                 {heartbeats + "/batch", `{}`, 422, "/heartbeats"},
		"batch: truncated":                     {heartbeats + "/batch", `{"heartbeats":[{"instance_id":"a"},{"instance_id":"b"`, 400, "/heartbeats/1/instance_id"},
		"batch: too many":                      {heartbeats + "/batch", `{"heartbeats":[` + strings.Repeat(`{},`, 10_000) + `{}]}`, 422, "/heartbeats"},
		"heartbeat: empty group and zone-less": {heartbeats, `{"instance_id":"a","group":"","timestamp":"2026-07-27T12:00:00"}`, 422, "/group"},
		"batch: no array":                      {heartbeats + "/batch", `{"heartbeats":7}`, 400, "/heartbeats"},
		"shutdown: empty group":                {shutdowns, `{"instance_id":"a","intent":"graceful","group":""}`, 422, "/group"},
		"claim: empty group":                   {claims, `{"instance_id":"a","subscription":"s","group":""}`, 422, "/group"},
		"assignment: empty group":              {assigns, `{"target_instance_id":"a","subscriptions":["s"],"group":""}`, 422, "/group"},
		"shutdown: missing id":                 {shutdowns, `{"intent":"graceful"}`, 422, "/instance_id"},
		"shutdown: missing intent":             {shutdowns, `{"instance_id":"a"}`, 422, "/intent"},
		"shutdown: unknown intent":             {shutdowns, `{"instance_id":"a","intent":"spot"}`, 422, "/intent"},
		"shutdown: intent as a number":         {shutdowns, `{"instance_id":"a","intent":1}`, 400, "/intent"},
		"shutdown: completion before start":    {shutdowns, `{"instance_id":"a","intent":"graceful","initiated_at":"2026-07-27T12:00:00Z","expected_completion_at":"2026-07-27T11:59:59Z"}`, 422, "/expected_completion_at"},
		"shutdown: both ends":                  {shutdowns, `{"instance_id":"a","intent":"graceful","drain_timeout_seconds":1,"expected_completion_at":"2026-07-27T11:59:59Z"}`, 422, "/drain_timeout_seconds"},
		"shutdown: negative drain":             {shutdowns, `{"instance_id":"a","intent":"graceful","drain_timeout_seconds":-1}`, 422, "/drain_timeout_seconds"},
		"shutdown: endless drain":              {shutdowns, `{"instance_id":"a","intent":"graceful","drain_timeout_seconds":1e300}`, 422, "/drain_timeout_seconds"},
		"shutdown: a drain of NaN":             {shutdowns, `{"instance_id":"a","intent":"graceful","drain_timeout_seconds":NaN}`, 400, "/drain_timeout_seconds"},
		"shutdown: zone-less start":            {shutdowns, `{"instance_id":"a","intent":"graceful","initiated_at":"2026-07-27 12:00:00"}`, 422, "/initiated_at"},
		"shutdown: impossible completion":      {shutdowns, `{"instance_id":"a","intent":"graceful","expected_completion_at":"2026-13-01T00:00:00Z"}`, 422, "/expected_completion_at"},
		"shutdown: metadata as an array":       {shutdowns, `{"instance_id":"a","intent":"graceful","metadata":[1]}`, 400, "/metadata"},
		"shutdown: metadata over 16 KiB":       {shutdowns, `{"instance_id":"a","intent":"graceful","metadata":{"x":"` + strings.Repeat("x", 16<<10) + `"}}`, 422, "/metadata"},
		"shutdown: metadata too deep":          {shutdowns, `{"instance_id":"a","intent":"graceful","metadata":` + strings.Repeat(`{"a":`, 32) + "1" + strings.Repeat("}", 32) + `}`, 400, "/metadata"},
		"shutdown: negative count":             {shutdowns, `{"instance_id":"a","intent":"graceful","in_flight_count":-5}`, 422, "/in_flight_count"},
		"claim: missing subscription":          {claims, `{"instance_id":"a"}`, 422, "/subscription"},
		"claim: missing claimant":              {claims, `{"subscription":"s"}`, 422, "/instance_id"},
		"claim: a wrong type":                  {claims, `{"subscription":["s"],"instance_id":"a"}`, 400, "/subscription"},
		"claim: group too long":                {claims, `{"subscription":"s","instance_id":"a","group":"` + long + `"}`, 422, "/group"},
		"assignment: missing target":           {assigns, `{"subscriptions":["s"]}`, 422, "/target_instance_id"},
		"assignment: missing subscriptions":    {assigns, `{"target_instance_id":"a"}`, 422, "/subscriptions"},
		"assignment: no subscriptions":         {assigns, `{"target_instance_id":"a","subscriptions":[]}`, 422, "/subscriptions"},
		"assignment: zone-less time":           {assigns, `{"target_instance_id":"a","subscriptions":["s"],"assigned_at":"2026-07-27T12:00:00"}`, 422, "/assigned_at"},
		"assignment: fractional priority":      {assigns, `{"target_instance_id":"a","subscriptions":["s"],"priority":1.5}`, 400, "/priority"},
		"webhook: missing url":                 {hooks, `{}`, 422, "/url"},
		"webhook: not http":                    {hooks, `{"url":"ftp://example.test/"}`, 422, "/url"},
		"webhook: a link-local address":        {hooks, `{"url":"http://169.254.169.254/latest"}`, 422, "/url"},
		"webhook: wrong type of a header":      {hooks, `{"url":"http://127.0.0.1/","headers":{"X":1}}`, 400, "/headers/X"},
		"webhook: enabled as a string":         {hooks, `{"url":"http://127.0.0.1/","enabled":"no"}`, 400, "/enabled"},
		"webhook: a bad secret":                {hooks, `{"url":"http://127.0.0.1/","secret":"short"}`, 422, "/secret"},
	}
	for name, hostile := range map[string]string{
		"NUL": `\u0000`, "a newline": `a\nb`, "an escape sequence": `\u001b[31m`, "DEL": `\u007f`, "a C1 control": `\u0085`,
	} {
		tests["hostile id: "+name] = badInput{heartbeats, `{"instance_id":"` + hostile + `"}`, 422, "/instance_id"}
		tests["hostile group: "+name] = badInput{heartbeats, `{"instance_id":"a","group":"` + hostile + `"}`, 422, "/group"}
		tests["hostile subscription: "+name] = badInput{heartbeats, `{"instance_id":"a","subscriptions":["` + hostile + `"]}`, 422, "/subscriptions/0"}
		tests["hostile incarnation: "+name] = badInput{heartbeats, `{"instance_id":"a","incarnation":"` + hostile + `"}`, 422, "/incarnation"}
		tests["hostile label: "+name] = badInput{heartbeats, `{"instance_id":"a","labels":{"zone":"` + hostile + `"}}`, 422, "/labels/zone"}
		tests["hostile peer of a shutdown: "+name] = badInput{shutdowns, `{"intent":"graceful","instance_id":"` + hostile + `"}`, 422, "/instance_id"}
		tests["hostile claim: "+name] = badInput{claims, `{"instance_id":"a","subscription":"` + hostile + `"}`, 422, "/subscription"}
		tests["hostile target: "+name] = badInput{assigns, `{"target_instance_id":"` + hostile + `","subscriptions":["s"]}`, 422, "/target_instance_id"}
		tests["hostile source: "+name] = badInput{assigns, `{"target_instance_id":"a","subscriptions":["s"],"source_instance_id":"` + hostile + `"}`, 422, "/source_instance_id"}
	}
	for name, raw := range map[string]string{"a bare surrogate": `\ud800`, "bytes that are not UTF-8": "\xff\xfe"} {
		tests["hostile id: "+name] = badInput{heartbeats, `{"instance_id":"` + raw + `"}`, 400, "/instance_id"}
		tests["hostile subscription: "+name] = badInput{heartbeats, `{"instance_id":"a","subscriptions":["` + raw + `"]}`, 400, "/subscriptions/0"}
		tests["hostile metadata: "+name] = badInput{shutdowns, `{"instance_id":"a","intent":"graceful","metadata":{"x":"` + raw + `"}}`, 400, "/metadata"}
	}
	return tests
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"s%d",`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func padded(n, size int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%0*d",`, size, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func labels(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":"v",`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func TestBadInputIsRefusedWithTheFieldNamedAndChangesNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"kept","subscriptions":["s"]}`)
	before := h.everything()
	for name, tt := range badInputs() {
		t.Run(name, func(t *testing.T) {
			r := h.do("POST", tt.path, tt.body)
			require.Equal(t, tt.status, r.status, "%s", r.body)
			p := r.problem(t)
			assert.NotEmpty(t, p.Detail)
			if tt.pointer == "" {
				return
			}
			pointers := make([]string, 0, len(p.Errors))
			for _, e := range p.Errors {
				pointers = append(pointers, e.Pointer)
				assert.NotEmpty(t, e.Detail)
			}
			assert.Contains(t, pointers, tt.pointer)
		})
	}
	assert.Equal(t, before, h.everything())
}

// everything is what a reader can see of the state.
func (h *harness) everything() map[string]string {
	h.t.Helper()
	out := map[string]string{}
	for _, path := range []string{
		"/v1/peers?limit=1000", "/v1/orphans?limit=1000", "/v1/claims?limit=1000", "/v1/assignments?limit=1000",
		"/v1/webhooks?limit=1000", "/v1/events?limit=1000&type=orphan.*&type=assignment.*&type=peer.draining",
	} {
		var list map[string]json.RawMessage
		h.want(200, "GET", path, nil).decode(h.t, &list)
		out[path] = string(list["items"])
	}
	return out
}

func TestBadParametersAreNamed(t *testing.T) {
	t.Parallel()
	h := start(t)
	tests := map[string]struct {
		path    string
		status  int
		pointer string
	}{
		"a limit that is no number":    {"/v1/peers?limit=many", 400, "/limit"},
		"a limit of 0":                 {"/v1/peers?limit=0", 422, "/limit"},
		"a limit of 1,001":             {"/v1/peers?limit=1001", 422, "/limit"},
		"an endless limit":             {"/v1/peers?limit=99999999999999999999", 400, "/limit"},
		"a limit that stands twice":    {"/v1/peers?limit=1&limit=2", 400, "/limit"},
		"a cursor from nowhere":        {"/v1/peers?cursor=nowhere", 422, "/cursor"},
		"another list's cursor":        {"/v1/orphans?cursor=WyJwIiwiYSJd", 422, "/cursor"},
		"an unknown status":            {"/v1/peers?status=healthy&status=alive", 422, "/status"},
		"a label without a value":      {"/v1/peers?label=zone", 422, "/label"},
		"two values of one label":      {"/v1/peers?label=zone%3Da&label=zone%3Db", 422, "/label"},
		"an unknown orphan state":      {"/v1/orphans?state=lost", 422, "/state"},
		"an unknown cause":             {"/v1/orphans?cause=healthy", 422, "/cause"},
		"claimable that is no boolean": {"/v1/orphans?claimable=perhaps", 400, "/claimable"},
		"an unknown claim state":       {"/v1/claims?state=open", 422, "/state"},
		"an unknown assignment state":  {"/v1/assignments?state=open", 422, "/state"},
		"an empty group of a peer":     {"/v1/peers/a?group=", 422, "/group"},
		"an empty group of the map":    {"/v1/orphaned-subscriptions?group=", 422, "/group"},
		"an unknown order":             {"/v1/events?order=random", 422, "/order"},
		"a limit of no events":         {"/v1/events?limit=-1", 422, "/limit"},
		"an event cursor from nowhere": {"/v1/events?cursor=%25", 422, "/cursor"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := h.want(tt.status, "GET", tt.path, nil).problem(t)
			require.NotEmpty(t, p.Errors, "%+v", p)
			assert.Equal(t, tt.pointer, p.Errors[0].Pointer)
		})
	}
}

func TestOnlyJSONIsTaken(t *testing.T) {
	t.Parallel()
	h := start(t)
	const body = `{"instance_id":"a"}`
	for kind, status := range map[string]int{
		"application/json":                  200,
		"application/json; charset=utf-8":   200,
		"application/vnd.coordsvc+json":     200,
		"application/x-www-form-urlencoded": 415,
		"text/plain":                        415,
		"text/json":                         415,
		"application/json; charset=latin1":  415,
		"garbage;;":                         415,
		"":                                  415,
	} {
		r := h.do("POST", "/v1/heartbeats", body, "Content-Type", kind)
		assert.Equal(t, status, r.status, "%q: %s", kind, r.body)
	}
	assert.Equal(t, 415, h.do("POST", "/v1/heartbeats", body, "Content-Encoding", "gzip").status)
	assert.Equal(t, 415, h.do("POST", "/v1/claims", `{"subscription":"s","instance_id":"a"}`, "Content-Type", "text/plain").status)
}

func TestABodyOfUnknownLengthIsBoundedToo(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{api: func(o *Options) { o.MaxBody, o.MaxBatchBody = 1000, 2000 }})
	send := func(path, body string) reply {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+path, io.NopCloser(strings.NewReader(body)))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = -1
		response, err := h.client.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return reply{response.StatusCode, response.Header, raw}
	}
	padding := func(n int) string { return strings.Repeat(" ", n) }
	for _, tt := range []struct {
		path, body string
		status     int
	}{
		{"/v1/heartbeats", `{"instance_id":"a"}` + padding(1000-19), 200},
		{"/v1/heartbeats", `{"instance_id":"a"}` + padding(1001-19), 413},
		{"/v1/heartbeats/batch", `{"heartbeats":[]}` + padding(2000-17), 200},
		{"/v1/heartbeats/batch", `{"heartbeats":[]}` + padding(2001-17), 413},
		{"/v1/claims", `{}` + padding(1000-2), 422},
		{"/v1/claims", `{}` + padding(1001-2), 413},
	} {
		r := send(tt.path, tt.body)
		assert.Equal(t, tt.status, r.status, "%s with %d bytes: %s", tt.path, len(tt.body), r.body)
		assert.Equal(t, tt.status, h.do("POST", tt.path, tt.body).status)
	}
}

func TestWhileTheStoreIsAwayDurableWritesSayWhenToComeBack(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.store.goAway(fmt.Errorf("disk: secret/path: %w", service.ErrUnavailable))
	for _, path := range []string{"/v1/shutdowns", "/v1/webhooks"} {
		body := `{"instance_id":"a","intent":"graceful","url":"http://127.0.0.1/"}`
		r := h.want(503, "POST", path, body)
		assert.Equal(t, "5", r.header.Get("Retry-After"), path)
		assert.Equal(t, "unavailable", slug(r.problem(t)))
		assert.NotContains(t, string(r.body), "secret")
	}
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"a"}`)
	h.want(200, "GET", "/v1/peers", nil)
	h.store.goAway(nil)
	h.want(202, "POST", "/v1/shutdowns", `{"instance_id":"a","intent":"graceful"}`)
}

func TestLimitOfPeersIsToldAsSuch(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{service: func(o *service.Options) { o.Core.MaxPeers = 1 }})
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"a"}`)
	r := h.want(429, "POST", "/v1/heartbeats", `{"instance_id":"b"}`)
	assert.Equal(t, "limit-reached", slug(r.problem(t)))
	assert.Equal(t, "30", r.header.Get("Retry-After"))
}

func TestProblemsReadAsRecorded(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{api: func(o *Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
	}})
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"worker-1","subscriptions":["served"]}`)
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"worker-2"}`)
	h.want(202, "POST", "/v1/shutdowns", `{"instance_id":"gone","intent":"graceful","drain_timeout_seconds":0,"subscriptions":["left"]}`)
	h.want(201, "POST", "/v1/claims", `{"instance_id":"worker-1","subscription":"new"}`)
	tests := map[string]struct{ method, path, body string }{
		"malformed-json":      {"POST", "/v1/heartbeats", `{"instance_id":"a","subscriptions":["s`},
		"wrong-type":          {"POST", "/v1/heartbeats", `{"instance_id":1,"subscriptions":["s",{}]}`},
		"bad-parameter":       {"GET", "/v1/peers?limit=many", ""},
		"no-such-path":        {"GET", "/v1/unknown", ""},
		"not-found":           {"GET", "/v1/peers/nobody", ""},
		"method-not-allowed":  {"PUT", "/v1/peers/nobody", "{}"},
		"invalid":             {"POST", "/v1/heartbeats", `{"instance_id":"","load_factor":-1}`},
		"invalid-timestamp":   {"POST", "/v1/heartbeats", `{"instance_id":"a","timestamp":"2026-07-27T12:00:00"}`},
		"too-large":           {"POST", "/v1/claims", `{"x":"` + strings.Repeat("x", 1<<20) + `"}`},
		"claim-held":          {"POST", "/v1/claims", `{"instance_id":"worker-2","subscription":"new"}`},
		"subscription-served": {"POST", "/v1/claims", `{"instance_id":"worker-2","subscription":"served"}`},
		"claimant-unfit":      {"POST", "/v1/claims", `{"instance_id":"gone","subscription":"other"}`},
		"not-draining":        {"DELETE", "/v1/peers/worker-1/shutdown", ""},
		"peer-terminated":     {"DELETE", "/v1/peers/gone/shutdown", ""},
		"internal":            {"GET", "/metrics", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var body any
			if tt.body != "" {
				body = tt.body
			}
			r := h.do(tt.method, tt.path, body)
			assert.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
			golden(t, filepath.Join("testdata", "problems", name+".json"), r.body)
		})
	}
	t.Run("unsupported-media-type", func(t *testing.T) {
		golden(t, "testdata/problems/unsupported-media-type.json", h.do("POST", "/v1/claims", "a=b", "Content-Type", "application/x-www-form-urlencoded").body)
	})
	t.Run("cross-site", func(t *testing.T) {
		golden(t, "testdata/problems/cross-site.json", h.do("POST", "/v1/claims", "{}", "Sec-Fetch-Site", "cross-site").body)
	})
}

// golden compares JSON with a recorded file, indented for people; -update records it.
func golden(t *testing.T, path string, body []byte) {
	t.Helper()
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, body, "", "  "), "%s", body)
	indented.WriteByte('\n')
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, indented.Bytes(), 0o644))
	}
	recorded, err := os.ReadFile(path)
	require.NoError(t, err, "record it with -update")
	assert.Equal(t, string(recorded), indented.String())
}

func TestAClientThatLeftIsNotTheServicesFault(t *testing.T) {
	t.Parallel()
	h := start(t)
	assert.Equal(t, http.StatusServiceUnavailable, h.api.answerTo(fmt.Errorf("commit: %w", context.Canceled)).problem.Status)
}
