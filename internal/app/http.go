package app

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// What a client may take of a connection. Streams are endless: what writes to them sets a deadline for each write,
// which takes the place of writeTimeout.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
	writeTimeout      = time.Minute
)

func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.With("component", "http").Handler(), slog.LevelDebug),
	}
}

// atRootToo serves paths without the base path like those with it: probes and scrapers talk to the process itself, and
// many an ingress cuts off the prefix that it routes by.
func atRootToo(next http.Handler, base string) http.Handler {
	if base == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, found := strings.CutPrefix(r.URL.Path, base); found && (rest == "" || rest[0] == '/') {
			next.ServeHTTP(w, r)
			return
		}
		out := r.Clone(r.Context())
		out.URL.Path = base + r.URL.Path
		if r.URL.RawPath != "" {
			out.URL.RawPath = base + r.URL.RawPath
		}
		next.ServeHTTP(w, out)
	})
}

// behindProxies takes the client's address and the host that it asked for from the headers of trusted proxies; from
// anybody else those headers are only text.
func behindProxies(next http.Handler, trusted []netip.Prefix) http.Handler {
	if len(trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fromProxy(r.RemoteAddr, trusted) {
			r = forwarded(r, trusted)
		}
		next.ServeHTTP(w, r)
	})
}

func fromProxy(remote string, trusted []netip.Prefix) bool {
	addr, err := netip.ParseAddrPort(remote)
	return err == nil && within(addr.Addr(), trusted)
}

func within(addr netip.Addr, prefixes []netip.Prefix) bool {
	addr = addr.Unmap()
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// forwarded is the request as the client sent it to the first trusted proxy.
func forwarded(r *http.Request, trusted []netip.Prefix) *http.Request {
	out := r.Clone(r.Context())
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	// The last hop that is no proxy of ours is the client; what stands before it, anybody may have written.
	for i := len(hops) - 1; i >= 0; i-- {
		addr, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		out.RemoteAddr = net.JoinHostPort(addr.Unmap().String(), "0")
		if !within(addr, trusted) {
			break
		}
	}
	if host := r.Header.Get("X-Forwarded-Host"); host != "" && !strings.ContainsAny(host, ",/ ") {
		out.Host = host
	}
	return out
}
