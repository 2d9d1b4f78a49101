package standalone

import (
	"fmt"
	"sync"

	"github.com/coordsvc/coordsvc/internal/service"
)

// SharedLeaderState is the leader key that several electors of one process compete for: the first wins, the others
// get false until it is free again. Its zero value is not usable; see NewSharedLeaderState.
type SharedLeaderState struct {
	mu sync.Mutex
	// holder is who holds the key; nil when it is free. It leads only when reported.
	holder   *Elector
	fence    service.Fence
	reported bool
	// takes counts how often the key was taken.
	takes uint64
	// epoch is the newest epoch that was led under; counter gives epochs where no EpochSource does.
	epoch   uint64
	counter uint64
	// changed is closed and replaced when the key is taken or freed.
	changed chan struct{}
}

// NewSharedLeaderState returns a free leader key.
func NewSharedLeaderState() *SharedLeaderState {
	return &SharedLeaderState{changed: make(chan struct{})}
}

// take gives the key to e under a new session, if it is free.
func (s *SharedLeaderState) take(e *Elector, session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil {
		return false
	}
	s.holder, s.fence, s.reported = e, service.Fence{Session: session}, false
	s.takes++
	s.notify()
	return true
}

// lead makes the holder of a session the leader under its epoch; false when the session has ended meanwhile. An epoch
// that does not grow is refused: two terms with one fencing token could not be told apart.
func (s *SharedLeaderState) lead(session string, epoch uint64, won func(service.Fence)) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == nil || s.fence.Session != session {
		return false, nil
	}
	if epoch <= s.epoch {
		return false, fmt.Errorf("the new term's epoch %d is not above the last one, %d", epoch, s.epoch)
	}
	s.fence.Epoch, s.reported = epoch, true
	s.epoch, s.counter = epoch, max(s.counter, epoch)
	s.notify()
	won(s.fence)
	return true, nil
}

// free ends the term of e, whatever its session; a term that was reported is told to lost, with the number of its take.
func (s *SharedLeaderState) free(e *Elector, lost func(f service.Fence, take uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != e {
		return
	}
	fence, reported := s.fence, s.reported
	s.holder, s.fence, s.reported = nil, service.Fence{}, false
	s.notify()
	if reported {
		lost(fence, s.takes)
	}
}

// notify wakes those who wait for the key. The lock is held.
func (s *SharedLeaderState) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// view is what an elector sees at one instant.
type leaderView struct {
	leader  string
	fence   service.Fence
	mine    bool
	free    bool
	takes   uint64
	epoch   uint64
	changed <-chan struct{}
}

func (s *SharedLeaderState) view(e *Elector) leaderView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := leaderView{free: s.holder == nil, takes: s.takes, epoch: s.epoch, changed: s.changed}
	if s.holder != nil && s.reported {
		v.leader, v.fence, v.mine = s.holder.Identity(), s.fence, s.holder == e
	}
	return v
}

// holds says whether a session has the key now. An Epoch of 0 is a term that is still taking its epoch.
func (s *SharedLeaderState) holds(f service.Fence) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder != nil && f.Session == s.fence.Session && (f.Epoch == 0 || f.Epoch == s.fence.Epoch)
}

// nextEpoch counts epochs up for electors without an EpochSource.
func (s *SharedLeaderState) nextEpoch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counter++
	return s.counter
}
