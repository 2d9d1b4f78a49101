//go:build e2e

package browser

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page stays the same document all along: nothing here reloads it.
func TestEveryStatusShowsWithoutReloading(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	b.open(s.url("/"))
	b.until(`document.getElementById("curl")`)
	eval[bool](b, `window.sameDocument = true`)

	stop := s.keepAlive("worker-1", map[string]any{"subscriptions": []string{"orders"}, "in_flight_count": 3, "labels": map[string]string{"version": "1.4.2"}})
	b.until(status("worker-1") + ` === "Healthy"`)
	assert.Equal(t, "1.4.2", eval[string](b, row("worker-1")+`.querySelector(".ver").textContent`))

	s.post("/v1/shutdowns", map[string]any{"instance_id": "worker-1", "intent": "maintenance", "drain_timeout_seconds": 60, "in_flight_count": 3})
	b.until(status("worker-1") + ` === "Draining"`)
	s.delete("/v1/peers/worker-1/shutdown")
	b.until(status("worker-1") + ` === "Healthy"`)

	stop()
	b.until(status("worker-1") + ` === "Stale"`)
	b.until(`document.getElementById("tile-stale").querySelector(".count").textContent === "1"`)
	s.beat("worker-1", nil)
	b.until(status("worker-1") + ` === "Healthy"`)
	s.post("/v1/shutdowns", map[string]any{"instance_id": "worker-1", "intent": "graceful", "drain_timeout_seconds": 0})
	b.until(status("worker-1") + ` === "Terminated"`)
	assert.True(t, eval[bool](b, `window.sameDocument === true`), "the page was loaded anew")
}

func TestACountdownTicksToZeroAndThenCountsWhatItIsOver(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	s.keepAlive("worker-1", map[string]any{"subscriptions": []string{"orders"}, "in_flight_count": 5})
	s.post("/v1/shutdowns", map[string]any{"instance_id": "worker-1", "intent": "preemption", "drain_timeout_seconds": 3, "in_flight_count": 5})
	b.open(s.url("/"))
	// Every text that the countdown ever shows, in order.
	eval[bool](b, `(() => {
		window.shown = [];
		const look = () => {
			const el = document.querySelector("table.peers time[data-deadline]");
			const text = el ? el.textContent : "";
			if (text && window.shown.at(-1) !== text) window.shown.push(text);
			requestAnimationFrame(look);
		};
		look();
		return true;
	})()`)
	b.until(`window.shown.some(t => /^overdue \+[2-9] s$/.test(t))`)
	last, over := 1<<30, -1
	for _, text := range eval[[]string](b, `window.shown`) {
		if n, found := strings.CutPrefix(text, "overdue +"); found {
			seconds, err := strconv.Atoi(strings.TrimSuffix(n, " s"))
			require.NoError(t, err, text)
			assert.GreaterOrEqual(t, seconds, over, "it runs back")
			over = seconds
			continue
		}
		seconds, err := strconv.Atoi(strings.TrimSuffix(text, " s"))
		require.NoError(t, err, "a countdown that is neither: %q", text)
		assert.Negative(t, over, "counting down after the deadline")
		assert.GreaterOrEqual(t, seconds, 0)
		assert.LessOrEqual(t, seconds, last, "it runs back")
		last = seconds
	}
	assert.Equal(t, "Overdue", eval[string](b, status("worker-1")))
}

func TestAnOrphanAppearsIsClaimedAndGoes(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	b.open(s.url("/"))
	s.beat("old-owner", map[string]any{"subscriptions": []string{"orders.eu"}})
	s.keepAlive("survivor", map[string]any{"subscriptions": []string{"orders.us"}})
	b.until(`[...document.querySelectorAll(".orphan")].some(o => o.textContent.includes("orders.eu") && o.textContent.includes("unclaimed"))`)
	b.until(`document.title.startsWith("(1) ")`)
	b.until(`document.getElementById("icon").getAttribute("href") === document.getElementById("icon").dataset.alert`)

	s.post("/v1/claims", map[string]any{"subscription": "orders.eu", "instance_id": "survivor"})
	b.until(`document.querySelector(".orphan").textContent.includes("survivor")`)
	b.until(`document.querySelector(".orphan .ok")?.textContent === "ready"`)
	b.until(`[...document.querySelectorAll(".event .type")].some(e => e.textContent === "orphan.claimed")`)

	s.keepAlive("second", map[string]any{"subscriptions": []string{"orders.eu"}})
	b.until(`document.querySelectorAll(".orphan").length === 0`)
	b.until(`document.title === "coordsvc"`)
	b.until(`document.getElementById("icon").getAttribute("href") === document.getElementById("icon").dataset.calm`)
}

