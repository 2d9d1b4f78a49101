package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/coordsvc/coordsvc/internal/web/views"
)

// asset is one static file, read once. zipped compresses it the first time that somebody asks; nil: not worth it.
type asset struct {
	body        []byte
	zipped      func() []byte
	contentType string
	hash        string
}

type assets struct {
	byName map[string]asset
	base   string
}

func loadAssets(files fs.FS, base string) (*assets, error) {
	a := &assets{byName: map[string]asset{}, base: base}
	names, err := fs.Glob(files, "*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(body)
		a.byName[name] = asset{
			body: body, contentType: contentType(name), hash: hex.EncodeToString(sum[:8]),
			zipped: sync.OnceValue(func() []byte { return smaller(body) }),
		}
	}
	return a, nil
}

// smaller is body compressed, or nil when that does not make it smaller.
func smaller(body []byte) []byte {
	zipped, err := compress(body, gzip.BestCompression)
	if err != nil || len(zipped) >= len(body) {
		return nil
	}
	return zipped
}

func compress(body []byte, level int) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// contentType does not ask the machine's MIME tables for the types that matter: a wrong one, with nosniff, is no page.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// url is a file's address; its content's hash makes it safe to keep for ever.
func (a *assets) url(name string) string {
	return a.base + "/static/" + name + "?v=" + a.byName[name].hash
}

func (a *assets) links() views.Assets {
	return views.Assets{
		CSS:       a.url("app.css"),
		Icon:      a.url("icon.svg"),
		IconAlert: a.url("icon-alert.svg"),
		HTMX:      a.url("htmx.min.js"),
		Morph:     a.url("idiomorph-ext.min.js"),
		Live:      a.url("live.js"),
	}
}

func (a *assets) serve(w http.ResponseWriter, r *http.Request, name string) bool {
	f, ok := a.byName[name]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == f.hash {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body, tag := f.body, `"`+f.hash+`"`
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		if zipped := f.zipped(); zipped != nil {
			body, tag = zipped, `"`+f.hash+`-gzip"`
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("ETag", tag)
	if matches(r.Header.Get("If-None-Match"), tag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		// A reader that went away is no news.
		_, _ = w.Write(body)
	}
	return true
}

// acceptsGzip reads Accept-Encoding; gzip;q=0 refuses it.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		q, found := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(params), " ", ""), "q=")
		if !found {
			return true
		}
		weight, err := strconv.ParseFloat(q, 64)
		return err == nil && weight > 0
	}
	return false
}

// matches compares If-None-Match with a tag, weakly, as RFC 9110 asks for it.
func matches(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimSpace(part)
		if part == "*" || strings.TrimPrefix(part, "W/") == tag {
			return true
		}
	}
	return false
}
