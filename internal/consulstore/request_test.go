package consulstore

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/coordsvc/coordsvc/internal/service"
)

func TestWhatConsulAnswersIsExplained(t *testing.T) {
	for _, test := range []struct {
		status       int
		body, reason string
		want         error
	}{
		{http.StatusInternalServerError, "No cluster leader", "no leader", service.ErrUnavailable},
		{http.StatusInternalServerError, "raft apply failed: leadership lost while committing log", "no leader", service.ErrUnavailable},
		{http.StatusInternalServerError, "rpc error making call: EOF", "Consul failed", service.ErrUnavailable},
		{http.StatusTooManyRequests, "Your IP is issuing too many concurrent connections: Too Many Requests", "limits the rate", service.ErrUnavailable},
		{http.StatusServiceUnavailable, "rate limit exceeded, try again later or against a different server", "limits the rate", service.ErrUnavailable},
		{http.StatusForbidden, "Permission denied: token with AccessorID 'x' lacks permission", `key_prefix "r/"`, service.ErrUnavailable},
		{http.StatusForbidden, "ACL not found", `key_prefix "r/"`, service.ErrUnavailable},
		{http.StatusRequestEntityTooLarge, "Request body(600000 bytes) too large, max size: 524288 bytes.", "txn_max_req_len", service.ErrTooLarge},
		{http.StatusBadGateway, "<html>a proxy</html>", "Consul failed", service.ErrUnavailable},
		{http.StatusConflict, `{"Errors":[{"OpIndex":0,"What":"failed kvs lookup: disk"}]}`, "refused", service.ErrUnavailable},
		{http.StatusOK, "<html>not Consul</html>", "", service.ErrUnavailable},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(test.body))
		}))
		transport := &http.Transport{}
		client, err := api.NewClient(&api.Config{Address: server.URL, HttpClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Client: client, Root: "r/", LeaderKey: "leader"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Commit(t.Context(), service.Txn{Puts: []service.Put{{Key: "k"}}})
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("%d %q: commit: %v, want %v that says %q", test.status, test.body, err, test.want, test.reason)
		}
		if h := s.Health(); h.Ready {
			t.Errorf("%d %q: health is %+v", test.status, test.body, h)
		}
		if _, _, err = s.List(t.Context(), ""); !errors.Is(err, test.want) {
			t.Errorf("%d %q: list: %v, want %v", test.status, test.body, err, test.want)
		}
		transport.CloseIdleConnections()
		server.Close()
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	client, err := api.NewClient(api.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	good := Options{Client: client, Root: "r/store/", LeaderKey: "r/leader"}
	if _, err := New(good); err != nil {
		t.Errorf("good options: %v", err)
	}
	for field, spoil := range map[string]func(*Options){
		"Client":    func(o *Options) { o.Client = nil },
		"Root":      func(o *Options) { o.Root = "no-slash" },
		"/":         func(o *Options) { o.Root = "/r/" },
		"LeaderKey": func(o *Options) { o.LeaderKey = "r/store/leader" },
		"MaxChanges": func(o *Options) {
			o.MaxChanges = minChanges - 1
		},
		"Timeout": func(o *Options) { o.Timeout = -time.Second },
	} {
		options := good
		spoil(&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
