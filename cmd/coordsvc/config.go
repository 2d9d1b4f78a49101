package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordsvc/coordsvc/internal/app"
)

func configCommand(s *streams) *cobra.Command {
	parent := &cobra.Command{
		Use: "config", Short: "Look at the configuration",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := newSettingFlags(s)
	check := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration and show what is in force, and why",
		RunE: func(*cobra.Command, []string) error {
			config, err := flags.load()
			if err != nil {
				return err
			}
			s.printf("%s", effective(flags.all, &config))
			return nil
		},
	}
	flags.register(check, "Check flags, environment and file as serve would, and print what is in force as YAML, with passwords\nredacted and each value's origin. Exit code 2 when something is wrong.")
	parent.AddCommand(check)
	return parent
}

// effective writes the configuration as a file that serve would read, with the origin of every value.
func effective(all []*setting, config *loaded) string {
	lines := [][2]string{}
	add := func(name, key, text string) {
		origin := fromDefault
		if g, found := config.origins[name]; found {
			origin = g.from
			if g.from == fromFlag || g.from == fromEnvironment {
				origin += " " + g.as
			}
		}
		lines = append(lines, [2]string{key + ": " + text, origin})
	}
	for _, s := range all {
		add(s.name, s.key(), scalar(s.shown(&config.options)))
	}
	if groups := config.options.Groups; len(groups) > 0 {
		lines = append(lines, [2]string{"groups:", ""})
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			lines = append(lines, [2]string{"  " + scalar(name) + ":", ""})
			for _, kv := range groupValues(groups[name]) {
				add("groups."+name+"."+strings.ReplaceAll(kv[0], "_", "-"), "    "+kv[0], kv[1])
			}
		}
	}
	width := 0
	for _, l := range lines {
		width = max(width, min(len(l[0]), 48))
	}
	var b strings.Builder
	for _, l := range lines {
		if l[1] == "" {
			fmt.Fprintln(&b, l[0])
			continue
		}
		fmt.Fprintf(&b, "%-*s  # %s\n", width, l[0], l[1])
	}
	return b.String()
}

func groupValues(g app.GroupOptions) [][2]string {
	var values [][2]string
	if g.HeartbeatTimeout != 0 {
		values = append(values, [2]string{"heartbeat_timeout", shortDuration(g.HeartbeatTimeout)})
	}
	values = append(values, [2]string{"shared_subscriptions", strconv.FormatBool(g.SharedSubscriptions)})
	if g.AutoAssign != "" {
		values = append(values, [2]string{"auto_assign", scalar(g.AutoAssign)})
	}
	if g.StuckAfter != "" {
		values = append(values, [2]string{"stuck_after", scalar(g.StuckAfter)})
	}
	return values
}

// scalar quotes what YAML would not read back as the same text.
func scalar(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:,-+@%", r)
	})
	if plain && !strings.HasSuffix(s, ":") && !strings.ContainsAny(s[:1], ",-:%@") {
		return s
	}
	return strconv.Quote(s)
}
