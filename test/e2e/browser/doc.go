// Package browser drives the dashboard of the real binary in a real Chromium: what a person sees change, without
// reloading, while workers beat, drain, vanish and come back, and while the service itself restarts.
//
// The tests need the build tag e2e and a Chromium in PATH (scripts/install-test-deps); without one they fail.
// Each starts its own service on its own port and opens its own browser context. A test fails, whatever else it
// looks at, when the page writes an error to the console or violates its Content-Security-Policy.
package browser
