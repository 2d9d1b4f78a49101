package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/web/static"
)

// walk visits every element of a page.
func walk(t *testing.T, page string, visit func(*html.Node)) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	var down func(*html.Node)
	down = func(n *html.Node) {
		if n.Type == html.ElementNode {
			visit(n)
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			down(c)
		}
	}
	down(root)
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func TestNoPageHasInlineScriptStyleOrHandler(t *testing.T) {
	for _, st := range stories {
		t.Run(st.name, func(t *testing.T) {
			w := get(t, site1(t, st.stage()), st.path)
			assert.Equal(t, contentSecurityPolicy, w.Header().Get("Content-Security-Policy"))
			assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
			ids := map[string]bool{}
			walk(t, w.Body.String(), func(n *html.Node) {
				assert.NotEqual(t, "style", n.Data)
				if n.Data == "script" {
					assert.NotEmpty(t, attr(n, "src"), "inline script")
					assert.Nil(t, n.FirstChild, "inline script")
				}
				for _, a := range n.Attr {
					assert.False(t, strings.HasPrefix(a.Key, "on"), "handler %s on <%s>", a.Key, n.Data)
					assert.NotEqual(t, "style", a.Key, "inline style on <%s>", n.Data)
					assert.False(t, strings.HasPrefix(a.Key, "hx-on"), "handler %s", a.Key)
				}
				for _, name := range []string{"href", "src", "action"} {
					if v := attr(n, name); v != "" {
						assert.Regexp(t, `^(/[^/]|/$|#)`, v, "%s of <%s> leaves this server", name, n.Data)
					}
				}
				if id := attr(n, "id"); id != "" {
					assert.False(t, ids[id], "id %s twice", id)
					ids[id] = true
				}
			})
		})
	}
}

// Nothing that a peer is named may become an element: only the elements that pages are made of are there.
func TestHostileNamesStayText(t *testing.T) {
	for _, path := range []string{"/", "/peers/%3Cscript%3Ealert(1)%3C%2Fscript%3E?group=%3Cb%3Eg%3C%2Fb%3E", `/?q="><script>alert(1)</script>`, `/?group="><img/src=x>`, `/?status=<script>`, `/<script>`} {
		page := get(t, site1(t, hostile()), strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22").Replace(path)).Body.String()
		walk(t, page, func(n *html.Node) {
			assert.NotContains(t, []string{"img", "i", "u", "s", "iframe", "object"}, n.Data, path)
			if n.Data == "b" {
				assert.NotContains(t, text(n), "g</b>", path)
			}
			if n.Data == "script" {
				assert.Regexp(t, `^/static/[a-z.-]+\.js\?v=[0-9a-f]+$`, attr(n, "src"), path)
			}
		})
	}
}

func text(n *html.Node) string {
	var b strings.Builder
	var down func(*html.Node)
	down = func(n *html.Node) {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			down(c)
		}
	}
	down(n)
	return b.String()
}

// Every peer is reachable by its link, whatever its id; ids that no path can carry are found by search.
func TestEveryPeerIsReachableByItsLink(t *testing.T) {
	s := hostile()
	h := site1(t, s)
	links := map[string]string{}
	walk(t, get(t, h, "/").Body.String(), func(n *html.Node) {
		if n.Data == "tr" && attr(n, "data-k") != "" {
			a := n.FirstChild.FirstChild
			links[text(a)] = attr(a, "href")
		}
	})
	require.Len(t, links, len(s.peers))
	for _, p := range s.peers {
		w := get(t, h, links[p.InstanceID])
		assert.Equal(t, http.StatusOK, w.Code, "%s at %s", p.InstanceID, links[p.InstanceID])
		assert.Contains(t, w.Body.String(), "<bdi>"+html.EscapeString(p.InstanceID)+"</bdi>", links[p.InstanceID])
	}
	assert.Equal(t, "/?group=%3Cb%3Eg%3C%2Fb%3E&q=..", links[".."])
}

