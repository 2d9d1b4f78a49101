// Command openapilint checks openapi.yaml three ways and prints every finding with its place:
//
//   - kin-openapi: the document is valid OpenAPI 3.0, every example fits its schema (the server's tests
//     validate responses with the same library);
//   - the Speakeasy linter: semantic and style rules, all of them but those listed in notOurs;
//   - rules of this house that no linter knows (house.go).
//
// It exits 1 when there is a finding.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/speakeasy-api/openapi/linter"
	"github.com/speakeasy-api/openapi/openapi"
	openapilinter "github.com/speakeasy-api/openapi/openapi/linter"
	"github.com/speakeasy-api/openapi/validation"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: openapilint openapi.yaml")
		os.Exit(2)
	}
	findings, err := check(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "openapilint:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Printf("%s: %s\n", os.Args[1], f)
	}
	if len(findings) > 0 {
		fmt.Printf("%d findings\n", len(findings))
		os.Exit(1)
	}
}

// check returns the findings of all three, or an error when the file cannot be judged at all.
func check(ctx context.Context, path string) ([]string, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // the file to judge is the argument
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	var findings []string
	if err := doc.Validate(ctx, openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation(), openapi3.EnableMultiError()); err != nil {
		var many openapi3.MultiError
		if !errors.As(err, &many) {
			many = openapi3.MultiError{err}
		}
		for _, e := range many {
			findings = append(findings, "valid: "+strings.ReplaceAll(e.Error(), "\n", " "))
		}
	}
	findings = append(findings, house(doc)...)

	styled, err := style(ctx, path, raw)
	if err != nil {
		return nil, err
	}
	return append(findings, styled...), nil
}

// notOurs are the rules that do not fit this interface, each with the reason.
func notOurs() map[string]string {
	return map[string]string{
		"oas3-example-missing":                    "examples are required of bodies (house rule), not of every schema beneath them",
		"owasp-auth-insecure-schemes":             "no authentication in the document yet",
		"owasp-define-error-responses-401":        "no authentication yet",
		"owasp-protection-global-safe":            "no authentication yet; the default listens on loopback",
		"owasp-protection-global-unsafe":          "no authentication yet; the default listens on loopback",
		"owasp-protection-global-unsafe-strict":   "no authentication yet; the default listens on loopback",
		"owasp-define-error-responses-429":        "there is no rate limit unless one is configured",
		"owasp-rate-limit":                        "there is no rate limit unless one is configured",
		"owasp-security-hosts-https-oas3":         "the default listens on loopback without TLS",
		"owasp-no-additional-properties":          "unknown fields are ignored on purpose: a newer worker must not break",
		"owasp-additional-properties-constrained": "limits of maps are stated where they exist; covered_by and summaries have none",
		"owasp-string-restricted":                 "ids and subscriptions are free text within stated lengths",
		"owasp-string-limit":                      "required of requests by the house rule; responses repeat what was accepted",
		"owasp-array-limit":                       "required of requests by the house rule; responses repeat what was accepted",
		"owasp-integer-limit":                     "minimum is stated where there is one; a maximum of an int64 tells nothing",
		"owasp-integer-format":                    "counts and limits have no width worth promising",
		"owasp-no-numeric-ids":                    "ids are strings; the rule takes fencing tokens for ids",
		"owasp-define-error-responses-500":        "required of /v1 by the house rule; it cannot fail to serve a constant page",
		"owasp-define-error-validation":           "required of /v1 by the house rule; a constant page has nothing to validate",
		"style-operation-error-response":          "required of /v1 by the house rule",
		"style-operation-success-response":        "kin-openapi checks it; this rule does not know 2XX, which the callback needs",
		"style-operation-tags":                    "required of /v1 by the house rule; a callback belongs to its operation",
		"semantic-path-params":                    "kin-openapi checks it; this rule takes a callback's expression for a parameter",
		"style-oas3-host-trailing-slash":          "the server is the one that serves the document: /",
		"style-info-contact":                      "there is no contact beside the repository",
		"style-contact-properties":                "there is no contact beside the repository",
		"style-tags-alphabetical":                 "tags are in reading order",
		"style-no-verbs-in-path":                  "false findings: it splits words such as `heartbeats` at verbs within them",
		"style-component-description":             "parameters and schemas are described where they mean something; an alias of $ref is not",
		"style-oas3-parameter-description":        "kept by the house rule, which follows $ref",
		"style-paths-kebab-case":                  "kept by the house rule; this one refuses path parameters in snake_case",
	}
}

func style(ctx context.Context, path string, raw []byte) ([]string, error) {
	doc, invalid, err := openapi.Unmarshal(ctx, bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	config := linter.NewConfig()
	off := true
	for id := range notOurs() {
		config.Rules = append(config.Rules, linter.RuleEntry{ID: id, Disabled: &off})
	}
	lint, err := openapilinter.NewLinter(config)
	if err != nil {
		return nil, fmt.Errorf("set up the linter: %w", err)
	}
	for id := range notOurs() {
		if _, known := lint.Registry().GetRule(id); !known {
			return nil, fmt.Errorf("notOurs names the rule %s, which the linter does not have", id)
		}
	}
	out, err := lint.Lint(ctx, linter.NewDocumentInfo(doc, path), invalid, nil)
	if err != nil {
		return nil, fmt.Errorf("lint: %w", err)
	}
	var findings []string
	for _, e := range out.Results {
		var at *validation.Error
		if errors.As(e, &at) {
			findings = append(findings, fmt.Sprintf("%d:%d: %s: %v", at.GetLineNumber(), at.GetColumnNumber(), at.Rule, at.UnderlyingError))
			continue
		}
		findings = append(findings, e.Error())
	}
	slices.Sort(findings)
	return slices.Compact(findings), nil
}
