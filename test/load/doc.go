// Package load measures the whole service, as `make bench` prints it: heartbeats a second next to a bare net/http server
// in the same process, memory a peer, and the time from a timeout to the webhook's arrival.
//
// Only ratios of one run mean anything: a machine drifts between minutes, so that the two servers take turns.
// It carries the build tag load and asserts nothing: a number that fails on a slow machine would be no test.
package load