func TestEqualPicturesAreNotSentTwice(t *testing.T) {
	clock := now
	h, err := New(Options{Service: rollout(), Now: func() time.Time { clock = clock.Add(time.Second); return clock }})
	require.NoError(t, err)
	for _, path := range []string{"/", "/?part=glance", "/?part=peers", "/?part=orphans", "/?part=events", "/?part=header", "/?part=body", "/peers/billing-consumer-0?group=billing", "/peers/billing-consumer-0?group=billing&part=peer"} {
		first := get(t, h, path)
		require.Equal(t, http.StatusOK, first.Code, path)
		tag := first.Header().Get("ETag")
		require.NotEmpty(t, tag, path)
		assert.Equal(t, "private, no-cache", first.Header().Get("Cache-Control"), path)
		for _, known := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			again := get(t, h, path, "If-None-Match", known)
			assert.Equal(t, http.StatusNotModified, again.Code, "%s with %s", path, known)
			assert.Empty(t, again.Body.String(), path)
			assert.Equal(t, tag, again.Header().Get("ETag"), path)
			assert.NotEqual(t, first.Header().Get(headerNow), again.Header().Get(headerNow), "the clock goes on: %s", path)
		}
		assert.Equal(t, http.StatusOK, get(t, h, path, "If-None-Match", `"other"`).Code, path)
	}
}

func TestAPartChangesItsTagWithItsContentOnly(t *testing.T) {
	s := rollout()
	h := site1(t, s)
	peers, events := get(t, h, "/?part=peers").Header().Get("ETag"), get(t, h, "/?part=events").Header().Get("ETag")
	s.mu.Lock()
	s.peers[0].LastSeen = now
	s.mu.Unlock()
	assert.NotEqual(t, peers, get(t, h, "/?part=peers").Header().Get("ETag"))
	assert.Equal(t, events, get(t, h, "/?part=events").Header().Get("ETag"))
}

func names(t *testing.T, h http.Handler, path string) []string {
	t.Helper()
	w := get(t, h, path)
	require.Equal(t, http.StatusOK, w.Code, path)
	var list []string
	walk(t, w.Body.String(), func(n *html.Node) {
		if n.Data == "tr" && attr(n, "data-k") != "" {
			list = append(list, text(n.FirstChild.FirstChild))
		}
	})
	return list
}

func TestFiltersStandInTheAddress(t *testing.T) {
	s := rollout()
	s.pageSize = 20
	h := site1(t, s)
	tests := []struct {
		path string
		want []string
	}{
		{"/?status=draining", []string{"orders-worker-7d9f4-9bbrt", "billing-consumer-0"}},
		{"/?status=stale&group=billing", []string{"billing-consumer-1"}},
		{"/?q=POLLER-b", []string{"shipping-poller-b"}},
		{"/?q=poller&status=unknown", []string{"shipping-poller-e"}},
		{"/?q=nobody", nil},
		{"/?group=elsewhere", nil},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, names(t, h, test.path), test.path)
	}
}

func TestAPageIsOrderedByUrgency(t *testing.T) {
	assert.Equal(t, []string{
		"orders-worker-7d9f4-2xkqp", // orphaned, overdue
		"orders-worker-7d9f4-9bbrt", // orphaned, draining
		"billing-consumer-1",        // orphaned, stale
		"billing-consumer-0",        // draining
		"shipping-poller-a",         // stale
		"billing-consumer-2", "billing-consumer-3",
		"orders-worker-85c6d-4mmzz", "orders-worker-85c6d-kf8ww", "orders-worker-85c6d-q7t2c",
		"shipping-poller-b", "shipping-poller-c", "shipping-poller-d", "shipping-poller-e",
	}, names(t, site1(t, rollout()), "/"))
}

