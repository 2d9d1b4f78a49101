// Package app is the composition root: it builds the parts of the service from Options, runs them, and stops
// them in order.
//
// Run builds, in this order: logs and metrics, the store, the elector, the bus, the service, the webhooks, the
// API and the pages, and last the listener, so that whoever can connect gets an answer. Whatever fails on
// the way stops the start; what was built until then is closed again, last first.
//
// # Stopping
//
// When the context ends, the parts stop in the one order in which nothing is promised that cannot be kept
// any more. Every step has a limit of its own, so that no part can hold the others up:
//
//	readiness answers 503                    at once: balancers look elsewhere
//	event streams and long-polls end         1 s
//	no new webhook attempts; running ones    500 ms, cut ones stay queued under their id
//	leadership is released                   2 s
//	HTTP answers what it has begun           4 s
//	consuming stops                          1 s
//	store and telemetry are flushed and closed
//
// A part that fails while running stops the whole: Run then returns its error after the same steps.
//
// # What it does not do
//
// It reads neither flags, environment nor files, and it decides nothing: every rule lives in the part it
// belongs to. Nothing imports it but the command, the simulated fleet's command and tests.
package app
