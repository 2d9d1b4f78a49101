package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// given is a value somebody gave, with the place to name when it is wrong.
type given struct {
	text string
	// from is where: "flag", "environment" or "FILE:LINE".
	from string
	// as is what the setting is called there: --listen, COORDSVC_LISTEN, listen.
	as string
}

func (g given) String() string {
	if g.from == fromFlag || g.from == fromEnvironment {
		return g.as
	}
	return g.from + ": " + g.as
}

const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
	fromDefault     = "default"
)

// configFile is what a file says: values by key, and the groups' values by group and key.
type configFile struct {
	values map[string]given
	groups map[string]map[string]given
}

// fileReader walks over the nodes of one file, so that every fault can name its line.
type fileReader struct {
	path   string
	faults []string
}

func (r *fileReader) fault(node *yaml.Node, format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf("%s:%d: ", r.path, node.Line)+fmt.Sprintf(format, args...))
}

// readConfigFile answers what the file says, and what is wrong with its form. Whether keys and values are right is
// the caller's to judge.
func readConfigFile(path string) (configFile, []string) {
	file := configFile{values: map[string]given{}, groups: map[string]map[string]given{}}
	content, err := os.ReadFile(path)
	if err != nil {
		return file, []string{fmt.Sprintf("--config: %v", err)}
	}
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return file, nil // an empty file says nothing
	} else if err != nil {
		return file, []string{fmt.Sprintf("%s: %v", path, err)}
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return file, []string{path + ": holds more than one document; keep one"}
	}
	r := &fileReader{path: path}
	r.each(document.Content[0], "the file", func(key, value *yaml.Node) {
		if key.Value == "groups" {
			r.groups(value, file.groups)
			return
		}
		r.value(file.values, key, value, key.Value)
	})
	return file, r.faults
}

func (r *fileReader) groups(node *yaml.Node, groups map[string]map[string]given) {
	r.each(node, "groups", func(name, settings *yaml.Node) {
		group := map[string]given{}
		groups[name.Value] = group
		r.each(settings, "groups."+name.Value, func(key, value *yaml.Node) {
			r.value(group, key, value, "groups."+name.Value+"."+key.Value)
		})
	})
}

// each visits the keys of a mapping, refusing repeated ones.
func (r *fileReader) each(node *yaml.Node, what string, visit func(key, value *yaml.Node)) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if isNull(node) {
		return
	}
	if node.Kind != yaml.MappingNode {
		r.fault(node, "%s must be a mapping of keys to values, such as `listen: 127.0.0.1:8080`", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if seen[key.Value] {
			r.fault(key, "%s is there twice; keep one", key.Value)
			continue
		}
		seen[key.Value] = true
		visit(key, node.Content[i+1])
	}
}

// value reads a scalar, or a list of scalars as their comma-separated text.
func (r *fileReader) value(into map[string]given, key, node *yaml.Node, as string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	g := given{from: fmt.Sprintf("%s:%d", r.path, key.Line), as: as}
	switch {
	case isNull(node):
		r.fault(key, "%s has no value; give it one or take it out", as)
		return
	case node.Kind == yaml.ScalarNode:
		g.text = node.Value
	case node.Kind == yaml.SequenceNode:
		parts := make([]string, len(node.Content))
		for i, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				r.fault(item, "%s must be a list of plain values", as)
				return
			}
			parts[i] = item.Value
		}
		g.text = strings.Join(parts, ",")
	default:
		r.fault(node, "%s must be a value, not a mapping", as)
		return
	}
	into[key.Value] = g
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }
