package web

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/service"
)

func request(t *testing.T, method, path string) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// listener reads one stream.
type listener struct {
	*bufio.Reader
	response *http.Response
}

func listen(t *testing.T, ctx context.Context, url string) *listener { //nolint:revive // t first reads better in tests
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/live", http.NoBody)
	require.NoError(t, err)
	w, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Body.Close() })
	return &listener{bufio.NewReader(w.Body), w}
}

// next is the next event, as "name data".
func (l *listener) next(t *testing.T) string {
	t.Helper()
	var name, data string
	for {
		line, err := l.ReadString('\n')
		require.NoError(t, err)
		switch line = strings.TrimRight(line, "\n"); {
		case line == "":
			return name + " " + data
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		}
	}
}

func liveServer(t *testing.T, o Options) *httptest.Server {
	t.Helper()
	h, err := New(o)
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return srv
}

func TestAStreamGreetsWithTheClockAndCarriesScopesOnly(t *testing.T) {
	s := rollout()
	srv := liveServer(t, Options{Service: s, Now: func() time.Time { return now }})
	l := listen(t, t.Context(), srv.URL)
	assert.Equal(t, http.StatusOK, l.response.StatusCode)
	assert.Equal(t, "text/event-stream", l.response.Header.Get("Content-Type"))
	assert.Equal(t, "no-store", l.response.Header.Get("Cache-Control"))
	assert.Equal(t, contentSecurityPolicy, l.response.Header.Get("Content-Security-Policy"))
	assert.Equal(t, `hello {"now":1773489791000}`, l.next(t))
	s.notices <- service.Invalidation{Scope: "peers", Revision: 12}
	assert.Equal(t, `invalidate {"scope":"peers","revision":12}`, l.next(t))
}

func TestABurstIsOneWritePerScope(t *testing.T) {
	notices := make(chan service.Invalidation, 8)
	for i := range 3 {
		notices <- service.Invalidation{Scope: "peers", Revision: uint64(20 + i)}
		notices <- service.Invalidation{Scope: "orphans", Revision: uint64(30 + i)}
	}
	got := string(batch(service.Invalidation{Scope: "peers", Revision: 19}, notices))
	assert.Equal(t, "event: invalidate\ndata: {\"scope\":\"peers\",\"revision\":22}\n\n"+
		"event: invalidate\ndata: {\"scope\":\"orphans\",\"revision\":32}\n\n", got)
}

func TestStreamsAreLimitedAndTheirPlaceIsGivenBack(t *testing.T) {
	srv := liveServer(t, Options{Service: rollout(), MaxStreams: 1})
	ctx, cancel := context.WithCancel(t.Context())
	first := listen(t, ctx, srv.URL)
	assert.Contains(t, first.next(t), "hello")

	second := listen(t, t.Context(), srv.URL)
	assert.Equal(t, http.StatusServiceUnavailable, second.response.StatusCode)
	assert.NotEmpty(t, second.response.Header.Get("Retry-After"))

	cancel()
	assert.Eventually(t, func() bool {
		third := listen(t, t.Context(), srv.URL)
		return third.response.StatusCode == http.StatusOK
	}, 5*time.Second, 20*time.Millisecond)
}

func TestStreamsEndWhenTheSiteStops(t *testing.T) {
	stopping := make(chan struct{})
	srv := liveServer(t, Options{Service: rollout(), Stopping: stopping})
	l := listen(t, t.Context(), srv.URL)
	assert.Contains(t, l.next(t), "hello")
	close(stopping)
	_, err := l.ReadString('\n')
	assert.Error(t, err, "the stream goes on")
}

func TestHeadOfTheStreamAnswersAndEnds(t *testing.T) {
	w := serve(site1(t, rollout()), request(t, http.MethodHead, "/live"))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
}
