package standalone

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// Exchange connects the buses of several replicas in one process.
type Exchange struct {
	// mu orders changes of state; publishers only load it.
	mu    sync.Mutex
	state atomic.Pointer[exchangeState]
}

// exchangeState is immutable.
type exchangeState struct {
	// members are the buses that consume now.
	members []*Bus
	// down is why nothing can be published or consumed; nil while it can.
	down error
}

// NewExchange returns an exchange without members.
func NewExchange() *Exchange {
	e := &Exchange{}
	e.state.Store(&exchangeState{})
	return e
}

// Cut takes the bus away from everybody, for tests of its loss: consuming stops with reason, publishing fails, heartbeats
// are kept newest per peer until Restore.
func (e *Exchange) Cut(reason error) {
	if reason == nil {
		reason = errors.New("the exchange is cut")
	}
	e.change(func(s *exchangeState) { s.down = reason })
}

// Restore ends a Cut.
func (e *Exchange) Restore() {
	e.change(func(s *exchangeState) { s.down = nil })
}

func (e *Exchange) join(b *Bus) {
	e.change(func(s *exchangeState) { s.members = append(slices.Clone(s.members), b) })
}

func (e *Exchange) leave(b *Bus) {
	e.change(func(s *exchangeState) {
		s.members = slices.DeleteFunc(slices.Clone(s.members), func(m *Bus) bool { return m == b })
	})
}

// change replaces the state and wakes every member to look at it.
func (e *Exchange) change(edit func(*exchangeState)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := *e.state.Load()
	edit(&next)
	e.state.Store(&next)
	for _, b := range next.members {
		b.inbox.wake()
	}
}

// others reports whether anybody but b consumes.
func (s *exchangeState) others(b *Bus) bool {
	for _, m := range s.members {
		if m != b {
			return true
		}
	}
	return false
}
