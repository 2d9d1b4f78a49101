package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sound = `
openapi: 3.0.3
info:
  title: x
  version: 1.0.0
  description: A document without findings.
  license: {name: Apache-2.0, url: 'https://www.apache.org/licenses/LICENSE-2.0'}
servers: [{url: /}]
tags: [{name: a, description: The only tag.}]
paths:
  /v1/widgets/{id}:
    put:
      tags: [a]
      operationId: putWidget
      summary: Replace a widget
      parameters:
        - {name: id, in: path, required: true, description: Which one., schema: {type: string}}
      requestBody:
        required: true
        content:
          application/json:
            schema: {$ref: '#/components/schemas/Widget'}
            example: {name: w}
      responses:
        '200':
          description: The widget.
          content:
            application/json:
              schema: {$ref: '#/components/schemas/Widget'}
              example: {name: w}
        default:
          description: A problem.
          content:
            application/problem+json:
              schema: {type: object}
              example: {title: wrong}
components:
  schemas:
    Widget:
      type: object
      properties:
        name: {type: string, maxLength: 9, description: What it is called.}
`

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, new, finding string }{
		{name: "a sound document has no findings"},
		{"a property in another case", "name: {type", "fullName: {type", "Widget.fullName: not snake_case"},
		{"a path in another case", "/v1/widgets/", "/v1/my_widgets/", `segment "my_widgets"`},
		{"a parameter without a description", "description: Which one., ", "", "parameter id has no description"},
		{"a property described nowhere", ", description: What it is called.", "", "name is described nowhere"},
		{"a body without an example", "            example: {name: w}\n", "", "PUT /v1/widgets/{id} request application/json: no example"},
		{"an example that does not fit", "            example: {name: w}", "            example: {name: 3}", "value must be a string"},
		{"an error in another form", "application/problem+json", "application/json", "errors are application/problem+json"},
		{"no response for wrong input", "        default:", "        '500':", "takes input and has no response for wrong input"},
		{"no response for a failure", "        default:", "        '400':", "no 500 and no default response"},
		{"a request's string without a limit", "maxLength: 9, ", "", "a string without maxLength"},
		{"a key that OpenAPI does not know", "      summary: Replace a widget", "      summary: Replace a widget\n      sumary: x", "sumary"},
		{"an operation without a summary", "      summary: Replace a widget\n", "", "no summary"},
		{"an operation without its tag", "      tags: [a]\n", "", "exactly one tag wanted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(sound, c.old) {
				t.Fatalf("the document does not contain %q", c.old)
			}
			file := filepath.Join(t.TempDir(), "openapi.yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(sound, c.old, c.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			findings, err := check(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(findings, "\n")
			if (c.finding == "") != (all == "") || !strings.Contains(all, c.finding) {
				t.Errorf("findings:\n%s\nwant one with %q", all, c.finding)
			}
		})
	}
}
