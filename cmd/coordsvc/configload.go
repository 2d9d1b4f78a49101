package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coordsvc/coordsvc/internal/app"
)

// loaded is the configuration in force, and where each value came from.
type loaded struct {
	options app.Options
	origins map[string]given // by the setting's name; absent: default
}

// configError lists everything that is wrong with the configuration, so that it can be put right in one go.
type configError struct{ faults []string }

func (e *configError) Error() string {
	return "the configuration cannot be used:\n  " + strings.Join(e.faults, "\n  ")
}

// loader merges the layers: flags over environment over file over defaults.
type loader struct {
	all     []*setting
	flags   map[string]string // by name, those given
	environ []string
	faults  []string
}

func (l *loader) load() (loaded, error) {
	result := loaded{options: app.Defaults(), origins: map[string]given{}}
	env := l.environment()
	path, named := l.flags["config"]
	if !named {
		path = env["config"].text
	}
	if path != "" {
		l.fromFile(path, &result)
	}
	l.apply(&result, env)
	fromFlags := map[string]given{}
	for name, text := range l.flags {
		fromFlags[name] = given{text: text, from: fromFlag, as: "--" + name}
	}
	l.apply(&result, fromFlags)
	var invalid *app.InvalidOptionsError
	if err := result.options.Validate(); errors.As(err, &invalid) {
		l.faults = append(l.faults, l.explain(invalid.Faults, result.origins)...)
	} else if err != nil {
		return loaded{}, err
	}
	if len(l.faults) > 0 {
		return loaded{}, &configError{l.faults}
	}
	return result, nil
}

// apply sets what one layer gives, in the order of the settings; a later layer writes over an earlier one.
func (l *loader) apply(result *loaded, values map[string]given) {
	for _, s := range l.all {
		g, found := values[s.name]
		if !found {
			continue
		}
		if err := s.set(&result.options, g.text); err != nil {
			l.faults = append(l.faults, fmt.Sprintf("%s: %s", g, err))
			continue
		}
		result.origins[s.name] = g
	}
}

// environment reads the variables that are settings. An empty one counts as absent, because that is how Compose
// and shell scripts pass what nobody set.
func (l *loader) environment() map[string]given {
	values := map[string]given{}
	names := map[string]string{envPrefix + "CONFIG": "config"}
	for _, s := range l.all {
		names[s.env()] = s.name
	}
	for _, entry := range l.environ {
		variable, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(variable, envPrefix) || text == "" || notASetting(variable) {
			continue
		}
		name, known := names[variable]
		if !known {
			l.faults = append(l.faults, fmt.Sprintf("%s: there is no such setting%s", variable, didYouMean(variable, slices.Collect(maps.Keys(names)))))
			continue
		}
		values[name] = given{text: text, from: fromEnvironment, as: variable}
	}
	return values
}

// notASetting tells variables that bear our prefix for another reason: the clients' server, and the links that
// Kubernetes gives every pod for a Service called coordsvc or coordsvc-something.
func notASetting(variable string) bool {
	return variable == envServer ||
		regexp.MustCompile(`^COORDSVC_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`).MatchString(variable)
}

func (l *loader) fromFile(path string, result *loaded) {
	file, faults := readConfigFile(path)
	l.faults = append(l.faults, faults...)
	keys := map[string]string{}
	for _, s := range l.all {
		keys[s.key()] = s.name
	}
	values := map[string]given{}
	for _, key := range slices.Sorted(maps.Keys(file.values)) {
		g := file.values[key]
		name, known := keys[key]
		if !known {
			l.faults = append(l.faults, fmt.Sprintf("%s: there is no such setting%s", g, didYouMean(key, slices.Collect(maps.Keys(keys)))))
			continue
		}
		values[name] = g
	}
	l.apply(result, values)
	l.fromGroups(file.groups, result)
}

// groupSettings are the keys under groups.NAME.
func groupSettings() map[string]func(*app.GroupOptions, string) error {
	return map[string]func(*app.GroupOptions, string) error{
		"heartbeat_timeout": func(g *app.GroupOptions, s string) error {
			d, err := parseDuration(s)
			g.HeartbeatTimeout = d
			return err
		},
		"shared_subscriptions": func(g *app.GroupOptions, s string) error {
			on, err := parseSwitch(s)
			g.SharedSubscriptions = on
			return err
		},
		"auto_assign": func(g *app.GroupOptions, s string) error {
			g.AutoAssign = offWord(s)
			return nil
		},
		"stuck_after": func(g *app.GroupOptions, s string) error {
			g.StuckAfter = offWord(s)
			return nil
		},
	}
}

// offWord: in YAML 1.1 `off` is false, and editors rewrite it so.
func offWord(s string) string {
	if s == "false" {
		return "off"
	}
	return s
}

func (l *loader) fromGroups(groups map[string]map[string]given, result *loaded) {
	setters := groupSettings()
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		var group app.GroupOptions
		for _, key := range slices.Sorted(maps.Keys(groups[name])) {
			g := groups[name][key]
			set, known := setters[key]
			if !known {
				l.faults = append(l.faults, fmt.Sprintf("%s: there is no such setting of a group%s", g, didYouMean(key, slices.Collect(maps.Keys(setters)))))
				continue
			}
			if err := set(&group, g.text); err != nil {
				l.faults = append(l.faults, fmt.Sprintf("%s: %s", g, err))
				continue
			}
			result.origins["groups."+name+"."+strings.ReplaceAll(key, "_", "-")] = g
		}
		if result.options.Groups == nil {
			result.options.Groups = map[string]app.GroupOptions{}
		}
		result.options.Groups[name] = group
	}
}

// explain puts the place in front of every fault: the operator looks where the value was given.
func (l *loader) explain(faults []app.Fault, origins map[string]given) []string {
	lines := make([]string, len(faults))
	for i, f := range faults {
		place := "--" + f.Setting
		if g, found := origins[f.Setting]; found {
			place = g.String()
		} else if strings.HasPrefix(f.Setting, "groups.") {
			place = f.Setting
		}
		lines[i] = place + ": " + f.Detail
	}
	return lines
}

// didYouMean suggests the nearest of the known names, when one is near.
func didYouMean(name string, known []string) string {
	best, distance := "", 4
	for _, candidate := range slices.Sorted(slices.Values(known)) {
		if d := editDistance(strings.ReplaceAll(name, "-", "_"), candidate); d < distance {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// editDistance counts the letters to add, drop or change to get from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
