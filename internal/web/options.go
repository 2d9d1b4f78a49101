package web

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/web/static"
)

// Options are what the dashboard is made of.
type Options struct {
	// Service answers every page. Required.
	Service service.Coordinator
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Now defaults to time.Now.
	Now func() time.Time
	// BasePath is the prefix that every link gets when the service sits behind an ingress: "" or "/coordsvc".
	// Requests are understood with and without it.
	BasePath string
	// Version is shown in the footer.
	Version string
	// Identity is this replica's, shown in the footer.
	Identity string
	// MaxStreams limits open live streams; default 1,000.
	MaxStreams int
	// Stopping, when closed, ends every live stream, so that stopping need not wait for them. Nil: never.
	Stopping <-chan struct{}
}

const defaultMaxStreams = 1000

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Version == "" {
		o.Version = "unversioned"
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = defaultMaxStreams
	}
	o.BasePath = strings.TrimRight(o.BasePath, "/")
	return o
}

func (o Options) validate() error {
	if o.Service == nil {
		return errors.New("web: Service is required")
	}
	if o.MaxStreams < 0 {
		return fmt.Errorf("web: MaxStreams must not be negative: %d", o.MaxStreams)
	}
	if o.BasePath == "" {
		return nil
	}
	u, err := url.Parse(o.BasePath)
	if err != nil || u.Path != o.BasePath || !strings.HasPrefix(o.BasePath, "/") || strings.HasPrefix(o.BasePath, "//") {
		return fmt.Errorf("web: BasePath must be a path like /coordsvc: %q", o.BasePath)
	}
	return nil
}

// site is the dashboard.
type site struct {
	Options

	assets  *assets
	streams chan struct{}
}

// New builds the dashboard. It serves /, /peers/{id}, /live and /static/.
func New(o Options) (http.Handler, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	a, err := loadAssets(static.Files(), o.BasePath)
	if err != nil {
		return nil, fmt.Errorf("load static files: %w", err)
	}
	o.Logger = o.Logger.With(slog.String("component", "web"))
	s := &site{Options: o, assets: a, streams: make(chan struct{}, o.MaxStreams)}
	return s.handler(), nil
}