func TestPagingFollowsLinksAndKeepsFilters(t *testing.T) {
	s := rollout()
	s.pageSize = 3
	h := site1(t, s)
	link := func(path, label string) string {
		href := ""
		walk(t, get(t, h, path).Body.String(), func(n *html.Node) {
			if n.Data == "a" && text(n) == label {
				href = attr(n, "href")
			}
		})
		return href
	}
	first := "/?group=shipping&time=local"
	next := link(first, "Next page")
	assert.Equal(t, "/?cursor=page2&group=shipping&time=local", next)
	assert.Equal(t, []string{"shipping-poller-d", "shipping-poller-e"}, names(t, h, next))
	assert.Equal(t, first, link(next, "First page"))
	assert.Empty(t, link(first, "First page"))
	assert.Empty(t, link(next, "Next page"))
	// A filter begins at the first page.
	tile := ""
	walk(t, get(t, h, next).Body.String(), func(n *html.Node) {
		if attr(n, "id") == "tile-stale" {
			tile = attr(n, "href")
		}
	})
	assert.Equal(t, "/?group=shipping&status=stale&time=local", tile)
}

func TestAddressesWriteBackWhatTheySaid(t *testing.T) {
	for _, q := range []string{
		"", "group=a+b&q=%2F%26&status=stale", "cursor=x%3D&orphans=all&refresh=off&time=local",
	} {
		values, err := url.ParseQuery(q)
		require.NoError(t, err)
		v, err := parseView("/", values)
		require.NoError(t, err)
		assert.Equal(t, q, v.values().Encode())
	}
}

func TestWrongAddressesNameTheParameter(t *testing.T) {
	h := site1(t, rollout())
	tests := []struct {
		path string
		code int
		says string
	}{
		{"/?status=asleep", http.StatusBadRequest, "/status"},
		{"/?time=mars", http.StatusBadRequest, "/time: must be utc or local"},
		{"/?refresh=never", http.StatusBadRequest, "/refresh"},
		{"/?orphans=some", http.StatusBadRequest, "/orphans"},
		{"/?part=engine", http.StatusBadRequest, "no part engine"},
		{"/?cursor=nonsense", http.StatusBadRequest, "/cursor"},
		{"/peers/x?part=peers", http.StatusNotFound, "No such peer"},
		{"/peers/", http.StatusNotFound, "no such page"},
		{"/static/nothing.js", http.StatusNotFound, "no such page"},
		{"/static/../options.go", http.StatusNotFound, "no such page"},
	}
	for _, test := range tests {
		w := get(t, h, test.path)
		assert.Equal(t, test.code, w.Code, test.path)
		assert.Contains(t, w.Body.String(), test.says, test.path)
		assert.Empty(t, w.Header().Get("Set-Cookie"))

		problem := get(t, h, test.path, "Accept", "*/*")
		assert.Equal(t, test.code, problem.Code, test.path)
		assert.Equal(t, "application/problem+json", problem.Header().Get("Content-Type"), test.path)
		assert.Contains(t, problem.Body.String(), test.says, test.path)
	}
}

func TestOnlyReading(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		r := request(t, method, "/")
		w := serve(site1(t, rollout()), r)
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"), method)
	}
	w := serve(site1(t, rollout()), request(t, http.MethodHead, "/"))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Empty(t, w.Body.String())
	assert.NotEmpty(t, w.Header().Get("ETag"))
}

func TestTheThemeIsKeptInACookieAndLeavesTheAddress(t *testing.T) {
	h := site1(t, rollout())
	w := get(t, h, "/?theme=dark&group=orders&time=local")
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "/?group=orders&time=local", w.Header().Get("Location"))
	cookie := w.Result().Cookies()[0]
	assert.Equal(t, "dark", cookie.Value)

	page := get(t, h, "/", "Cookie", cookie.Name+"="+cookie.Value)
	assert.Contains(t, page.Body.String(), `data-theme="dark"`)
	assert.NotEqual(t, get(t, h, "/").Header().Get("ETag"), page.Header().Get("ETag"))
	assert.Equal(t, "Accept-Encoding, Cookie", page.Header().Get("Vary"))

	back := get(t, h, "/?theme=system").Result().Cookies()[0]
	assert.Negative(t, back.MaxAge)
	assert.Contains(t, get(t, h, "/", "Cookie", cookie.Name+`=<script>`).Body.String(), `data-theme=""`)
}

