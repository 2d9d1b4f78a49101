package conformance

import (
	"context"
	"testing"
	"time"
)

const defaultWithin = 5 * time.Second

// within is the factory's patience, or a default.
func within(d time.Duration) time.Duration {
	if d == 0 {
		return defaultWithin
	}
	return d
}

// eventually polls until holds is true. Only engines that cannot be waited for otherwise are polled.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	const interval = 2 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// receive takes the next value, or fails after limit.
func receive[T any](t *testing.T, limit time.Duration, what string, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatalf("not within %v: %s", limit, what)
		panic("unreachable")
	}
}

// background runs fn until the test ends or stop is called, which waits for it.
func background(t *testing.T, fn func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}
