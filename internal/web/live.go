package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	// pingEvery is how often a silent stream says that it is alive; the page takes a longer silence for a loss.
	pingEvery = 10 * time.Second
	// gather is how long the stream collects notices, so that a burst is one write.
	gather = 20 * time.Millisecond
	// pace is the pause between two writes: under load a page hears of a scope at most so often.
	pace = 400 * time.Millisecond
	// writeTimeout cuts off a reader that does not read.
	writeTimeout = 10 * time.Second
)

// live streams invalidations as server-sent events: `hello` and `ping` carry the server's clock, `invalidate` a scope
// and a revision.
func (s *site) live(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many live streams", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	// nginx buffers a stream otherwise.
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return
	}
	out := &stream{w: w, rc: http.NewResponseController(w), now: s.Now}
	if err := out.send(out.clock("hello")); err != nil {
		return
	}
	if err := s.follow(r.Context(), out); err != nil {
		s.Logger.Debug("live stream ended", slog.Any("error", err))
	}
}

// follow writes until the reader goes, the service ends the feed, or the site stops.
func (s *site) follow(parent context.Context, out *stream) error {
	ctx, cancel := context.WithCancel(parent)
	notices := make(chan service.Invalidation)
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- s.Service.Invalidations(ctx, func(i service.Invalidation) error {
			select {
			case notices <- i:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	// The feed must have let go before the handler returns.
	defer func() {
		cancel()
		for range ended { // until it is closed
		}
	}()

	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Stopping:
			return nil
		case err := <-ended:
			return err
		case <-ping.C:
			if err := out.send(out.clock("ping")); err != nil {
				return err
			}
		case first := <-notices:
			if err := out.send(batch(first, notices)); err != nil {
				return err
			}
			if !pause(ctx, s.Stopping, pace) {
				return nil
			}
		}
	}
}

// batch collects what follows within a moment, newest revision per scope, in order of arrival.
func batch(first service.Invalidation, notices <-chan service.Invalidation) []byte {
	scopes := []string{first.Scope}
	revisions := map[string]uint64{first.Scope: first.Revision}
	timer := time.NewTimer(gather)
	defer timer.Stop()
	for {
		select {
		case i := <-notices:
			if _, seen := revisions[i.Scope]; !seen {
				scopes = append(scopes, i.Scope)
			}
			revisions[i.Scope] = max(revisions[i.Scope], i.Revision)
		case <-timer.C:
			var b []byte
			for _, scope := range scopes {
				b = append(b, invalidation(scope, revisions[scope])...)
			}
			return b
		}
	}
}

func invalidation(scope string, revision uint64) []byte {
	name, err := json.Marshal(scope)
	if err != nil {
		return nil
	}
	b := append([]byte("event: invalidate\ndata: {\"scope\":"), name...)
	b = append(b, `,"revision":`...)
	b = strconv.AppendUint(b, revision, 10)
	return append(b, "}\n\n"...)
}

// pause waits, and reports whether there is a reason to go on.
func pause(ctx context.Context, stopping <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-stopping:
		return false
	}
}

type stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	now func() time.Time
}

func (o *stream) clock(event string) []byte {
	b := append([]byte("event: "+event+"\ndata: {\"now\":"), strconv.FormatInt(o.now().UnixMilli(), 10)...)
	return append(b, "}\n\n"...)
}

func (o *stream) send(b []byte) error {
	// A writer without deadlines (a test's recorder) is written to without one.
	_ = o.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.rc.Flush()
}
