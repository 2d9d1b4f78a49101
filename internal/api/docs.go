package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed docs.css
var docsCSS string

//go:embed docs.html.tmpl
var docsTemplate string

func docsStyle() []byte { return []byte(docsCSS) }

// servedSpec is the contract with the server's address that this service has.
func servedSpec(spec []byte, basePath string) []byte {
	if basePath == "" {
		return spec
	}
	return bytes.Replace(spec, []byte("servers:\n  - url: /\n"), []byte("servers:\n  - url: "+basePath+"\n"), 1)
}

// renderDocs turns the contract into one page of HTML that needs nothing from elsewhere.
func renderDocs(spec []byte) ([]byte, error) {
	doc, err := openapi3.NewLoader().LoadFromData(spec)
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	page, err := template.New("docs").Funcs(template.FuncMap{"prose": prose}).Parse(docsTemplate)
	if err != nil {
		return nil, fmt.Errorf("parse the template: %w", err)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, newDocsPage(doc)); err != nil {
		return nil, fmt.Errorf("execute the template: %w", err)
	}
	return out.Bytes(), nil
}

// The view models of the page.
type (
	docsPage struct {
		Title, Version, About string
		Tags                  []docsTag
		Schemas               []docsSchema
	}
	docsTag struct {
		Name, About string
		Operations  []docsOperation
	}
	docsOperation struct {
		ID, Method, Path, Summary, About string
		Parameters                       []docsField
		Request                          []docsBody
		Responses                        []docsResponse
		Callbacks                        []docsOperation
	}
	docsField struct {
		Name, In, Type, Link, About string
		Required, Nullable          bool
		Rules                       []string
	}
	docsBody struct {
		Kind, Type, Link string
		Examples         []docsExample
	}
	docsExample  struct{ Summary, Text string }
	docsResponse struct {
		Status, About string
		Headers       []docsField
		Bodies        []docsBody
	}
	docsSchema struct {
		Name, Type, About string
		Rules             []string
		Fields            []docsField
	}
)

func newDocsPage(doc *openapi3.T) docsPage {
	page := docsPage{Title: doc.Info.Title, Version: doc.Info.Version, About: doc.Info.Description}
	for _, tag := range doc.Tags {
		page.Tags = append(page.Tags, docsTag{Name: tag.Name, About: tag.Description, Operations: docsOperations(doc, tag.Name)})
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		page.Schemas = append(page.Schemas, newDocsSchema(name, doc.Components.Schemas[name].Value))
	}
	return page
}

// docsOperations are a tag's, by path and then in the order in which a record lives.
func docsOperations(doc *openapi3.T, tag string) []docsOperation {
	var out []docsOperation
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item := doc.Paths.Map()[path]
		for _, method := range []string{"POST", "GET", "PATCH", "DELETE"} {
			if op := item.GetOperation(method); op != nil && slices.Contains(op.Tags, tag) {
				out = append(out, newDocsOperation(method, path, item, op))
			}
		}
	}
	return out
}

func newDocsOperation(method, path string, item *openapi3.PathItem, op *openapi3.Operation) docsOperation {
	out := docsOperation{ID: op.OperationID, Method: method, Path: path, Summary: op.Summary, About: op.Description}
	for _, p := range slices.Concat(item.Parameters, op.Parameters) {
		field := newDocsField(p.Value.Name, p.Value.Schema, p.Value.Required)
		field.In, field.About = p.Value.In, p.Value.Description
		out.Parameters = append(out.Parameters, field)
	}
	if op.RequestBody != nil {
		out.Request = docsBodies(op.RequestBody.Value.Content)
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses.Map())) {
		out.Responses = append(out.Responses, newDocsResponse(status, op.Responses.Value(status).Value))
	}
	for _, name := range slices.Sorted(maps.Keys(op.Callbacks)) {
		for url, called := range op.Callbacks[name].Value.Map() {
			for calledBy, callback := range called.Operations() {
				out.Callbacks = append(out.Callbacks, newDocsOperation(calledBy, url, called, callback))
			}
		}
	}
	return out
}

func newDocsResponse(status string, r *openapi3.Response) docsResponse {
	out := docsResponse{Status: status, Bodies: docsBodies(r.Content)}
	if r.Description != nil {
		out.About = *r.Description
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		h := r.Headers[name].Value
		field := newDocsField(name, h.Schema, h.Required)
		field.About = h.Description
		out.Headers = append(out.Headers, field)
	}
	return out
}

