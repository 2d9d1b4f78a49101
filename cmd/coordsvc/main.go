package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build (-ldflags "-X main.version=v1.2.3").
var version = ""

// The exit codes, the same for every subcommand; `coordsvc --help` lists them.
const (
	exitOK = iota
	// exitFailed: it did not work, and nothing below says why more precisely.
	exitFailed
	// exitUsage: flags, settings or configuration are wrong.
	exitUsage
	// exitRefused: the service answered, and refused.
	exitRefused
	// exitUnreachable: no service answered, or it could not take the request now.
	exitUnreachable
	// exitWaitEnded: --wait ended before the drain did.
	exitWaitEnded
)

// exitError carries an exit code to main.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal finds Go's default again: it ends the process at once.
	go func() {
		<-ctx.Done()
		stop()
	}()
	root := rootCommand(&streams{out: os.Stdout, err: os.Stderr, environ: os.Environ()})
	root.SetArgs(os.Args[1:])
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "coordsvc:", err)
		return exitCode(err)
	}
	return exitOK
}

func exitCode(err error) int {
	var config *configError
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &config):
		return exitUsage
	}
	return exitFailed
}

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func rootCommand(s *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "coordsvc",
		Short: "Knows which workers are alive, which are leaving, and who takes their work over",
		Long: `coordsvc knows which workers are alive, which are leaving and how long they still need, and which
subscriptions nobody serves any more; it lets one survivor take each over, and tells your automation.

  coordsvc serve                      starts the service on http://127.0.0.1:8080; needs no settings
  coordsvc demo                       the same with a simulated fleet to look at
  coordsvc heartbeat --instance-id w1 --subscription orders
                                      sends a heartbeat from a script

Exit codes: 0 done · 1 failed · 2 wrong flags or configuration · 3 the service refused
            4 the service cannot be reached or cannot take the request now · 5 --wait ran out`,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(
		serveCommand(s), configCommand(s), versionCommand(s), healthcheckCommand(s),
		heartbeatCommand(s), shutdownCommand(s), demoCommand(s))
	for _, c := range root.Commands() {
		wrapArgs(c)
	}
	return root
}

// wrapArgs gives unexpected arguments the exit code of wrong usage.
func wrapArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.NoArgs
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError("%w; see `%s --help`", err, cmd.CommandPath())
		}
		return nil
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}
