package service

import (
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// Metrics is told what happens. Implementations are safe for concurrent use and return at once:
// Heartbeat stands in the hot path.
type Metrics interface {
	Heartbeat(outcome coordination.Outcome, entrance coordination.Entrance)
	Shutdown(outcome coordination.Outcome)
	// Claim counts claim requests by result: granted, repeated, refused.
	Claim(result string)
	// Event counts committed events, on every replica, by type.
	Event(t coordination.EventType)
	// Commit measures one store transaction of the service.
	Commit(d time.Duration, err error)
	// Dropped counts what was given up at a limit or a fault, by reason.
	Dropped(reason string, n int)
	// Paused measures an interruption of the service's own observation.
	Paused(gap time.Duration)
}

type noMetrics struct{}

func (noMetrics) Heartbeat(coordination.Outcome, coordination.Entrance) {}
func (noMetrics) Shutdown(coordination.Outcome)                         {}
func (noMetrics) Claim(string)                                          {}
func (noMetrics) Event(coordination.EventType)                          {}
func (noMetrics) Commit(time.Duration, error)                           {}
func (noMetrics) Dropped(string, int)                                   {}
func (noMetrics) Paused(time.Duration)                                  {}
