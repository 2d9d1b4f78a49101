package standalone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

// ElectorOptions configures NewElector. Only Identity is required.
type ElectorOptions struct {
	// Identity is this replica's stable unique name.
	Identity string
	// Shared is the leader key to compete for; without it the elector is alone and always wins.
	Shared *SharedLeaderState
	// Epoch takes a new term's epoch; without it the shared state counts.
	Epoch service.EpochSource
	// RetryMin and RetryMax bound the growing pause after a failed attempt of Run (100 ms, 5 s).
	RetryMin, RetryMax time.Duration
	// Abstain is how long Run stands back after Release while others may compete, so that a handoff is
	// one (5 s). An elector that is alone does not stand back.
	Abstain time.Duration
	Logger  *slog.Logger
	Now     func() time.Time
}

const (
	defaultAcquireTimeout = 10 * time.Second
	defaultAbstain        = 5 * time.Second
)

func (o ElectorOptions) withDefaults() (ElectorOptions, error) {
	if o.Identity == "" {
		return o, errors.New("elector: Identity is empty")
	}
	if o.RetryMin < 0 || o.RetryMax < 0 || o.Abstain < 0 {
		return o, errors.New("elector: RetryMin, RetryMax and Abstain must not be negative")
	}
	if o.RetryMin == 0 {
		o.RetryMin = 100 * time.Millisecond
	}
	if o.RetryMax == 0 {
		o.RetryMax = 5 * time.Second
	}
	if o.RetryMax < o.RetryMin {
		return o, errors.New("elector: RetryMax is below RetryMin")
	}
	switch {
	case o.Shared == nil:
		o.Shared, o.Abstain = NewSharedLeaderState(), 0
	case o.Abstain == 0:
		o.Abstain = defaultAbstain
	}
	o.Logger = loggerOrDiscard(o.Logger, "elector")
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Elector is the in-memory service.Elector. It has no lease to lose: a term ends by Release,
// ForceLoseLeadership or the end of Run.
type Elector struct {
	options   ElectorOptions
	shared    *SharedLeaderState
	listeners *listeners

	// attempt serialises TryAcquire; a channel, so that waiting for it ends with the context.
	attempt chan struct{}
	// abstention is that of the last Release; nil before.
	abstention atomic.Pointer[abstention]
	health     atomic.Pointer[service.PartHealth]
}

var _ service.Elector = (*Elector)(nil)

// NewElector returns an elector that does not lead yet.
func NewElector(options ElectorOptions) (*Elector, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Elector{
		options:   options,
		shared:    options.Shared,
		listeners: newListeners(options.Logger),
		attempt:   make(chan struct{}, 1),
	}
	e.setHealth(true, "")
	return e, nil
}

// Identity implements service.Elector.
func (e *Elector) Identity() string { return e.options.Identity }

// IsLeader implements service.Elector.
func (e *Elector) IsLeader() bool { return e.shared.view(e).mine }

// CurrentLeader implements service.Elector.
func (e *Elector) CurrentLeader() string { return e.shared.view(e).leader }

// Epoch implements service.Elector.
func (e *Elector) Epoch() uint64 { return e.shared.view(e).epoch }

// Fence implements service.Elector.
func (e *Elector) Fence() (service.Fence, bool) {
	v := e.shared.view(e)
	if !v.mine {
		return service.Fence{}, false
	}
	return v.fence, true
}

// Holds says whether a term's session has the leader key at this moment: the Holds of StoreOptions.
func (e *Elector) Holds(f service.Fence) bool { return e.shared.holds(f) }

// TryAcquire implements service.Elector. Leadership is reported only after the epoch was
// taken; when that fails the key is given back.
func (e *Elector) TryAcquire(ctx context.Context, timeout time.Duration) (bool, error) {
	if timeout == 0 {
		timeout = defaultAcquireTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v: %w", timeout, service.ErrUnavailable))
	defer cancel()
	if ctx.Err() != nil {
		return false, fmt.Errorf("acquire leadership: %w", context.Cause(ctx))
	}
	select {
	case e.attempt <- struct{}{}:
		defer func() { <-e.attempt }()
	case <-ctx.Done():
		return false, fmt.Errorf("acquire leadership: %w", context.Cause(ctx))
	}
	if e.IsLeader() {
		return true, nil
	}
	session := e.options.Identity + "/" + rand.Text()
	if !e.shared.take(e, session) {
		return false, nil
	}
	leads, err := e.beginTerm(ctx, session)
	if err != nil {
		e.shared.free(e, e.lost)
		e.setHealth(false, "the epoch of a new term could not be taken: "+err.Error())
		return false, fmt.Errorf("acquire leadership: take the epoch: %w", err)
	}
	e.setHealth(true, "")
	return leads, nil
}

func (e *Elector) beginTerm(ctx context.Context, session string) (bool, error) {
	epoch, err := e.takeEpoch(ctx, session)
	if err != nil {
		return false, err
	}
	return e.shared.lead(session, epoch, e.won)
}

func (e *Elector) takeEpoch(ctx context.Context, session string) (uint64, error) {
	if e.options.Epoch == nil {
		return e.shared.nextEpoch(), nil
	}
	return e.options.Epoch(ctx, e.options.Identity, service.Fence{Session: session})
}

// Release implements service.Elector. Run then stands back for a while. To stop for good, end Run's context instead.
func (e *Elector) Release(context.Context) error {
	e.shared.free(e, func(f service.Fence, take uint64) {
		e.abstention.Store(&abstention{until: e.options.Now().Add(e.options.Abstain), take: take})
		e.lost(f, take)
	})
	return nil
}

// ForceLoseLeadership ends the term as if it had been revoked; for tests. Run campaigns again at once.
func (e *Elector) ForceLoseLeadership() { e.shared.free(e, e.lost) }

// Renew implements service.Elector; there is no lease, so it only reports.
func (e *Elector) Renew(ctx context.Context) (bool, error) {
	if ctx.Err() != nil {
		return false, fmt.Errorf("renew leadership: %w", context.Cause(ctx))
	}
	return e.IsLeader(), nil
}

// OnLeaderChange implements service.Elector.
func (e *Elector) OnLeaderChange(listener func(service.LeaderChange)) int {
	return e.listeners.add(listener)
}

// RemoveLeaderChangeCallback implements service.Elector. The listener is not called any more when it returns, save for
// a call that had begun.
func (e *Elector) RemoveLeaderChangeCallback(handle int) { e.listeners.remove(handle) }

// Health implements service.Elector.
func (e *Elector) Health() service.PartHealth { return *e.health.Load() }

func (e *Elector) setHealth(ready bool, reason string) {
	previous := e.health.Load()
	if previous != nil && previous.Ready == ready && previous.Reason == reason {
		return
	}
	e.health.Store(&service.PartHealth{Name: "elector", Kind: "in-memory", Ready: ready, Reason: reason, Since: e.options.Now()})
}

// won and lost are called under the shared lock, so that edges are queued in the order in which they happen.
func (e *Elector) won(f service.Fence) {
	e.options.Logger.Info("leadership gained", "identity", e.options.Identity, "epoch", f.Epoch)
	e.listeners.notify(service.LeaderChange{Leading: true, Fence: f})
}

func (e *Elector) lost(f service.Fence, _ uint64) {
	e.options.Logger.Info("leadership lost", "identity", e.options.Identity, "epoch", f.Epoch)
	e.listeners.notify(service.LeaderChange{Leading: false, Fence: f})
}

// Run implements service.Elector: it waits for the key to be free, takes it, and does so again when the term ends.
func (e *Elector) Run(ctx context.Context) error {
	defer func() { _ = e.Release(context.WithoutCancel(ctx)) }()
	retry := e.options.RetryMin
	for {
		if !e.awaitChance(ctx) {
			return nil
		}
		_, err := e.TryAcquire(ctx, 0)
		if err == nil {
			retry = e.options.RetryMin
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		e.options.Logger.Warn("acquiring leadership failed", "error", err, "retry_in", retry)
		if !pause(ctx, retry) {
			return nil
		}
		retry = min(2*retry, e.options.RetryMax)
	}
}

// awaitChance returns true when the key is free and this elector may try, false when ctx ended.
func (e *Elector) awaitChance(ctx context.Context) bool {
	for ctx.Err() == nil {
		v := e.shared.view(e)
		left := e.abstention.Load().left(v.takes, e.options.Now())
		if v.free && left <= 0 {
			return true
		}
		awaitChange(ctx, v.changed, left)
	}
	return false
}

// abstention is how long an elector that released stands back. It ends early when somebody else has
// taken the key since: then the handoff is done.
type abstention struct {
	until time.Time
	take  uint64
}

func (a *abstention) left(takes uint64, now time.Time) time.Duration {
	if a == nil || takes > a.take {
		return 0
	}
	return a.until.Sub(now)
}

// awaitChange returns when the key was taken or freed, ctx ended, or limit (0: none) has passed.
func awaitChange(ctx context.Context, changed <-chan struct{}, limit time.Duration) {
	var expired <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-changed:
	case <-expired:
	case <-ctx.Done():
	}
}

// pause is false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
