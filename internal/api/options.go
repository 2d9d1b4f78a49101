package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

// Options are what the HTTP entrance is built from. Service, Webhooks and Spec are required.
type Options struct {
	Service  service.Coordinator
	Webhooks service.Webhooks
	// Spec is openapi.yaml, served as it is (but for the base path) and rendered as the reference page.
	Spec   []byte
	Logger *slog.Logger
	// Now is the clock that times requests; default time.Now.
	Now func() time.Time

	// Ready says whether this replica should get traffic, and what is missing. Parts of the service that are away are
	// reported besides. Default: always ready.
	Ready func() (ready bool, reasons []string)
	// Metrics serves /metrics; nil answers 404 there.
	Metrics http.Handler
	// Web serves every path that is not the API's; nil answers 404 there. It sees paths without BasePath and may
	// replace the security headers set for it.
	Web http.Handler
	// Observe, if set, hears of every request once it has been answered. route is the path's template, "" for Web and
	// unknown paths.
	Observe func(method, route string, status int, elapsed time.Duration)

	// BasePath is where an ingress mounts the service, like /coordsvc; it is cut from paths and put before Locations.
	BasePath string
	// TrustedOrigins may send cross-site requests: scheme://host[:port].
	TrustedOrigins []string

	// MaxBody and MaxBatchBody bound bodies in bytes: 1 MiB, and 8 MiB for a batch of heartbeats.
	MaxBody, MaxBatchBody int64
	// MaxBatch bounds how many heartbeats a batch may hold: 10,000.
	MaxBatch int
	// MaxStreams bounds how many clients may stream events at once: 1,000.
	MaxStreams int
	// StreamKeepAlive is the longest silence of a stream: 15 s.
	StreamKeepAlive time.Duration
	// StreamWriteTimeout cuts a client that does not read: 10 s.
	StreamWriteTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Ready == nil {
		o.Ready = func() (bool, []string) { return true, nil }
	}
	o.MaxBody = orDefault(o.MaxBody, 1<<20)
	o.MaxBatchBody = orDefault(o.MaxBatchBody, 8<<20)
	o.MaxBatch = orDefault(o.MaxBatch, 10_000)
	o.MaxStreams = orDefault(o.MaxStreams, 1000)
	o.StreamKeepAlive = orDefault(o.StreamKeepAlive, 15*time.Second)
	o.StreamWriteTimeout = orDefault(o.StreamWriteTimeout, 10*time.Second)
	return o
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func (o Options) validate() error {
	switch {
	case o.Service == nil:
		return errors.New("api: Service is missing")
	case o.Webhooks == nil:
		return errors.New("api: Webhooks is missing")
	case len(o.Spec) == 0:
		return errors.New("api: Spec is missing")
	case o.BasePath != "" && (!strings.HasPrefix(o.BasePath, "/") || strings.HasSuffix(o.BasePath, "/")):
		return fmt.Errorf("api: BasePath %q must begin with a slash and not end with one", o.BasePath)
	case o.MaxBody < 0 || o.MaxBatchBody < 0 || o.MaxBatch < 0 || o.MaxStreams < 0:
		return errors.New("api: limits must be positive")
	case o.StreamKeepAlive < 0 || o.StreamWriteTimeout < 0:
		return errors.New("api: stream times must be positive")
	}
	return nil
}