func TestAnOutageIsToldAndAReturnFetchesEverything(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	b.outage = true
	s.keepAlive("before", nil)
	b.open(s.url("/"))
	b.until(`document.getElementById("conn").textContent === "Live"`)
	b.until(status("before") + ` === "Healthy"`)

	s.stop()
	b.until(`!document.getElementById("lost").hidden`)
	assert.Regexp(t, `^Connection lost, showing data from \d\d:\d\d:\d\d UTC$`, eval[string](b, `document.getElementById("lost").textContent`))
	assert.Equal(t, "Disconnected", eval[string](b, `document.getElementById("conn").textContent`))
	assert.NotEmpty(t, eval[string](b, status("before")), "the last known data stay")

	s.start()
	s.keepAlive("after", nil)
	b.until(`document.getElementById("lost").hidden`)
	b.until(status("after") + ` === "Healthy"`)
	b.until(`document.getElementById("conn").textContent === "Live"`)
	s.keepAlive("later", nil)
	b.until(status("later") + ` === "Healthy"`)
}

func TestWhatDidNotChangeIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	s.keepAlive("worker-1", nil)
	b.open(s.url("/"))
	b.until(status("worker-1") + ` === "Healthy"`)
	eval[bool](b, `(() => {
		window.answers = [];
		window.asked = [];
		document.addEventListener("htmx:beforeRequest", e => window.asked.push([e.detail.pathInfo.requestPath, performance.now()]));
		document.addEventListener("htmx:afterRequest", e => window.answers.push([e.detail.xhr.status, e.detail.pathInfo.requestPath]));
		return true;
	})()`)
	b.until(`window.answers.filter(a => a[1].includes("part=glance") && a[0] === 304).length >= 2`)
	b.until(`window.answers.filter(a => a[1].includes("part=peers") && a[0] === 200).length >= 3`)
	gaps := eval[[]float64](b, `(() => {
		const at = window.asked.filter(a => a[0].includes("part=peers")).map(a => a[1]);
		return at.slice(1).map((t, i) => t - at[i]);
	})()`)
	for _, gap := range gaps {
		assert.Greater(t, gap, 700.0, "more often than once a second")
	}
}

func TestFocusTypingAndScrollSurviveUpdates(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	var ids []string
	for i := range 40 {
		ids = append(ids, "worker-"+strconv.Itoa(100+i))
	}
	s.keepAllAlive(ids, nil)
	b.open(s.url("/"))
	b.until(`document.getElementById("conn").textContent === "Live"`)
	b.do(chromedp.Focus(chromedp.CSS(`tbody tr:nth-child(20) a`)))
	eval[bool](b, `(() => { window.scrollTo(0, 500); window.focused = document.activeElement; return true; })()`)
	s.keepAlive("worker-300", nil)
	b.until(row("worker-300"))
	assert.True(t, eval[bool](b, `document.activeElement === window.focused && document.activeElement.tagName === "A"`), "the focus was lost")
	assert.InDelta(t, 500, eval[float64](b, `window.scrollY`), 1)

	// A search filters while it is typed, and stands in the address.
	b.do(chromedp.SendKeys(chromedp.CSS(`#q`), "r-12"))
	b.until(`document.querySelectorAll("table.peers tbody tr").length === 10`)
	b.until(`location.search === "?q=r-12"`)
	assert.Equal(t, "r-12", eval[string](b, `document.activeElement.value`))
	s.keepAlive("worker-129-b", nil)
	b.until(row("worker-129-b"))
	assert.Equal(t, "r-12", eval[string](b, `document.activeElement.value`))
	assert.Empty(t, eval[string](b, row("worker-300")+` ? "there" : ""`), "an update left the filter")
}

func TestFiltersAndHistory(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	s.keepAlive("steady", nil)
	s.keepAlive("leaving", map[string]any{"group": "billing"})
	s.post("/v1/shutdowns", map[string]any{"instance_id": "leaving", "group": "billing", "intent": "graceful", "drain_timeout_seconds": 120, "in_flight_count": 1})
	b.open(s.url("/"))
	b.until(status("leaving") + ` === "Draining"`)
	b.do(chromedp.Click(chromedp.CSS(`#tile-draining`)))
	b.until(`location.search === "?status=draining" && !` + row("steady"))
	assert.Equal(t, "draining", eval[string](b, `document.getElementById("status").value`))
	// Live updates go on with the filter.
	s.keepAlive("leaving-too", nil)
	s.post("/v1/shutdowns", map[string]any{"instance_id": "leaving-too", "intent": "graceful", "drain_timeout_seconds": 120, "in_flight_count": 1})
	b.until(status("leaving-too") + ` === "Draining"`)
	assert.True(t, eval[bool](b, `!`+row("steady")))

	b.do(chromedp.Click(chromedp.CSS(`table.peers tbody tr a`)))
	b.until(`location.pathname.startsWith("/peers/") && document.getElementById("part-peer")`)
	b.do(chromedp.NavigateBack())
	b.until(`location.search === "?status=draining" && ` + row("leaving"))
	// The address alone gives the same view.
	b.open(s.url("/?group=billing&status=draining"))
	b.until(row("leaving"))
	assert.Equal(t, 1, eval[int](b, `document.querySelectorAll("table.peers tbody tr").length`))
}

func TestAPausedPageStandsStillUntilItIsResumed(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	s.keepAlive("first", nil)
	b.open(s.url("/?refresh=off"))
	b.until(`document.getElementById("conn").textContent === "Paused"`)
	eval[bool](b, `(() => { window.requests = 0; document.addEventListener("htmx:beforeRequest", () => window.requests++); return true; })()`)
	s.keepAlive("second", nil)
	text := eval[string](b, row("first")+`.querySelector("time").textContent`)
	assert.Equal(t, 0, eval[int](b, `new Promise(r => setTimeout(() => r(window.requests), 2500))`), "a paused page asked for something")
	assert.Equal(t, text, eval[string](b, row("first")+`.querySelector("time").textContent`), "a paused page ticks")
	b.do(chromedp.Click(chromedp.CSS(`#toggle-refresh`)))
	b.until(status("second") + ` === "Healthy"`)
	b.until(`document.getElementById("conn").textContent === "Live" && location.search === ""`)
	b.do(chromedp.Click(chromedp.CSS(`#toggle-refresh`)))
	b.until(`document.getElementById("conn").textContent === "Paused" && location.search === "?refresh=off"`)
}

func TestHostileNamesStayText(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	names := []string{
		`<img src=x onerror="window.hit=1">`, `<script>window.hit=1</script>`, `"><svg onload=window.hit=1>`, `' onmouseover='window.hit=1`,
		`javascript:window.hit=1`, `../../static/app.css`, `..`, `a/b c?d#e`, strings.Repeat("W", 255), "\u202eevil",
	}
	for _, name := range names {
		s.beat(name, map[string]any{"group": `<b onclick=window.hit=1>`, "subscriptions": []string{name}, "labels": map[string]string{"version": name, name: name}, "incarnation": name})
	}
	s.keepAlive(names[0], map[string]any{"group": `<b onclick=window.hit=1>`, "subscriptions": []string{names[0]}})
	b.open(s.url("/"))
	b.until(`document.getElementById("conn").textContent === "Live"`)
	// Follow each peer's link, on the smallest screen.
	b.size(320, 700)
	assert.LessOrEqual(t, eval[int](b, `document.documentElement.scrollWidth`), 320, "sideways")
	links := map[string]string{}
	for _, name := range names {
		b.until(row(name))
		links[name] = eval[string](b, row(name)+`.querySelector("a").href`)
	}
	for name, link := range links {
		b.open(link)
		b.until(`[...document.querySelectorAll("bdi")].some(e => e.textContent === ` + quoted(name) + `)`)
		assert.LessOrEqual(t, eval[int](b, `document.documentElement.scrollWidth`), 320, "sideways at %s", name)
	}
	assert.True(t, eval[bool](b, `window.hit === undefined && document.querySelectorAll("#page img, #page script").length === 0`))
}

