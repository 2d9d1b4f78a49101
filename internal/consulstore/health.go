package consulstore

import (
	"sync"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

// health joins two facts: whether the last probe was answered, and whether the last write was. A token that may
// read but not write is in trouble although every read works.
type health struct {
	now func() time.Time

	mu      sync.Mutex
	reading error
	writing error
	asked   bool
	part    service.PartHealth
}

func newHealth(now func() time.Time) *health {
	return &health{now: now, part: service.PartHealth{
		Name: "store", Kind: "consul", Reason: "Consul has not been asked yet", Since: now(),
	}}
}

// read notes a probe's outcome.
func (h *health) read(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reading = err
	h.judge()
}

// wrote notes a write's outcome, where Consul is to blame for it.
func (h *health) wrote(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writing, h.asked = err, true
	if err == nil {
		h.reading = nil
	}
	h.judge()
}

// mustWrite says whether only a write can tell that all is well.
func (h *health) mustWrite() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.asked || h.writing != nil
}

// judge keeps Since while readiness does not change. Under the lock.
func (h *health) judge() {
	reason := ""
	switch {
	case h.writing != nil:
		reason = h.writing.Error()
	case h.reading != nil:
		reason = h.reading.Error()
	case !h.asked:
		return
	}
	if ready := reason == ""; ready != h.part.Ready {
		h.part.Ready, h.part.Since = ready, h.now()
	}
	h.part.Reason = reason
}

func (h *health) get() service.PartHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.part
}