func TestLinksStandBehindTheBasePath(t *testing.T) {
	h, err := New(Options{Service: rollout(), BasePath: "/coord/", Now: func() time.Time { return now }})
	require.NoError(t, err)
	for _, path := range []string{"/coord", "/coord/", "/", "/coord/peers/billing-consumer-0?group=billing"} {
		w := get(t, h, path)
		require.Equal(t, http.StatusOK, w.Code, path)
		walk(t, w.Body.String(), func(n *html.Node) {
			for _, name := range []string{"href", "src", "action", "data-src", "data-stream", "hx-get"} {
				if v := attr(n, name); v != "" && v[0] != '#' {
					assert.True(t, strings.HasPrefix(v, "/coord/"), "%s of <%s> on %s: %s", name, n.Data, path, v)
				}
			}
		})
	}
	assert.Equal(t, http.StatusNotFound, get(t, h, "/coordination").Code)
}

func TestAFirstPaintWeighsLessThan150KiB(t *testing.T) {
	s := newStage()
	for i := range peersPerPage {
		p := shutdown(peer("a-group-with-a-name", "projection-worker-7d9f4c6b8-x"+decimal(uint64(1000+i)), coordination.StatusDraining, time.Second,
			"orders.projection.customers", "orders.projection.invoices", "orders.projection.search"), coordination.IntentPreemption, time.Minute, 12)
		s.peers = append(s.peers, p)
	}
	s.peers = append(s.peers, peer("b", "another", coordination.StatusHealthy, time.Second))
	s.pageSize = peersPerPage
	o := rollout()
	for len(s.orphans) < orphansPerPage {
		s.orphans = append(s.orphans, o.orphans[0])
	}
	s.events = o.events
	h := site1(t, s.settle())
	page := get(t, h, "/").Body.String()
	total := len(page)
	walk(t, page, func(n *html.Node) {
		for _, v := range []string{attr(n, "src"), attr(n, "href")} {
			if strings.HasPrefix(v, "/static/") && n.Data != "a" {
				w := get(t, h, v, "Accept-Encoding", "gzip")
				require.Equal(t, http.StatusOK, w.Code, v)
				total += w.Body.Len()
			}
		}
	})
	assert.Less(t, total, 150<<10, "page %d, with its files %d", len(page), total)
	assert.Less(t, get(t, h, "/?part=peers").Body.Len(), 100<<10)
}

func TestPagesAreCompressedAndPartsAreNot(t *testing.T) {
	h := site1(t, rollout())
	plain, zipped := get(t, h, "/"), get(t, h, "/", "Accept-Encoding", "gzip")
	require.Equal(t, "gzip", zipped.Header().Get("Content-Encoding"))
	z, err := gzip.NewReader(zipped.Body)
	require.NoError(t, err)
	body, err := io.ReadAll(z)
	require.NoError(t, err)
	assert.Equal(t, plain.Body.String(), string(body))
	assert.NotEqual(t, plain.Header().Get("ETag"), zipped.Header().Get("ETag"), "a strong tag names one encoding")
	assert.Equal(t, http.StatusNotModified, get(t, h, "/", "Accept-Encoding", "gzip", "If-None-Match", zipped.Header().Get("ETag")).Code)
	assert.Empty(t, get(t, h, "/?part=peers", "Accept-Encoding", "gzip").Header().Get("Content-Encoding"))
}

func TestTheCommandForTheFirstPeerCannotCarryAShellIntoIt(t *testing.T) {
	tests := []struct{ host, want string }{
		{"coord.internal:8080", "http://coord.internal:8080/v1/heartbeats"},
		{"[::1]:8080", "http://[::1]:8080/v1/heartbeats"},
		{"x$(reboot)", "http://127.0.0.1:8080/v1/heartbeats"},
		{"x';reboot;'", "http://127.0.0.1:8080/v1/heartbeats"},
		{"", "http://127.0.0.1:8080/v1/heartbeats"},
	}
	for _, test := range tests {
		r := request(t, http.MethodGet, "/")
		r.Host = test.host
		page := serve(site1(t, newStage().settle()), r).Body.String()
		curl := ""
		walk(t, page, func(n *html.Node) {
			if attr(n, "id") == "curl" {
				curl = text(n)
			}
		})
		assert.Contains(t, curl, "curl -X POST "+test.want+" ", test.host)
		assert.NotContains(t, curl, "reboot")
	}
}

