package demo

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options configure Run.
type Options struct {
	// Server is the service's URL.
	Server string
	// HeartbeatTimeout is the service's; the script's pace follows it.
	HeartbeatTimeout time.Duration
	// Seed decides all that is left to chance.
	Seed uint64
	// Out takes the narration.
	Out io.Writer
	// Client speaks to the service; default one with a short timeout.
	Client *http.Client
	// Rounds ends the demonstration after so many rounds of its script; 0: when the context ends.
	Rounds int
}

func (o Options) withDefaults() (Options, error) {
	u, err := url.Parse(o.Server)
	if err != nil || u.Host == "" {
		return o, errors.New("demo: Server is not a URL")
	}
	o.Server = strings.TrimSuffix(o.Server, "/")
	if o.HeartbeatTimeout <= 0 {
		return o, errors.New("demo: HeartbeatTimeout must be positive")
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 5 * time.Second}
	}
	return o, nil
}
