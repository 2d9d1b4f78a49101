package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/coordsvc/coordsvc/internal/app"
	"github.com/coordsvc/coordsvc/internal/demo"
)

type demoFlags struct {
	server, listen, dataDir string
	timeout                 time.Duration
	seed                    uint64
	rounds                  int
}

func demoCommand(s *streams) *cobra.Command {
	f := &demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start the service with a simulated fleet to look at",
		Long: `Start the service and thirteen simulated workers in three groups, which roll, crash, come back and take over, so
that the dashboard shows every state within a minute. Ctrl-C ends it. With --server the fleet joins a service that
runs already: it should have a short --heartbeat-timeout, and is told nothing that it would not forget.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.timeout < 500*time.Millisecond || f.timeout > time.Minute {
				return usageError("--heartbeat-timeout: %s is out of range, it may be 500ms to 1m", f.timeout)
			}
			if f.server != "" {
				return f.drive(cmd.Context(), s, f.server)
			}
			return f.serveAndDrive(cmd.Context(), s)
		},
	}
	cmd.Flags().StringVar(&f.server, "server", "", "URL of a running service to join, instead of starting one")
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the service that is started")
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "where the started service keeps its store; unset: a temporary directory")
	cmd.Flags().DurationVar(&f.timeout, "heartbeat-timeout", 4*time.Second, "the started service's heartbeat timeout, and the pace of the script")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "decides all that is left to chance")
	cmd.Flags().IntVar(&f.rounds, "rounds", 0, "end after so many rounds of the script; 0: with Ctrl-C")
	return cmd
}

// serveAndDrive runs the service and the fleet; when one of them ends, so does the other, the fleet first.
func (f *demoFlags) serveAndDrive(ctx context.Context, s *streams) error {
	options := app.Defaults()
	options.Listen, options.HeartbeatTimeout, options.LogLevel = f.listen, f.timeout, slog.LevelWarn
	options.PeerRetention = 10 * time.Minute
	options.Build, options.LogOutput = buildInfo(), s.err
	options.DataDir = f.dataDir
	if f.dataDir == "" {
		dir, err := os.MkdirTemp("", "coordsvc-demo-")
		if err != nil {
			return fmt.Errorf("make a data directory: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }() // what is left in a temporary directory harms nobody
		options.DataDir = dir
	}
	listening := make(chan net.Addr, 1)
	options.OnListening = func(a net.Addr) { listening <- a }

	// The service outlives the fleet, so that the fleet can take its webhook back.
	serviceCtx, stopService := context.WithCancel(context.WithoutCancel(ctx))
	fleetCtx, stopFleet := context.WithCancel(ctx)
	defer stopService()
	var g errgroup.Group
	g.Go(func() error {
		defer stopFleet()
		return app.Run(serviceCtx, options)
	})
	g.Go(func() error {
		defer stopService()
		select {
		case address := <-listening:
			return f.drive(fleetCtx, s, "http://"+address.String())
		case <-fleetCtx.Done():
			return nil
		}
	})
	return g.Wait()
}

func (f *demoFlags) drive(ctx context.Context, s *streams, server string) error {
	s.printf("\n  dashboard  %s/\n  workers    13 in 3 groups, heartbeat timeout %s\n  end        Ctrl-C\n\n", server, f.timeout)
	err := demo.Run(ctx, demo.Options{Server: server, HeartbeatTimeout: f.timeout, Seed: f.seed, Out: s.out, Rounds: f.rounds})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
