// Package e2e tests the real binary from outside, as workers, operators and init systems meet it: over HTTP, by
// signals, by exit codes, and by what is on disk afterwards.
//
// The tests carry the build tag e2e. COORDSVC_KILLS sets how often the crash test kills the service.
package e2e
