package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/coordsvc/coordsvc/internal/app"
)

func versionCommand(s *streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Tell which build this is",
		RunE: func(*cobra.Command, []string) error {
			build := buildInfo()
			if asJSON {
				text, err := json.Marshal(map[string]string{
					"version": build.Version, "revision": build.Revision, "go_version": build.GoVersion,
					"platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
				if err != nil {
					return fmt.Errorf("write version: %w", err)
				}
				s.printf("%s\n", text)
				return nil
			}
			s.printf("coordsvc %s\nrevision %s\n%s %s/%s\n", build.Version, build.Revision, build.GoVersion, runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// buildInfo prefers the version given to the linker, then what the Go toolchain recorded.
func buildInfo() app.Build {
	b := app.Build{Version: version, Revision: "unknown", GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return withVersion(b, "unversioned")
	}
	dirty := ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			b.Revision = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = "+modified"
		}
	}
	b.Revision += dirty
	if info.Main.Version == "" {
		return withVersion(b, "unversioned")
	}
	return withVersion(b, info.Main.Version)
}

func withVersion(b app.Build, fallback string) app.Build {
	if b.Version == "" {
		b.Version = fallback
	}
	return b
}
