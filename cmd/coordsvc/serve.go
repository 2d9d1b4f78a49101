package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coordsvc/coordsvc/internal/app"
)

func serveCommand(s *streams) *cobra.Command {
	flags := newSettingFlags(s)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start the service",
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := flags.load()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), s, config.options)
		},
	}
	flags.register(cmd, "Start the service. Without settings it listens on 127.0.0.1:8080, leads itself and keeps its store\nin ./coordsvc-data.")
	return cmd
}

func serve(ctx context.Context, s *streams, options app.Options) error {
	options.Build = buildInfo()
	options.LogOutput = s.err
	options.Level = new(slog.LevelVar)
	options.Level.Set(options.LogLevel)
	defer switchLevelOnSignal(options.Level, options.LogLevel)()
	if err := app.Run(ctx, options); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// switchLevelOnSignal turns debug logging on and off again with SIGUSR1: a service in trouble must not be restarted
// to be looked at.
func switchLevelOnSignal(level *slog.LevelVar, configured slog.Level) (stop func()) {
	signals := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for {
			select {
			case <-signals:
				if level.Level() == slog.LevelDebug {
					level.Set(configured)
				} else {
					level.Set(slog.LevelDebug)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// settingFlags are the flags of the commands that take the service's settings.
type settingFlags struct {
	streams *streams
	all     []*setting
	given   map[string]string
}

func newSettingFlags(s *streams) *settingFlags {
	return &settingFlags{streams: s, all: settings(), given: map[string]string{}}
}

func (f *settingFlags) load() (loaded, error) {
	l := &loader{all: f.all, flags: f.given, environ: f.streams.environ}
	return l.load()
}

func (f *settingFlags) register(cmd *cobra.Command, intro string) {
	add := func(name, usage string, isSwitch bool) {
		flag := cmd.Flags().VarPF(&recordedFlag{name: name, given: f.given}, name, "", usage)
		if isSwitch {
			flag.NoOptDefVal = "true"
		}
	}
	add("config", "", false)
	for _, s := range f.all {
		add(s.name, s.usage, s.isSwitch())
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, _ = fmt.Fprint(cmd.OutOrStdout(), f.help(cmd, intro))
	})
}

// recordedFlag keeps what was given; it is judged with the other layers.
type recordedFlag struct {
	name  string
	given map[string]string
}

// Set implements pflag.Value.
func (f *recordedFlag) Set(text string) error {
	f.given[f.name] = text
	return nil
}

// String implements pflag.Value.
func (f *recordedFlag) String() string { return f.given[f.name] }

// Type implements pflag.Value.
func (f *recordedFlag) Type() string { return "value" }

// help lists the settings by section, with forms and defaults.
func (f *settingFlags) help(cmd *cobra.Command, intro string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s [flags]\n\n", intro, cmd.CommandPath())
	b.WriteString(`Every setting is a flag, an environment variable (COORDSVC_ and the flag's name, as in COORDSVC_DATA_DIR) and a
key of the YAML file (data_dir); flags win over the environment, which wins over the file. The file alone has
groups: {NAME: {heartbeat_timeout, shared_subscriptions, auto_assign, stuck_after}}.

Configuration
      --config <file>
          YAML file to read. [COORDSVC_CONFIG]
`)
	defaults := app.Defaults()
	section := ""
	for _, s := range f.all {
		if s.section != section {
			section = s.section
			fmt.Fprintf(&b, "\n%s\n", section)
		}
		fmt.Fprintf(&b, "      --%s\n          %s", strings.TrimSpace(s.name+" "+s.kind), s.usage)
		if text := s.shown(&defaults); text != "" && s.name != "identity" {
			fmt.Fprintf(&b, " (default %s)", text)
		}
		b.WriteString("\n")
	}
	b.WriteString("\nDurations are written 500ms, 15s, 2h30m; sizes 65536, 16KiB, 1MiB. `coordsvc config check` shows what is in force and why.\n")
	return b.String()
}
