package standalone

import (
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/coordsvc/coordsvc/internal/service"
)

// listeners calls leader-change listeners in registration order, one edge after the other, on one goroutine that
// lives only while there are edges to tell. Whoever notifies never waits.
type listeners struct {
	logger *slog.Logger

	mu          sync.Mutex
	lastHandle  int
	registered  []listener
	edges       []edge
	dispatching bool
}

type listener struct {
	handle int
	call   func(service.LeaderChange)
}

// edge is one change and those who were registered when it happened.
type edge struct {
	change    service.LeaderChange
	listeners []listener
}

func newListeners(logger *slog.Logger) *listeners { return &listeners{logger: logger} }

func (l *listeners) add(call func(service.LeaderChange)) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastHandle++
	l.registered = append(slices.Clip(l.registered), listener{handle: l.lastHandle, call: call})
	return l.lastHandle
}

func (l *listeners) remove(handle int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.registered = slices.DeleteFunc(slices.Clone(l.registered), func(r listener) bool { return r.handle == handle })
}

func (l *listeners) isRegistered(handle int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.registered, func(r listener) bool { return r.handle == handle })
}

func (l *listeners) notify(change service.LeaderChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.registered) == 0 {
		return
	}
	l.edges = append(l.edges, edge{change: change, listeners: l.registered})
	if !l.dispatching {
		l.dispatching = true
		go l.dispatch()
	}
}

func (l *listeners) dispatch() {
	for {
		e, ok := l.next()
		if !ok {
			return
		}
		for _, r := range e.listeners {
			if l.isRegistered(r.handle) {
				l.call(r, e.change)
			}
		}
	}
}

// next ends the dispatching when there is nothing left to tell.
func (l *listeners) next() (edge, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.edges) == 0 {
		l.dispatching = false
		return edge{}, false
	}
	e := l.edges[0]
	l.edges = l.edges[1:]
	return e, true
}

func (l *listeners) call(r listener, change service.LeaderChange) {
	defer func() {
		if p := recover(); p != nil {
			l.logger.Error("leader change listener panicked", "handle", r.handle, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	r.call(change)
}
