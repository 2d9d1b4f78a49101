package standalone

import (
	"errors"
	"sync"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// relay is a heartbeat on its way, with the time at which a replica received it from the peer.
type relay struct {
	heartbeat  coordination.Heartbeat
	receivedAt time.Time
}

// coalesced holds the newest heartbeat of each peer, in the order in which the peers came.
type coalesced struct {
	limit int

	mu      sync.Mutex
	newest  map[coordination.PeerKey]relay
	arrived []coordination.PeerKey
}

// add keeps r unless a newer one of its peer waits; false when it was dropped at the limit.
func (c *coalesced) add(r relay) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.heartbeat.Key()
	waiting, known := c.newest[key]
	switch {
	case known && waiting.receivedAt.After(r.receivedAt):
		return true
	case !known && len(c.newest) >= c.limit:
		return false
	case !known:
		c.arrived = append(c.arrived, key)
	}
	if c.newest == nil {
		c.newest = make(map[coordination.PeerKey]relay)
	}
	c.newest[key] = r
	return true
}

// take removes up to n, the longest waiting peers first; n < 0 takes all.
func (c *coalesced) take(n int) []relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 || n > len(c.arrived) {
		n = len(c.arrived)
	}
	taken := make([]relay, n)
	for i, key := range c.arrived[:n] {
		taken[i] = c.newest[key]
		delete(c.newest, key)
	}
	c.arrived = c.arrived[n:]
	if len(c.arrived) == 0 {
		c.arrived, c.newest = nil, nil
	}
	return taken
}

// message is a shutdown or an assignment; exactly one is set.
type message struct {
	shutdown   *coordination.Shutdown
	assignment *coordination.Assignment
}

var errQueueFull = errors.New("the queue is full")

// inbox is what waits for one bus to consume it.
type inbox struct {
	heartbeats coalesced
	limit      int
	signal     chan struct{}

	mu       sync.Mutex
	messages []message
}

func newInbox(maxHeartbeats, maxMessages int) *inbox {
	return &inbox{heartbeats: coalesced{limit: maxHeartbeats}, limit: maxMessages, signal: make(chan struct{}, 1)}
}

// wake makes the consumer look again; wakes that come together are one.
func (i *inbox) wake() {
	select {
	case i.signal <- struct{}{}:
	default:
	}
}

func (i *inbox) addHeartbeat(r relay) bool {
	kept := i.heartbeats.add(r)
	i.wake()
	return kept
}

func (i *inbox) addMessage(m message) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.messages) >= i.limit {
		return errQueueFull
	}
	i.messages = append(i.messages, m)
	i.wake()
	return nil
}

// head is the oldest message, which stays until it is dropped.
func (i *inbox) head() (message, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.messages) == 0 {
		return message{}, false
	}
	return i.messages[0], true
}

func (i *inbox) drop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.messages[0] = message{}
	i.messages = i.messages[1:]
}

// clear forgets everything: nobody consumes any more.
func (i *inbox) clear() {
	i.heartbeats.take(-1)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.messages = nil
}