func docsBodies(content openapi3.Content) []docsBody {
	var out []docsBody
	for _, kind := range slices.Sorted(maps.Keys(content)) {
		media := content[kind]
		body := docsBody{Kind: kind}
		body.Type, body.Link = docsType(media.Schema)
		if media.Example != nil {
			body.Examples = append(body.Examples, docsExample{Text: pretty(media.Example)})
		}
		for _, name := range slices.Sorted(maps.Keys(media.Examples)) {
			e := media.Examples[name].Value
			body.Examples = append(body.Examples, docsExample{Summary: orDefault(e.Summary, name), Text: pretty(e.Value)})
		}
		out = append(out, body)
	}
	return out
}

func newDocsSchema(name string, s *openapi3.Schema) docsSchema {
	out := docsSchema{Name: name, About: s.Description, Rules: docsRules(s)}
	out.Type, _ = docsType(&openapi3.SchemaRef{Value: s})
	for _, property := range slices.Sorted(maps.Keys(s.Properties)) {
		out.Fields = append(out.Fields, newDocsField(property, s.Properties[property], slices.Contains(s.Required, property)))
	}
	// What must be there stands first.
	slices.SortStableFunc(out.Fields, func(a, b docsField) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return out
}

func newDocsField(name string, ref *openapi3.SchemaRef, required bool) docsField {
	field := docsField{Name: name, Required: required}
	if ref == nil || ref.Value == nil {
		return field
	}
	field.Type, field.Link = docsType(ref)
	field.About, field.Nullable = ref.Value.Description, ref.Value.Nullable
	if ref.Ref == "" {
		field.Rules = docsRules(ref.Value)
	} else {
		field.About = ""
	}
	return field
}

// docsType names a type, and the schema to link to if it has one of its own.
func docsType(ref *openapi3.SchemaRef) (name, link string) {
	if ref == nil {
		return "", ""
	}
	if ref.Ref != "" {
		name = ref.Ref[strings.LastIndexByte(ref.Ref, '/')+1:]
		return name, name
	}
	s := ref.Value
	if len(s.AllOf) == 1 {
		return docsType(s.AllOf[0])
	}
	switch {
	case s.Type.Is("array"):
		name, link = docsType(s.Items)
		return "array of " + name, link
	case s.Type.Is("object") && s.AdditionalProperties.Schema != nil:
		name, link = docsType(s.AdditionalProperties.Schema)
		return "map of " + name, link
	case s.Format == "date-time":
		return "timestamp", ""
	case s.Type == nil:
		return "", ""
	}
	return strings.Join(s.Type.Slice(), " or "), ""
}

// docsRules says what a value must keep to.
func docsRules(s *openapi3.Schema) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if len(s.Enum) > 0 {
		values := make([]string, 0, len(s.Enum))
		for _, v := range s.Enum {
			values = append(values, fmt.Sprintf("`%v`", orDefault[any](v, "null")))
		}
		add("one of %s", strings.Join(values, ", "))
	}
	if s.Min != nil {
		add("at least %v", *s.Min)
	}
	if s.Max != nil {
		add("at most %v", *s.Max)
	}
	if s.MaxLength != nil {
		add("%d to %d bytes", s.MinLength, *s.MaxLength)
	}
	if s.MaxItems != nil {
		add("at most %d items", *s.MaxItems)
	}
	if s.MaxProps != nil {
		add("at most %d keys", *s.MaxProps)
	}
	if s.Default != nil {
		add("default `%v`", s.Default)
	}
	return out
}

// pretty prints an example; text stays as it is.
func pretty(example any) string {
	if text, ok := example.(string); ok {
		return text
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(example); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// prose is the little Markdown that the contract uses: paragraphs, `code` and **bold**.
func prose(text string) template.HTML {
	var out strings.Builder
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if paragraph == "" {
			continue
		}
		out.WriteString("<p>")
		out.WriteString(inline(paragraph))
		out.WriteString("</p>")
	}
	return template.HTML(out.String()) //nolint:gosec // everything but our own tags is escaped
}

func inline(text string) string {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		escaped := template.HTMLEscapeString(part)
		if i%2 == 1 {
			out.WriteString("<code>" + escaped + "</code>")
			continue
		}
		for j, run := range strings.Split(escaped, "**") {
			if j%2 == 1 {
				run = "<strong>" + run + "</strong>"
			}
			out.WriteString(run)
		}
	}
	return out.String()
}