func TestAPhoneNeedsNoScrollingSideways(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	s.keepAlive("orders-projection-worker-7d9f4c6b8-x2kqp", map[string]any{
		"subscriptions": []string{"orders.projection.customers", "orders.projection.invoices", "orders.search"}, "in_flight_count": 100000,
		"load_factor": 0.93, "labels": map[string]string{"version": "2026.3.14-rc.1+build.4711"},
	})
	s.post("/v1/shutdowns", map[string]any{"instance_id": "orders-projection-worker-7d9f4c6b8-x2kqp", "intent": "health_failure", "drain_timeout_seconds": 3600, "in_flight_count": 100000})
	for _, path := range []string{"/", "/peers/orders-projection-worker-7d9f4c6b8-x2kqp", "/?q=nobody"} {
		b.open(s.url(path))
		b.until(`document.getElementById("conn").textContent === "Live"`)
		for _, width := range []int64{320, 360, 520, 700, 861, 1024, 1161} {
			b.size(width, 800)
			assert.LessOrEqual(t, eval[int64](b, `document.documentElement.scrollWidth`), width, "%s at %d", path, width)
		}
	}
	b.size(320, 800)
	b.open(s.url("/"))
	small := eval[[]string](b, `[...document.querySelectorAll("a, button, select, input:not([type=hidden])")]
		.filter(e => e.offsetParent && !e.closest("p, .vh") && !e.classList.contains("skip"))
		.filter(e => { const r = e.getBoundingClientRect(); return r.height < 24 || r.width < 24; })
		.map(e => e.outerHTML.slice(0, 80) + " " + JSON.stringify(e.getBoundingClientRect()))`)
	assert.Empty(t, small, "targets below 24 px")
}

func TestThemesAndTimeZonesAreKept(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	_, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	require.NoError(t, err)
	s.beat("worker-1", nil)
	b.open(s.url("/"))
	ground := func() string { return eval[string](b, `getComputedStyle(document.body).backgroundColor`) }
	light := ground()
	b.do(chromedp.Click(chromedp.CSS(`.seg[aria-label="Theme"] a:nth-child(3)`)))
	b.until(`document.documentElement.dataset.theme === "dark" && location.search === ""`)
	dark := ground()
	assert.NotEqual(t, light, dark)
	b.open(s.url("/peers/worker-1"))
	assert.Equal(t, dark, ground(), "the choice was forgotten")

	b.open(s.url("/"))
	b.until(`document.querySelector(".event time")`)
	utc := eval[string](b, `document.querySelector(".event:last-child time").textContent`)
	b.do(chromedp.Click(chromedp.CSS(`.seg[aria-label^="Time zone"] a:nth-child(2)`)))
	b.until(`location.search === "?time=local"`)
	local := eval[string](b, `document.querySelector(".event:last-child time").textContent`)
	assert.NotEqual(t, utc, local)
	b.until(`document.getElementById("conn").textContent === "Live"`)
}

func TestItWorksWithoutScript(t *testing.T) {
	t.Parallel()
	s, b := startService(t), openTab(t)
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	s.keepAlive("alpha", nil)
	s.keepAlive("beta", map[string]any{"group": "billing"})
	b.open(s.url("/"))
	page := b.text()
	assert.Contains(t, page, "alpha")
	assert.Contains(t, page, "beta")
	assert.Contains(t, page, "Healthy")
	assert.Contains(t, page, "under a minute")
	assert.NotContains(t, page, "Connecting", "a promise that only a script could keep")

	b.do(chromedp.SendKeys(chromedp.CSS(`#q`), "alp"), chromedp.Click(chromedp.CSS(`button.go`)), chromedp.WaitReady(chromedp.CSS(`a.clear`)))
	rows, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("table.peers tbody")))
	require.NoError(t, err)
	assert.Contains(t, rows, "alpha")
	assert.NotContains(t, rows, "beta")
	b.do(chromedp.Click(chromedp.CSS(`.who a`)), chromedp.WaitReady(chromedp.CSS(`#part-peer`)))
	assert.Contains(t, b.text(), "Last heartbeat")
	b.do(chromedp.Click(chromedp.CSS(`.seg[aria-label="Theme"] a:nth-child(3)`)), chromedp.WaitReady(chromedp.CSS(`html[data-theme="dark"] #part-peer`)))

	// It reloads itself: a peer that comes later appears.
	b.open(s.url("/"))
	s.keepAlive("gamma", nil)
	require.Eventually(t, func() bool {
		// A look that the reload cuts short is no failure.
		text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
		return err == nil && strings.Contains(text, "gamma")
	}, 25*time.Second, 500*time.Millisecond)
}

// text is what the page says; it is read without the page's script.
func (b *tab) text() string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
	require.NoError(b.t, err)
	return text
}

func TestThePolicyStandsOnEveryAnswer(t *testing.T) {
	t.Parallel()
	s := startService(t)
	for _, path := range []string{"/", "/?part=peers", "/peers/nobody", "/static/live.js", "/nowhere"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url(path), http.NoBody)
		require.NoError(t, err)
		w, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, w.Body.Close())
		policy := w.Header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"} {
			assert.Contains(t, policy, part, path)
		}
		assert.NotContains(t, policy, "unsafe", path)
	}
}
