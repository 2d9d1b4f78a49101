package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/web/views"
)

// contentSecurityPolicy allows this server's own files; nothing inline, nothing from elsewhere, no framing.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// headerNow carries the server's clock, in milliseconds since 1970: a countdown must not follow a browser's wrong clock.
const headerNow = "X-Server-Now"

// handler routes by the escaped path, because an id may hold a slash.
func (s *site) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.secure(w.Header())
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			s.fail(w, r, http.StatusMethodNotAllowed, "This page can only be read", "The method "+r.Method+" is not known here.")
			return
		}
		p := r.URL.EscapedPath()
		if rest, ok := strings.CutPrefix(p, s.BasePath); ok && s.BasePath != "" && (rest == "" || rest[0] == '/') {
			p = rest
		}
		s.route(w, r, p)
	})
}

func (s *site) route(w http.ResponseWriter, r *http.Request, p string) {
	switch {
	case p == "" || p == "/":
		s.overview(w, r)
	case p == "/live":
		s.live(w, r)
	case strings.HasPrefix(p, "/peers/") && len(p) > len("/peers/"):
		id, err := url.PathUnescape(strings.TrimPrefix(p, "/peers/"))
		if err != nil {
			s.fail(w, r, http.StatusBadRequest, "This address cannot be read", "The peer's id is not percent-encoded as it must be.")
			return
		}
		s.peer(w, r, id)
	case strings.HasPrefix(p, "/static/") && s.assets.serve(w, r, strings.TrimPrefix(p, "/static/")):
	default:
		s.fail(w, r, http.StatusNotFound, "There is no such page", "The address may be mistyped.")
	}
}

func (s *site) secure(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// render sends a component with an ETag over its bytes, or 304 when the reader has them.
func (s *site) render(w http.ResponseWriter, r *http.Request, status int, c templ.Component) {
	var b bytes.Buffer
	if err := c.Render(r.Context(), &b); err != nil {
		if !errors.Is(err, context.Canceled) {
			s.Logger.Error("rendering failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		}
		http.Error(w, "rendering failed", http.StatusInternalServerError)
		return
	}
	s.send(w, r, status, b.Bytes())
}

// send compresses whole pages only: parts are fetched every second by every reader, and are small.
func (s *site) send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	sum := sha256.Sum256(body)
	tag := hex.EncodeToString(sum[:16])
	zip := !r.URL.Query().Has(paramPart) && acceptsGzip(r.Header.Get("Accept-Encoding"))
	if zip {
		tag += "-gzip"
	}
	tag = `"` + tag + `"`
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Vary", "Accept-Encoding, Cookie")
	h.Set(headerNow, strconv.FormatInt(s.Now().UnixMilli(), 10))
	if status == http.StatusOK && matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	if zip {
		if zipped, err := compress(body, gzip.BestSpeed); err == nil {
			h.Set("Content-Encoding", "gzip")
			body = zipped
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		// A reader that went away is no news.
		_, _ = w.Write(body)
	}
}

// fail renders an error page, or a problem (RFC 9457) for a client that does not read HTML.
func (s *site) fail(w http.ResponseWriter, r *http.Request, status int, title, text string) {
	if !readsHTML(r) {
		s.problem(w, r, status, title, text)
		return
	}
	v := view{route: "/"}
	page := s.page(r, v, s.Service.Summary(), title+" · coordsvc")
	page.RefreshOn = false
	s.render(w, r, status, views.FailurePage(views.Failure{Page: page, Status: status, Title: title, Text: text}))
}

// failWith maps an error of the service to its page.
func (s *site) failWith(w http.ResponseWriter, r *http.Request, err error) {
	var invalid *coordination.InvalidError
	switch {
	case errors.As(err, &invalid):
		s.fail(w, r, http.StatusBadRequest, "This address asks for something that cannot be", invalid.Error())
	case errors.Is(err, coordination.ErrNotFound):
		s.fail(w, r, http.StatusNotFound, "No such peer",
			"It was never heard, or was forgotten: a peer that stays away is forgotten after a while.")
	default:
		s.Logger.Error("page failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		s.fail(w, r, http.StatusInternalServerError, "This page could not be made", "The service's log says why.")
	}
}

func readsHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func (s *site) problem(w http.ResponseWriter, r *http.Request, status int, title, text string) {
	body, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", title, status, text})
	if err != nil {
		s.Logger.Error("problem failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		http.Error(w, title, status)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		// A reader that went away is no news.
		_, _ = w.Write(body)
	}
}
