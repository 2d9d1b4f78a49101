// Package api is the HTTP entrance: it turns requests into calls of service.Coordinator and service.Webhooks, and what
// they answer into the JSON that openapi.yaml promises. Types, routes and the strict server's interface are generated
// from openapi.yaml into apigen; here are one file of thin handlers a resource, and what all of them share:
//
//   - reader.go, decode.go: a JSON reader of our own, which refuses what encoding/json lets pass (repeated keys, other
//     spellings of a key, deep nesting, unpaired surrogates) and names the wrong field by JSON pointer
//   - problem.go, errors.go: the one table from error sentinels to application/problem+json
//   - handler.go: what stands around every request: panics, cross-site requests, security headers, HEAD
//   - stream.go: events as text/event-stream
//   - docs.go: the reference page, rendered from the contract at start, without a network
//
// # Invariants
//
// Every route that is served stands in openapi.yaml and the other way round; every answer fits its schema (tests hold
// both). Ranges of values are judged by coordination alone; here only form and type are. A request that is refused with
// 4xx has changed nothing. An id in a path is unescaped exactly once.
//
// POST /v1/heartbeats has a handler of its own that goes around the router and the strict server, because it is called
// thousands of times more often than everything else; it answers the same as the generated route would.
//
// # Failure
//
// A part that is away is a 503 with Retry-After, a panic a logged 500. A stream whose client does not read within the
// write timeout is cut; it resumes by Last-Event-ID. EndStreams ends all of them so that a server can be drained.
//
// # What it does not do
//
// It listens on nothing, knows no TLS and no authentication, does not limit the rate of requests, and sets no read
// timeout: those are the server's that runs it.
package api

//go:generate sh -c "cd apigen && ../../../bin/oapi-codegen -config oapi-codegen.yaml ../../../openapi.yaml"
