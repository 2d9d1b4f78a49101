package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
)

// keptBuffer is the largest body buffer that is kept for the next request.
const keptBuffer = 64 << 10

// bodies reads request bodies into buffers that are used again, and decodes them.
type bodies struct {
	limit, batchLimit int64
	buffers           sync.Pool
}

// bodyBuffer is what one request needs to read its body; nothing decoded may point into it.
type bodyBuffer struct {
	data   []byte
	reader reader
}

func newBodies(limit, batchLimit int64) *bodies {
	return &bodies{
		limit: limit, batchLimit: batchLimit,
		buffers: sync.Pool{New: func() any { return &bodyBuffer{data: make([]byte, 0, 1024)} }},
	}
}

func (b *bodies) take() *bodyBuffer {
	buf, ok := b.buffers.Get().(*bodyBuffer)
	if !ok {
		return &bodyBuffer{}
	}
	return buf
}

func (b *bodies) put(buf *bodyBuffer) {
	if cap(buf.data) > keptBuffer {
		return
	}
	buf.data = buf.data[:0]
	buf.reader = reader{keys: buf.reader.keys[:0]}
	b.buffers.Put(buf)
}

// Bind implements echo.Binder for the strict server, which binds nothing but bodies with it. An empty body is io.EOF,
// as the generated code expects of a body that may be left out.
func (b *bodies) Bind(into any, c echo.Context) error {
	buf := b.take()
	defer b.put(buf)
	if err := b.read(c.Response().Writer, c.Request(), b.limit, buf); err != nil {
		return err
	}
	if len(buf.data) == 0 {
		return fmt.Errorf("%w: %w", &brokenError{detail: "the body is empty; send a JSON object"}, io.EOF)
	}
	return buf.reader.decode(buf.data, into)
}

// read takes the whole body, at most limit bytes of it, into buf.
func (b *bodies) read(w http.ResponseWriter, r *http.Request, limit int64, buf *bodyBuffer) error {
	if r.ContentLength == 0 {
		return nil
	}
	if err := declaredJSON(r.Header); err != nil {
		return err
	}
	body := r.Body
	if r.ContentLength > limit || r.ContentLength < 0 {
		// Besides counting, this tells the server to close the connection in a way that lets the client read the answer.
		body = http.MaxBytesReader(innermost(w), r.Body, limit)
	}
	if r.ContentLength > limit {
		_, _ = io.Copy(io.Discard, body)
		return &http.MaxBytesError{Limit: limit}
	}
	// A declared length is only believed so far, and the rest when it arrives.
	if n := min(r.ContentLength, keptBuffer); n > int64(cap(buf.data)) {
		buf.data = make([]byte, 0, n)
	}
	for {
		if len(buf.data) == cap(buf.data) {
			buf.data = append(buf.data, 0)[:len(buf.data)]
		}
		n, err := body.Read(buf.data[len(buf.data):cap(buf.data)])
		buf.data = buf.data[:len(buf.data)+n]
		switch {
		case err == nil && int64(len(buf.data)) != r.ContentLength:
			continue
		case err == nil || errors.Is(err, io.EOF):
			return nil
		}
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return tooLarge
		}
		return &brokenError{detail: "the body could not be read to its end"}
	}
}

// innermost finds the server's own writer, the only one that MaxBytesReader can tell of a body that is too large.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = outer.Unwrap()
	}
}

// mediaError says that a body is not declared as JSON.
type mediaError struct{ detail string }

func (e *mediaError) Error() string { return e.detail }

func declaredJSON(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &mediaError{fmt.Sprintf("Send the body as it is, not with Content-Encoding %q.", encoding)}
	}
	declared := h.Get("Content-Type")
	if declared == "application/json" {
		return nil
	}
	if declared == "" {
		return &mediaError{"Send Content-Type: application/json."}
	}
	kind, params, err := mime.ParseMediaType(declared)
	if err != nil || kind != "application/json" && (!strings.HasPrefix(kind, "application/") || !strings.HasSuffix(kind, "+json")) {
		return &mediaError{fmt.Sprintf("Send Content-Type: application/json, not %q.", declared)}
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return &mediaError{fmt.Sprintf("Send the body in UTF-8, not in %q.", charset)}
	}
	return nil
}
