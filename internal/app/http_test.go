package app

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOnlyTrustedProxiesSayForWhomTheyAsk(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for name, c := range map[string]struct {
		remote     string
		forwarded  []string
		host       string
		wantRemote string
		wantHost   string
	}{
		"nobody trusted":           {remote: "192.0.2.1:99", forwarded: []string{"198.51.100.1"}, host: "evil", wantRemote: "192.0.2.1:99", wantHost: "service"},
		"one proxy":                {remote: "10.0.0.1:99", forwarded: []string{"198.51.100.1"}, host: "public", wantRemote: "198.51.100.1:0", wantHost: "public"},
		"two proxies":              {remote: "10.0.0.1:99", forwarded: []string{"198.51.100.1, 10.0.0.2"}, wantRemote: "198.51.100.1:0", wantHost: "service"},
		"a client that lies":       {remote: "10.0.0.1:99", forwarded: []string{"127.0.0.1", "198.51.100.1"}, wantRemote: "198.51.100.1:0", wantHost: "service"},
		"nonsense":                 {remote: "10.0.0.1:99", forwarded: []string{"unknown"}, host: "a, b", wantRemote: "10.0.0.1:99", wantHost: "service"},
		"no header":                {remote: "[::1]:99", wantRemote: "[::1]:99", wantHost: "service"},
		"an IPv4 address in IPv6":  {remote: "[::ffff:10.0.0.1]:99", forwarded: []string{"198.51.100.1"}, wantRemote: "198.51.100.1:0", wantHost: "service"},
		"an IPv6 client":           {remote: "10.0.0.1:99", forwarded: []string{"2001:db8::1"}, wantRemote: "[2001:db8::1]:0", wantHost: "service"},
		"only proxies on the path": {remote: "10.0.0.1:99", forwarded: []string{"10.0.0.3, 10.0.0.2"}, wantRemote: "10.0.0.3:0", wantHost: "service"},
	} {
		t.Run(name, func(t *testing.T) {
			var got *http.Request
			handler := behindProxies(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }), trusted)
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://service/", http.NoBody)
			req.RemoteAddr = c.remote
			for _, f := range c.forwarded {
				req.Header.Add("X-Forwarded-For", f)
			}
			if c.host != "" {
				req.Header.Set("X-Forwarded-Host", c.host)
			}
			handler.ServeHTTP(httptest.NewRecorder(), req)
			assert.Equal(t, c.wantRemote, got.RemoteAddr)
			assert.Equal(t, c.wantHost, got.Host)
		})
	}
}