func TestStaticFilesAreKeptByTheirHash(t *testing.T) {
	h := site1(t, rollout())
	page := get(t, h, "/").Body.String()
	href := regexp.MustCompile(`/static/app\.css\?v=[0-9a-f]+`).FindString(page)
	require.NotEmpty(t, href)
	w := get(t, h, href)
	assert.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
	assert.Equal(t, "text/css; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Equal(t, "no-cache", get(t, h, "/static/app.css?v=0000").Header().Get("Cache-Control"))
	assert.Equal(t, http.StatusNotModified, get(t, h, href, "If-None-Match", w.Header().Get("ETag")).Code)

	zipped := get(t, h, href, "Accept-Encoding", "br, gzip;q=0.8")
	assert.Equal(t, "gzip", zipped.Header().Get("Content-Encoding"))
	assert.NotEqual(t, w.Header().Get("ETag"), zipped.Header().Get("ETag"))
	assert.Less(t, zipped.Body.Len(), w.Body.Len()/2)
	assert.Empty(t, get(t, h, href, "Accept-Encoding", "gzip;q=0").Header().Get("Content-Encoding"))
}

func TestVendoredFilesComeWithTheirLicences(t *testing.T) {
	h := site1(t, rollout())
	for _, name := range []string{"htmx.LICENSE.txt", "idiomorph.LICENSE.txt"} {
		w := get(t, h, "/static/"+name)
		require.Equal(t, http.StatusOK, w.Code, name)
		assert.Contains(t, w.Body.String(), "Zero-Clause BSD", name)
	}
	f, err := static.Files().Open("htmx.min.js")
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // an embedded file
	body, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Contains(t, string(body), `version:"2.0.11"`)
}

func TestOptionsAreChecked(t *testing.T) {
	tests := []struct {
		options Options
		says    string
	}{
		{Options{}, "Service is required"},
		{Options{Service: newStage(), MaxStreams: -1}, "MaxStreams"},
		{Options{Service: newStage(), BasePath: "coord"}, "BasePath"},
		{Options{Service: newStage(), BasePath: "//evil.example"}, "BasePath"},
		{Options{Service: newStage(), BasePath: "/a?b"}, "BasePath"},
	}
	for _, test := range tests {
		_, err := New(test.options)
		assert.ErrorContains(t, err, test.says)
	}
}

func TestADrainReadsAsWhatItIs(t *testing.T) {
	draining := shutdown(peer("g", "p", coordination.StatusDraining, time.Second), coordination.IntentHealthFailure, 30*time.Second, 4)
	over := shutdown(peer("g", "p", coordination.StatusTerminated, time.Second), coordination.IntentGraceful, -time.Minute, 0)
	early := shutdown(peer("g", "p", coordination.StatusTerminated, time.Second), coordination.IntentGraceful, time.Minute, 0)
	overdue := over
	overdue.Overdue, overdue.OverdueSince = true, ago(time.Minute)
	old := draining
	old.LastHeartbeat = &service.HeartbeatView{ReceivedAt: ago(time.Hour), InFlightCount: 99}

	assert.Nil(t, drain(now, &service.Peer{}))
	d := drain(now, &draining)
	assert.Equal(t, "until 12:03:41", d.Deadline.Text)
	assert.Equal(t, "2026-03-14T12:03:41.000Z", d.Deadline.RFC3339)
	assert.Equal(t, "4 in flight", d.InFlight)
	assert.Equal(t, "health failure", d.Intent)
	assert.Equal(t, "4 in flight", drain(now, &old).InFlight, "the notification is newer than the heartbeat")
	assert.True(t, drain(now, &over).Over)
	assert.False(t, drain(now, &over).Early)
	assert.True(t, drain(now, &early).Early)
	assert.True(t, drain(now, &overdue).Overdue)
	assert.False(t, drain(now, &overdue).Over)
}
