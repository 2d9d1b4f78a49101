package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// block is one block of a stream: its fields, comments under ":".
type block map[string]string

// listener reads one stream.
type listener struct {
	t      *testing.T
	cancel context.CancelFunc
	body   io.ReadCloser
	lines  *bufio.Scanner
}

// listen opens a stream and reads the block that begins each.
func (h *harness) listen(query string, header ...string) *listener {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Second)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/v1/events"+query, http.NoBody)
	require.NoError(h.t, err)
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := h.client.Do(r) //nolint:bodyclose // close closes it
	require.NoError(h.t, err)
	require.Equal(h.t, http.StatusOK, response.StatusCode)
	require.Equal(h.t, "text/event-stream", response.Header.Get("Content-Type"))
	l := &listener{t: h.t, cancel: cancel, body: response.Body, lines: bufio.NewScanner(response.Body)}
	h.t.Cleanup(l.close)
	first := l.next()
	assert.Equal(h.t, "2000", first["retry"])
	assert.NotEmpty(h.t, first["id"])
	return l
}

func (l *listener) close() {
	l.cancel()
	_ = l.body.Close()
}

// next reads one block; nil at the stream's end.
func (l *listener) next() block {
	l.t.Helper()
	b := block{}
	for l.lines.Scan() {
		line := l.lines.Text()
		if line == "" {
			return b
		}
		name, val, _ := strings.Cut(line, ":")
		if name == "" {
			name = ":"
		}
		b[name] = strings.TrimPrefix(val, " ")
	}
	return nil
}

// event reads on to the next block with data.
func (l *listener) event() (block, coordination.Event) {
	l.t.Helper()
	for {
		b := l.next()
		require.NotNil(l.t, b, "the stream ended: %v", l.lines.Err())
		if b["data"] == "" {
			continue
		}
		var e coordination.Event
		require.NoError(l.t, json.Unmarshal([]byte(b["data"]), &e), b["data"])
		return b, e
	}
}

func (h *harness) beat(id string) {
	h.t.Helper()
	h.want(200, "POST", "/v1/heartbeats", map[string]any{"instance_id": id})
}

func TestStreamSendsWhatHappensNextAndOnlyThat(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.beat("before")
	h.awaitEvent(coordination.EventPeerJoined)
	l := h.listen("?type=peer.*")
	h.beat("after")
	b, e := l.event()
	assert.Equal(t, "peer.joined", b["event"])
	assert.Equal(t, "after", e.Data.InstanceID)
	assert.Regexp(t, `^\d+-\d+$`, b["id"])
}

func TestStreamResumesAfterTheLastEventID(t *testing.T) {
	t.Parallel()
	h := start(t)
	l := h.listen("?type=peer.joined")
	h.beat("one")
	first, _ := l.event()
	l.close()
	h.beat("two")
	h.beat("three")

	for name, again := range map[string]*listener{
		"header":           h.listen("?type=peer.joined", "Last-Event-ID", first["id"]),
		"query":            h.listen("?type=peer.joined&last_event_id=" + first["id"]),
		"header over both": h.listen("?type=peer.joined&last_event_id=0-0", "Last-Event-ID", first["id"]),
	} {
		_, e := again.event()
		assert.Equal(t, "two", e.Data.InstanceID, name)
		_, e = again.event()
		assert.Equal(t, "three", e.Data.InstanceID, name)
	}
}

func TestPageAndStreamTogetherMissNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.beat("one")
	h.awaitEvent(coordination.EventPeerJoined)
	var page struct {
		Items []coordination.Event
		Head  string
	}
	h.want(200, "GET", "/v1/events?type=peer.joined", nil).decode(t, &page)
	require.Len(t, page.Items, 1)
	h.beat("two")
	_, e := h.listen("?type=peer.joined&last_event_id=" + page.Head).event()
	assert.Equal(t, "two", e.Data.InstanceID)
}

