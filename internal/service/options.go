package service

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// Options configure a Service. Zero values of optional fields take the defaults named.
type Options struct {
	Store   Store
	Elector Elector
	Bus     Bus
	// Core rules groups, timeouts and peer limits.
	Core   coordination.Config
	Limits coordination.Limits
	// JournalSize bounds the events kept; default 10,000. Events past JournalFloor stay all the same.
	JournalSize int
	// JournalFloor is the newest position that no reader inside the service needs any more; nil when there is no such reader.
	JournalFloor func() Position
	// AssignmentTTL is how long an assignment waits for its target; default 10 min.
	AssignmentTTL time.Duration
	// Tick is the longest time between two looks for deadlines that passed; default 50 ms.
	Tick time.Duration
	// Flush is how often roster changes are written; default 250 ms, under the second that is promised.
	Flush time.Duration
	// Now is the clock, with its monotonic reading; default time.Now.
	Now     func() time.Time
	Logger  *slog.Logger
	Metrics Metrics
	// Jitter returns a number in [0,1); default math/rand.
	Jitter func() float64
}

func (o *Options) setDefaults() {
	if o.JournalSize == 0 {
		o.JournalSize = 10_000
	}
	if o.AssignmentTTL == 0 {
		o.AssignmentTTL = 10 * time.Minute
	}
	if o.Tick == 0 {
		o.Tick = 50 * time.Millisecond
	}
	if o.Flush == 0 {
		o.Flush = 250 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
}

func (o *Options) validate() error {
	switch {
	case o.Store == nil || o.Elector == nil || o.Bus == nil:
		return errors.New("service: Store, Elector and Bus are required")
	case o.Core.Default.HeartbeatTimeout <= 0:
		return errors.New("service: the heartbeat timeout must be above 0")
	case o.Core.PeerRetention <= 0 || o.Core.MaxPeers <= 0 || o.Core.MaxPeersPerGroup <= 0:
		return errors.New("service: peer retention and peer limits must be above 0")
	case o.JournalSize < 1:
		return fmt.Errorf("service: journal size %d must be above 0", o.JournalSize)
	}
	for name, g := range o.Core.Groups {
		if g.HeartbeatTimeout <= 0 {
			return fmt.Errorf("service: heartbeat timeout of group %q must be above 0", name)
		}
	}
	return o.Limits.Validate()
}
