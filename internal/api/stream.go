package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	// streamBatch is how many events are fetched at once.
	streamBatch = 100
	// streamChunk is how much is gathered before it is sent: a stream holds little more than this.
	streamChunk = 64 << 10
	// streamRetry is how long a browser waits before it connects again.
	streamRetry = 2 * time.Second
)

// streams knows the open event streams, so that they can be bounded, counted and ended.
type streams struct {
	limit int

	mu    sync.Mutex
	next  uint64
	open  map[uint64]context.CancelFunc
	ended bool
	cut   uint64
}

func newStreams(limit int) *streams {
	return &streams{limit: limit, open: make(map[uint64]context.CancelFunc)}
}

// join registers a stream; leave must be called when it is over.
func (s *streams) join(ctx context.Context) (_ context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return nil, nil, errStopping
	case len(s.open) >= s.limit:
		return nil, nil, fmt.Errorf("%w: %d are open", errTooManyStreams, len(s.open))
	}
	ctx, cancel := context.WithCancel(ctx)
	id := s.next
	s.next++
	s.open[id] = cancel
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
		cancel()
	}, nil
}

func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, cancel := range s.open {
		cancel()
	}
}

func (s *streams) countCut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut++
}

func (s *streams) counts() (open int, cut uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.cut
}

// stream sends events until the client leaves, reads too slowly, or the streams are ended. It holds no queue: the
// journal is the queue, and a client that is slower than the journal's bound gets a gap.
func (a *API) stream(w http.ResponseWriter, r *http.Request, query service.EventQuery, after *service.Position) error {
	ctx, leave, err := a.streams.join(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	s := &eventStream{
		api: a, query: query, out: w, control: http.NewResponseController(w), pos: a.service.Head(),
	}
	if after != nil {
		s.pos = *after
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	w.WriteHeader(http.StatusOK)
	if err := s.run(ctx); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			a.streams.countCut()
		}
		a.log.DebugContext(r.Context(), "stream cut", "error", err)
	}
	return nil
}

// eventStream is one client's stream.
type eventStream struct {
	api     *API
	query   service.EventQuery
	out     http.ResponseWriter
	control *http.ResponseController
	// pos is the newest position that the client need not see again.
	pos  service.Position
	sent time.Time
	buf  bytes.Buffer
}

// run returns nil when the stream was ended from here or by the client, and why it was cut otherwise.
func (s *eventStream) run(ctx context.Context) error {
	fmt.Fprintf(&s.buf, "retry: %d\n", streamRetry.Milliseconds())
	s.position()
	if err := s.flush(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		entries, err := s.wait(ctx)
		if errors.Is(err, service.ErrGap) {
			entries, err = s.gap()
		}
		// No event before the next sign of life is due is no error.
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return err
		}
		for i := range entries {
			s.add(&entries[i])
			if s.buf.Len() < streamChunk {
				continue
			}
			if err := s.flush(); err != nil {
				return err
			}
		}
		if err := s.keepAlive(); err != nil {
			return err
		}
	}
	return nil
}

// keepAlive sends what is left, or a sign of life when there has been nothing for too long. Besides keeping proxies
// awake that moves the client's position on, past events that its filter hides.
func (s *eventStream) keepAlive() error {
	if s.buf.Len() == 0 {
		if s.api.opts.Now().Sub(s.sent) < s.api.opts.StreamKeepAlive {
			return nil
		}
		s.buf.WriteString(":\n")
		s.position()
	}
	return s.flush()
}

// wait asks for the next events, until the stream would have been silent for too long.
func (s *eventStream) wait(ctx context.Context) ([]service.JournalEntry, error) {
	silent := s.api.opts.StreamKeepAlive - s.api.opts.Now().Sub(s.sent)
	ctx, cancel := context.WithTimeout(ctx, max(silent, 0))
	defer cancel()
	return s.api.service.After(ctx, s.pos, streamBatch)
}

// gap tells the client that events are missing and goes on with the oldest that there is.
func (s *eventStream) gap() ([]service.JournalEntry, error) {
	oldest, err := s.api.service.Events(service.EventQuery{Page: service.Page{Limit: 1}, OldestFirst: true})
	if err != nil {
		return nil, fmt.Errorf("find the oldest event: %w", err)
	}
	fmt.Fprintf(&s.buf, "event: gap\ndata: {\"after\":\"%s\"}\n\n", s.pos)
	if len(oldest.Items) == 0 {
		s.pos = s.api.service.Head()
	}
	return oldest.Items, nil
}

// add appends an event if the client asked for it.
func (s *eventStream) add(e *service.JournalEntry) {
	s.pos = e.Position
	if !s.query.Matches(&e.Event) {
		return
	}
	fmt.Fprintf(&s.buf, "id: %s\nevent: %s\ndata: %s\n\n", e.Position, e.Event.Type, e.Raw)
}

// position appends a block without data: it sets the client's Last-Event-ID and shows nothing.
func (s *eventStream) position() {
	fmt.Fprintf(&s.buf, "id: %s\n\n", s.pos)
}

// flush sends what has been appended; it fails when the client does not read in time.
func (s *eventStream) flush() error {
	// The deadline is the server's real clock: it belongs to the connection.
	deadline := time.Now().Add(s.api.opts.StreamWriteTimeout)
	if err := s.control.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("set the write deadline: %w", err)
	}
	if _, err := s.out.Write(s.buf.Bytes()); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("flush events: %w", err)
	}
	s.buf.Reset()
	s.sent = s.api.opts.Now()
	return nil
}
