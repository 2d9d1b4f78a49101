package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/telemetry"
)

// The limits of the steps of stopping; together they stay under ten seconds.
const (
	webhookGrace   = 500 * time.Millisecond
	webhookLimit   = time.Second
	releaseLimit   = 2 * time.Second
	httpLimit      = 4 * time.Second
	busLimit       = time.Second
	flushLimit     = time.Second
	telemetryLimit = 500 * time.Millisecond
)

// Run runs the service until ctx ends, and stops it in order. It returns nil after an orderly stop that was asked
// for, and otherwise what failed.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	log, err := newLogger(&o)
	if err != nil {
		return err
	}
	// The port is taken first: whoever starts a second one by mistake learns it before the store is looked at.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.Listen, err)
	}
	p, err := build(ctx, o, log)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil // asked to stop before it had begun
		}
		return errors.Join(err, listener.Close())
	}
	r := &running{parts: p, listener: listener, server: newServer(p.handler, log)}
	r.start(ctx)
	r.announce()
	fault := r.wait(ctx)
	r.stop()
	return fault
}

func newLogger(o *Options) (*slog.Logger, error) {
	if o.LogOutput == nil {
		o.LogOutput = os.Stderr
	}
	if o.Level == nil {
		o.Level = new(slog.LevelVar)
		o.Level.Set(o.LogLevel)
	}
	return telemetry.NewLogger(o.LogOutput, o.LogFormat, o.Level)
}

// firstTermLimit is how long the first answers wait for somebody to lead.
const firstTermLimit = time.Second

// running is the service at work. Every part has a context of its own, because they end one after another.
type running struct {
	*parts

	listener net.Listener
	server   *http.Server

	electing, consuming, delivering, coordinating *task
	// failed takes the first part's error that nobody asked for.
	failed chan error
}

// task is one part at work.
type task struct {
	name string
	end  context.CancelFunc
	done chan struct{}
}

// launch runs a part until its task is ended; ending before that is a failure of the whole.
func (r *running) launch(ctx context.Context, name string, run func(context.Context) error) *task {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := &task{name: name, end: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		err := run(ctx)
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				r.log.Error("a part did not stop cleanly", "part", name, "error", err)
			}
			return
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		select {
		case r.failed <- fmt.Errorf("%s: %w", name, err):
		default: // another part failed first
		}
	}()
	return t
}

// stop ends the part and waits for it, within a limit.
func (t *task) stop(limit time.Duration, log *slog.Logger) {
	t.end()
	select {
	case <-t.done:
		return
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
		log.Warn("a part took too long to stop", "part", t.name, "limit_seconds", limit.Seconds())
	}
}

func (r *running) start(ctx context.Context) {
	r.failed = make(chan error, 1)
	r.coordinating = r.launch(ctx, "service", r.service.Run)
	r.consuming = r.launch(ctx, "bus", func(ctx context.Context) error { return r.bus.Run(ctx, r.service) })
	r.delivering = r.launch(ctx, "webhooks", r.webhooks.Run)
	r.lead(ctx)
	go func() {
		if err := r.server.Serve(r.listener); !errors.Is(err, http.ErrServerClosed) {
			select {
			case r.failed <- fmt.Errorf("serve HTTP: %w", err):
			default:
			}
		}
	}()
	r.serving.Store(true)
}

// lead begins to campaign, and gives the first term a moment to begin, so that the first answers can name the leader.
func (r *running) lead(ctx context.Context) {
	leads := make(chan struct{})
	var once sync.Once
	handle := r.elector.OnLeaderChange(func(service.LeaderChange) { once.Do(func() { close(leads) }) })
	defer r.elector.RemoveLeaderChangeCallback(handle)
	r.electing = r.launch(ctx, "elector", r.elector.Run)
	timer := time.NewTimer(firstTermLimit)
	defer timer.Stop()
	select {
	case <-leads:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (r *running) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.failed:
		r.log.Error("a part failed, stopping", "error", err)
		return err
	}
}

// announce tells where the service is and what to try first.
func (r *running) announce() {
	address := r.listener.Addr()
	base := "http://" + reachable(address) + r.options.BasePath
	dir, err := filepath.Abs(r.options.DataDir)
	if err != nil {
		dir = r.options.DataDir
	}
	r.log.Info("coordsvc is up", "listen", address.String(), "dashboard", base+"/", "data_dir", dir,
		"identity", r.options.Identity, "version", r.options.Build.Version)
	r.log.Info("try it", "command", "curl "+base+"/v1/summary")
	if r.options.OnListening != nil {
		r.options.OnListening(address)
	}
}

// reachable is an address to connect to: a wildcard stands for this machine.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// stop is the one order of stopping; see the package's documentation.
func (r *running) stop() {
	began := time.Now()
	r.log.Info("stopping")
	close(r.stopping)
	r.api.EndStreams()
	r.stopAttempts()
	r.electing.stop(releaseLimit, r.log)
	r.drainHTTP()
	r.consuming.stop(busLimit, r.log)
	r.delivering.stop(flushLimit, r.log)
	r.coordinating.stop(flushLimit, r.log)
	r.close(r.log)
	r.log.Info("stopped", "seconds", time.Since(began).Seconds())
}

func (r *running) stopAttempts() {
	ctx, cancel := context.WithTimeout(context.Background(), webhookLimit)
	defer cancel()
	if err := r.webhooks.Stop(ctx); err != nil {
		r.log.Warn("webhook attempts did not end in time; they are repeated after the next start", "error", err)
	}
}

func (r *running) drainHTTP() {
	ctx, cancel := context.WithTimeout(context.Background(), httpLimit)
	defer cancel()
	err := r.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		r.log.Warn("requests did not end in time and are cut off")
		err = r.server.Close()
	}
	if err != nil && !strings.Contains(err.Error(), net.ErrClosed.Error()) {
		r.log.Error("closing HTTP failed", "error", err)
	}
}
