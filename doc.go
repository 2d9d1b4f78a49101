// Package coordsvc is the root of the coordination service: who is alive, who is leaving and how many
// seconds are left, which subscriptions nobody serves any more, exactly one survivor to take each over,
// and a call to your own automation when it matters.
//
// # What to read, in this order
//
//   - README.md: what it does, in a tour of curl commands
//   - internal/coordination: the rules, as a pure state machine that is told the time
//   - internal/service: the coordinator that owns the core, commits what must last and hands events on;
//     it declares the ports (Store, Bus, Elector) and what the entrances call
//   - internal/api: the HTTP entrance, generated from openapi.yaml, with thin handlers
//   - internal/app: the composition root
//   - internal/standalone: the adapters of the embedded default
//   - docs/adr: why it is so
//
// This package holds the HTTP contract, which the service serves at /openapi.yaml and validates its
// tests against, and the tests of what no single package can promise: who may import whom
// (arch_test.go), and that the documents speak of files, targets and libraries that exist (docs_test.go).
// It holds no behaviour.
package coordsvc

import _ "embed"

// OpenAPI is the HTTP contract, openapi.yaml as it stands at the root of the repository. Callers must not modify it.
//
//go:embed openapi.yaml
var OpenAPI []byte
