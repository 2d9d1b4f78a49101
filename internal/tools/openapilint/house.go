package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

var (
	snake   = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	segment = regexp.MustCompile(`^([a-z0-9-]+(\.[a-z]+)?|\{[a-z][a-z0-9_]*\})?$`)
)

// house checks the rules of this project: names in snake_case, problems as the only errors, examples
// on every JSON body, a description for every parameter and every name of a property, limits on what a client sends.
func house(doc *openapi3.T) []string {
	h := &checker{seen: map[*openapi3.Schema]bool{}, described: map[string]bool{}, bare: map[string][]string{}}
	for path, item := range doc.Paths.Map() {
		for _, s := range strings.Split(path, "/") {
			if !segment.MatchString(s) {
				h.find(path, "segment %q: lower case with hyphens, or {snake_case}", s)
			}
		}
		for method, op := range item.Operations() {
			h.operation(method+" "+path, item.Parameters, op)
		}
	}
	if doc.Components != nil {
		for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
			h.schema(name, doc.Components.Schemas[name])
		}
	}
	for name, places := range h.bare {
		if !h.described[name] {
			h.find(strings.Join(places, ", "), "%s is described nowhere", name)
		}
	}
	slices.Sort(h.findings)
	return slices.Compact(h.findings)
}

type checker struct {
	findings []string
	seen     map[*openapi3.Schema]bool
	// One name means one thing everywhere: a property's description may stand at any schema that has it.
	described map[string]bool
	bare      map[string][]string
}

func (h *checker) find(where, format string, args ...any) {
	h.findings = append(h.findings, "house: "+where+": "+fmt.Sprintf(format, args...))
}

func (h *checker) operation(where string, shared openapi3.Parameters, op *openapi3.Operation) {
	if op.Summary == "" {
		h.find(where, "no summary")
	}
	for _, p := range slices.Concat(shared, op.Parameters) {
		name := p.Value.In + " parameter " + p.Value.Name
		if p.Value.Description == "" {
			h.find(where, "%s has no description", name)
		}
		if p.Value.In != openapi3.ParameterInHeader && !snake.MatchString(p.Value.Name) && !strings.Contains(p.Value.Name, ".") {
			h.find(where, "%s is not snake_case", name)
		}
	}
	if op.RequestBody != nil {
		for kind, media := range op.RequestBody.Value.Content {
			h.media(where+" request", kind, media)
			if media.Schema != nil {
				h.bounded(where+" request", media.Schema.Value, nil)
			}
		}
	}
	if strings.Contains(where, " /v1/") {
		if len(op.Tags) != 1 {
			h.find(where, "exactly one tag wanted")
		}
		if op.Responses.Value("500") == nil && op.Responses.Default() == nil {
			h.find(where, "no 500 and no default response")
		}
		takes := len(shared)+len(op.Parameters) > 0 || op.RequestBody != nil
		if takes && !slices.ContainsFunc([]string{"400", "404", "422", "4XX", "default"}, func(s string) bool { return op.Responses.Value(s) != nil }) {
			h.find(where, "takes input and has no response for wrong input")
		}
	}
	for status, response := range op.Responses.Map() {
		h.response(where+" "+status, status, response.Value)
	}
}

func (h *checker) response(where, status string, r *openapi3.Response) {
	if r.Description == nil || *r.Description == "" {
		h.find(where, "no description")
	}
	failed := status == "default" || status >= "4"
	if failed && (r.Content == nil || r.Content["application/problem+json"] == nil) && !strings.Contains(where, "/readyz") {
		h.find(where, "errors are application/problem+json")
	}
	for name, header := range r.Headers {
		if header.Value.Description == "" {
			h.find(where, "header %s has no description", name)
		}
	}
	for kind, media := range r.Content {
		h.media(where, kind, media)
	}
}

// media wants an example on every JSON body: the document is what people copy from.
func (h *checker) media(where, kind string, m *openapi3.MediaType) {
	if !strings.HasSuffix(kind, "json") {
		return
	}
	where += " " + kind
	if m.Schema == nil {
		h.find(where, "no schema")
		return
	}
	if m.Example == nil && len(m.Examples) == 0 && m.Schema.Value.Example == nil {
		h.find(where, "no example")
	}
}

// schema checks names and descriptions of a component's properties.
func (h *checker) schema(where string, ref *openapi3.SchemaRef) {
	s := ref.Value
	if s == nil || h.seen[s] {
		return
	}
	h.seen[s] = true
	for name, property := range s.Properties {
		at := where + "." + name
		if !snake.MatchString(name) {
			h.find(at, "not snake_case")
		}
		if property.Ref != "" || property.Value.Description != "" || len(property.Value.AllOf) > 0 {
			h.described[name] = true
		} else {
			h.bare[name] = append(h.bare[name], at)
		}
		if property.Ref == "" {
			h.schema(at, property)
		}
	}
	if s.Items != nil && s.Items.Ref == "" {
		h.schema(where+"[]", s.Items)
	}
	for i, part := range s.AllOf {
		h.schema(fmt.Sprintf("%s.allOf[%d]", where, i), part)
	}
}

// bounded wants a limit on every string, array and map that a client can send.
func (h *checker) bounded(where string, s *openapi3.Schema, path []*openapi3.Schema) {
	if s == nil || slices.Contains(path, s) {
		return
	}
	path = append(path, s)
	if s.Type.Is("string") && s.MaxLength == nil && len(s.Enum) == 0 && s.Format != "date-time" {
		h.find(where, "a string without maxLength, enum or date-time")
	}
	if s.Type.Is("array") {
		if s.MaxItems == nil {
			h.find(where, "an array without maxItems")
		}
		if s.Items != nil {
			h.bounded(where+"[]", s.Items.Value, path)
		}
	}
	for name, property := range s.Properties {
		if property.Value != nil && !property.Value.ReadOnly {
			h.bounded(where+"."+name, property.Value, path)
		}
	}
	for _, part := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf) {
		h.bounded(where, part.Value, path)
	}
}
