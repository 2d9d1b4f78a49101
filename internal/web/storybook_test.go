package web

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var (
	update    = flag.Bool("update", false, "write the goldens anew")
	storybook = flag.String("storybook", "", "serve the stories on this address instead of testing, like 127.0.0.1:8099")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *storybook != "" {
		panic(serveStories(*storybook))
	}
	goleak.VerifyTestMain(m)
}

// story is one state of a page.
type story struct {
	name, path string
	stage      func() *stage
}

var stories = []story{
	{"empty", "/", func() *stage { return newStage().settle() }},
	{"rollout", "/", rollout},
	{"troubled", "/", troubled},
	{"leaderless", "/", leaderless},
	{"hostile", "/", hostile},
	{"filtered", "/?status=draining&group=orders", rollout},
	{"nothing-matches", "/?q=nobody", rollout},
	{"unknown-group", "/?group=elsewhere", rollout},
	{"paused-local", "/?refresh=off&time=local", rollout},
	{"resolved-too", "/?orphans=all", rollout},
	{"page-1", "/", func() *stage { s := rollout(); s.pageSize = 5; return s }},
	{"page-2", "/?cursor=page2", func() *stage { s := rollout(); s.pageSize = 5; return s }},
	{"peer-draining", "/peers/orders-worker-7d9f4-9bbrt?group=orders", rollout},
	{"peer-overdue", "/peers/orders-worker-7d9f4-2xkqp?group=orders", rollout},
	{"peer-unknown", "/peers/shipping-poller-e?group=shipping", rollout},
	{"peer-hostile", "/peers/%3Cscript%3Ealert(1)%3C%2Fscript%3E?group=%3Cb%3Eg%3C%2Fb%3E", hostile},
	{"peer-missing", "/peers/nobody", rollout},
	{"bad-status", "/?status=asleep", rollout},
	{"no-such-page", "/nowhere", rollout},
}

func site1(t *testing.T, s *stage) http.Handler {
	t.Helper()
	h, err := New(Options{Service: s, Now: func() time.Time { return now }, Version: "1.2.3", Identity: "coordsvc-0"})
	require.NoError(t, err)
	return h
}

func get(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.Host = "127.0.0.1:8080"
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestEveryPageStateIsAsItsGolden(t *testing.T) {
	for _, st := range stories {
		t.Run(st.name, func(t *testing.T) {
			body := readable(get(t, site1(t, st.stage()), st.path).Body.Bytes())
			file := filepath.Join("testdata", "golden", st.name+".html")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, body, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "run with -update to write it")
			assert.Equal(t, string(want), string(body))
		})
	}
}

// serveStories shows every state in a browser, with the real files: /<story>/ is its base path.
func serveStories(addr string) error {
	mux := http.NewServeMux()
	var index strings.Builder
	index.WriteString("<!DOCTYPE html><title>stories</title>")
	for _, st := range stories {
		h, err := New(Options{
			Service: st.stage(), Now: func() time.Time { return now }, Version: "1.2.3", Identity: "coordsvc-0", BasePath: "/" + st.name,
		})
		if err != nil {
			return err
		}
		mux.Handle("/"+st.name+"/", h)
		index.WriteString("<p><a href='/" + st.name + st.path + "'>" + st.name + "</a>")
	}
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(index.String()))
	})
	srv := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return srv.ListenAndServe()
}
