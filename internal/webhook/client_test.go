package webhook

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sendOnce(t *testing.T, url string, adapt func(*Options)) (attempt, verdict) {
	t.Helper()
	opts := Options{Timeout: 300 * time.Millisecond, DenyNetworks: nil}
	if adapt != nil {
		adapt(&opts)
	}
	opts = opts.withDefaults()
	c := newClient(&opts, newGuard(opts.AllowNetworks, opts.DenyNetworks))
	t.Cleanup(c.close)
	a, v, err := c.send(t.Context(), &endpoint{URL: url, Secret: newSecret()}, &delivery{ID: "msg_1", Event: []byte(`{}`)})
	require.NoError(t, err)
	return a, v
}

func TestAnswersAreJudged(t *testing.T) {
	t.Parallel()
	answer := func(status int, header ...string) func(int, http.ResponseWriter, *http.Request) {
		return func(_ int, w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			if status != http.StatusNoContent {
				_, _ = io.WriteString(w, "said")
			}
		}
	}
	for name, c := range map[string]struct {
		script  func(int, http.ResponseWriter, *http.Request)
		status  int
		verdict verdict
		errText string
	}{
		"200":                     {answer(200), 200, verdict{outcome: OutcomeSuccess, success: true}, ""},
		"204":                     {answer(204), 204, verdict{outcome: OutcomeSuccess, success: true}, ""},
		"299":                     {answer(299), 299, verdict{outcome: OutcomeSuccess, success: true}, ""},
		"300":                     {answer(300), 300, verdict{outcome: OutcomeStatus}, "redirects are not followed"},
		"400":                     {answer(400), 400, verdict{outcome: OutcomeStatus}, "answered 400"},
		"410":                     {answer(410), 410, verdict{outcome: OutcomeStatus, gone: true}, "answered 410"},
		"429, seconds":            {answer(429, "Retry-After", "7"), 429, verdict{outcome: OutcomeStatus, retryAfter: 7 * time.Second}, "429"},
		"503, beyond the cap":     {answer(503, "Retry-After", "86400"), 503, verdict{outcome: OutcomeStatus, retryAfter: time.Hour}, "503"},
		"500 has no Retry-After":  {answer(500, "Retry-After", "7"), 500, verdict{outcome: OutcomeStatus}, "500"},
		"503 without Retry-After": {answer(503), 503, verdict{outcome: OutcomeStatus}, "503"},
	} {
		rc := newReceiver(t, c.script)
		a, v := sendOnce(t, rc.URL, nil)
		assert.Equal(t, c.status, a.Status, name)
		assert.Equal(t, c.verdict, v, name)
		assert.Equal(t, c.verdict.retryAfter, a.RetryAfter, name)
		if c.errText == "" {
			assert.Empty(t, a.Error, name)
		} else {
			assert.Contains(t, a.Error, c.errText, name)
		}
		if c.status != 204 {
			assert.Equal(t, "said", a.Response, name)
		}
		assert.Positive(t, a.Duration, name)
	}
}

func TestRetryAfterAsDate(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, v := sendOnce(t, rc.URL, nil)
	assert.InDelta(t, 60, v.retryAfter.Seconds(), 2)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	target := newReceiver(t, nil)
	rc := newReceiver(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	})
	a, v := sendOnce(t, rc.URL, nil)
	assert.Equal(t, http.StatusTemporaryRedirect, a.Status)
	assert.False(t, v.success)
	assert.Empty(t, target.requests)
}

func TestNoAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	a, v := sendOnce(t, newReceiver(t, hang).URL, nil)
	assert.Equal(t, OutcomeTimeout, v.outcome)
	assert.Equal(t, "no answer within 300ms", a.Error)
	assert.GreaterOrEqual(t, a.Duration, 300*time.Millisecond)

	closing := newReceiver(t, func(_ int, _ http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	a, v = sendOnce(t, closing.URL, nil)
	assert.Equal(t, OutcomeError, v.outcome)
	assert.Contains(t, a.Error, "EOF")
	assert.NotContains(t, a.Error, closing.URL, "the URL may carry credentials")

	gone := newReceiver(t, nil)
	gone.Close()
	a, v = sendOnce(t, gone.URL, nil)
	assert.Equal(t, OutcomeError, v.outcome)
	assert.Contains(t, a.Error, "connection refused")
}

func TestStatusCountsThoughTheBodyDribbles(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	a, v := sendOnce(t, rc.URL, nil)
	assert.True(t, v.success)
	assert.Equal(t, "first", a.Response)
	assert.Less(t, a.Duration, 2*time.Second)
}

func TestAnswerIsReadBounded(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		for range 64 << 10 {
			if _, err := io.WriteString(w, strings.Repeat("é", 1<<10)); err != nil {
				return
			}
		}
	})
	a, _ := sendOnce(t, rc.URL, nil)
	assert.Equal(t, strings.Repeat("é", excerptBytes/2), a.Response)
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	connections := map[string]bool{}
	opts := Options{}.withDefaults()
	c := newClient(&opts, newGuard(nil, nil))
	t.Cleanup(c.close)
	inner := rc.Config.Handler
	rc.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		inner.ServeHTTP(w, r)
	})
	for range 5 {
		_, v, err := c.send(t.Context(), &endpoint{URL: rc.URL, Secret: newSecret()}, &delivery{ID: "msg_1", Event: []byte(`{}`)})
		require.NoError(t, err)
		require.True(t, v.success)
	}
	assert.Len(t, connections, 1)
}

func TestDialRefusesAfterDNS(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	name := strings.Replace(rc.URL, "127.0.0.1", "localhost", 1)
	_, v := sendOnce(t, name, nil)
	require.True(t, v.success, "loopback may be called")
	a, v := sendOnce(t, name, func(o *Options) { o.DenyNetworks = parsePrefixes("127.0.0.0/8", "::1/128") })
	assert.Equal(t, OutcomeRefused, v.outcome)
	assert.Contains(t, a.Error, "may not be called")
	a, v = sendOnce(t, "http://169.254.169.254/latest/meta-data", nil)
	assert.Equal(t, OutcomeRefused, v.outcome)
	assert.Contains(t, a.Error, "169.254.169.254 may not be called")
	assert.Len(t, rc.requests, 1)
}

func TestEnvironmentProxyIsIgnored(t *testing.T) {
	proxy := newReceiver(t, nil)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	opts := Options{}.withDefaults()
	c := newClient(&opts, newGuard(nil, nil))
	t.Cleanup(c.close)
	transport, ok := c.http.Transport.(*http.Transport)
	require.True(t, ok)
	assert.Nil(t, transport.Proxy)
}

func TestConfiguredProxyIsUsed(t *testing.T) {
	t.Parallel()
	proxy := newReceiver(t, nil)
	_, v := sendOnce(t, "http://receiver.invalid/hook", func(o *Options) { o.Proxy = mustURL(t, proxy.URL) })
	assert.True(t, v.success)
	assert.Equal(t, "http://receiver.invalid/hook", proxy.next(t).path)
}

func TestCutAttemptWasNotMade(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, hang)
	opts := Options{}.withDefaults()
	c := newClient(&opts, newGuard(nil, nil))
	t.Cleanup(c.close)
	ctx, cut := context.WithCancelCause(t.Context())
	go func() {
		<-rc.requests
		cut(errCut)
	}()
	_, v, err := c.send(ctx, &endpoint{URL: rc.URL, Secret: newSecret()}, &delivery{ID: "msg_1", Event: []byte(`{}`)})
	require.ErrorIs(t, err, errCut)
	assert.Equal(t, OutcomeCut, v.outcome)
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain ünïcode":     "plain ünïcode",
		"a\nb\tc\x00d\x1b[": `a\nb\tc\x00d\x1b[`,
		"\u202eevil\u200b":  `\u202eevil\u200b`,
		"\u2028x\u0085":     `\u2028x\u0085`,
		"bad\xffutf8":       `bad\xffutf8`,
		"kept \ufffd":       "kept \ufffd",
		"it's":              "it's",
	} {
		assert.Equal(t, want, escape(in, 100))
	}
	assert.Equal(t, "aé", escape("aéé", 4), "a split rune is dropped")
	assert.Equal(t, "éé", escape("éé", 4))
}