func TestStreamFilters(t *testing.T) {
	t.Parallel()
	h := start(t)
	byGroup := h.listen("?group=orders")
	byPeer := h.listen("?type=peer.joined&instance_id=wanted")
	h.beat("unwanted")
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"in-orders","group":"orders"}`)
	h.beat("wanted")
	_, e := byGroup.event()
	assert.Equal(t, "in-orders", e.Data.InstanceID)
	_, e = byPeer.event()
	assert.Equal(t, "wanted", e.Data.InstanceID)
}

func TestASilentStreamIsKeptAliveAndMovesItsPositionOn(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{api: func(o *Options) { o.StreamKeepAlive = 20 * time.Millisecond }})
	l := h.listen("?type=orphan.*")
	h.beat("hidden by the filter")
	h.awaitEvent(coordination.EventPeerJoined)
	head := h.service.Head().String()
	for {
		b := l.next()
		require.NotNil(t, b)
		assert.Empty(t, b["data"])
		_, comment := b[":"]
		assert.True(t, comment)
		if b["id"] == head {
			return
		}
	}
}

func TestPositionsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, id := range []string{"x", "1", "1-", "-1", "1-x", "1-2-3", "99999999999999999999-1"} {
		p := h.want(422, "GET", "/v1/events?last_event_id="+id, nil, "Accept", "text/event-stream").problem(t)
		assert.Equal(t, "/last_event_id", p.Errors[0].Pointer)
		p = h.want(422, "GET", "/v1/events", nil, "Accept", "text/event-stream", "Last-Event-ID", id).problem(t)
		assert.Equal(t, "/Last-Event-ID", p.Errors[0].Pointer)
	}
}

func TestAStreamThatIsTooFarBehindIsToldOfTheGap(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{service: func(o *service.Options) { o.JournalSize = 3 }})
	l := h.listen("?type=peer.joined")
	h.beat("first")
	first, _ := l.event()
	l.close()
	l = h.listen("?type=peer.joined")
	for i := range 10 {
		h.beat(fmt.Sprintf("peer-%d", i))
		l.event()
	}
	l.close()

	l = h.listen("?type=peer.joined", "Last-Event-ID", first["id"])
	b := l.next()
	require.NotNil(t, b)
	assert.Equal(t, "gap", b["event"])
	assert.JSONEq(t, `{"after":"`+first["id"]+`"}`, b["data"])
	_, e := l.event()
	assert.NotEqual(t, "peer-0", e.Data.InstanceID)
	for e.Data.InstanceID != "peer-9" {
		_, e = l.event()
	}
}

func TestEndStreamsEndsAllAndRefusesMore(t *testing.T) {
	t.Parallel()
	h := start(t)
	l := h.listen("")
	open, _ := h.api.Streams()
	assert.Equal(t, 1, open)
	h.api.EndStreams()
	for l.next() != nil { //nolint:revive // read to the end
	}
	require.NoError(t, l.lines.Err(), "the stream ends in order")
	r := h.want(503, "GET", "/v1/events", nil, "Accept", "text/event-stream")
	assert.Equal(t, "1", r.header.Get("Retry-After"))
	h.want(200, "GET", "/v1/events", nil)
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{api: func(o *Options) { o.MaxStreams = 1 }})
	h.listen("")
	r := h.want(429, "GET", "/v1/events", nil, "Accept", "text/event-stream")
	assert.Equal(t, "limit-reached", slug(r.problem(t)))
}

func TestAClientThatDoesNotReadIsCut(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{
		api: func(o *Options) { o.StreamWriteTimeout = 50 * time.Millisecond },
		server: func(s *httptest.Server) {
			s.Config.ConnState = func(c net.Conn, state http.ConnState) {
				if tcp, ok := c.(*net.TCPConn); ok && state == http.StateNew {
					assert.NoError(t, tcp.SetWriteBuffer(4096))
				}
			}
		},
	})
	// More than the kernel's small buffers hold for a client that does not read.
	subscriptions := make([]string, 250)
	for i := range subscriptions {
		subscriptions[i] = fmt.Sprintf("%0250d", i)
	}
	for i := range 10 {
		h.want(202, "POST", "/v1/shutdowns", map[string]any{
			"instance_id": fmt.Sprintf("peer-%d", i), "intent": "graceful", "subscriptions": subscriptions,
		})
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	tcp, ok := conn.(*net.TCPConn)
	require.True(t, ok)
	require.NoError(t, tcp.SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nLast-Event-ID: 0-0\r\n\r\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, cut := h.api.Streams()
		return cut == 1
	}, 10*time.Second, 5*time.Millisecond)
	h.awaitNoStreams()
}

// awaitNoStreams waits for the handlers to leave; nothing tells of that but the count.
func (h *harness) awaitNoStreams() {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		open, _ := h.api.Streams()
		return open == 0
	}, 10*time.Second, time.Millisecond)
}

func TestAClientThatLeavesIsNotCounted(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.listen("").close()
	h.awaitNoStreams()
	_, cut := h.api.Streams()
	assert.Zero(t, cut)
}

func TestWhoWantsAStream(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"":                                    false,
		"*/*":                                 false,
		"application/json":                    false,
		"text/event-stream":                   true,
		"Text/Event-Stream; q=0.9":            true,
		"text/event-stream;q=0":               false,
		"text/event-stream, application/json": true,
		"application/json, text/event-stream": false,
		"text/html, text/event-stream":        true,
	}
	for accept, want := range tests {
		assert.Equal(t, want, wantsStream([]string{accept}), accept)
	}
	assert.True(t, wantsStream([]string{"text/html", "text/event-stream"}))
}

func TestStreamsAreRefusedWhenFullOrEnded(t *testing.T) {
	t.Parallel()
	s := newStreams(1)
	_, leave, err := s.join(t.Context())
	require.NoError(t, err)
	_, _, err = s.join(t.Context())
	require.ErrorIs(t, err, errTooManyStreams)
	leave()
	s.end()
	_, _, err = s.join(t.Context())
	require.ErrorIs(t, err, errStopping)
}
