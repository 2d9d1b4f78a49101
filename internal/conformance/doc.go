// Package conformance holds one suite per port of the service: Store, Elector and Bus. Every adapter runs the suite of
// its port in its tests, and what the suites assert is all that the service may rely on.
//
// A suite gets a factory that makes a fresh engine, or a fresh corner of one, for each test. It assumes nothing about
// how fast one node sees what another did: what may take time is awaited up to the factory's Within, what must
// never happen is asserted on every observation. Tests are named by the invariant they hold.
//
// The package does not test what only one engine has (files, sessions, queues); the adapter's own tests do.
package conformance
