// Package engine gives a test a Consul or a RabbitMQ of its own: real servers on loopback, one node or three, which
// can be killed, started again and paused, and a TCP proxy that breaks the way to them. Tests import it; the service
// does not.
//
// The servers are those of scripts/services, called with a SERVICES_DIR of their own, so that neither two tests nor two
// packages that run side by side disturb each other. They are gone when the test ends, with all they wrote. A test
// process that was killed cannot clean up: the next one that starts an engine does it.
//
// Invariants: an engine that was started serves. No test is skipped because an engine cannot be had: it fails, with
// the output of the script. Addresses stay what they are over Kill, Start, Pause, Resume and over all that a Proxy does.
//
// Failure behaviour: what goes wrong later ends the test with tb.Fatalf, so that the methods are called from the
// test's own goroutine; an engine from RunConsul or RunRabbitMQ, which belongs to no test, panics. When a test fails,
// the end of its engines' logs is in its output.
//
// It does not build or install by itself, does not talk to the servers in their protocols, and does not limit how long
// a test uses them.
package engine
