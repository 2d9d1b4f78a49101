package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// worker is one simulated process. The script switches it on and off and makes it drain; its own loop beats and takes
// over orphans, as a real worker would.
type worker struct {
	fleet     *fleet
	group, id string
	home      []string
	// wake ends the wait before the next heartbeat.
	wake chan struct{}

	mu      sync.Mutex
	random  *rand.Rand
	running bool
	// starts counts the incarnations.
	starts        int
	subscriptions []string
	// extra is reported besides: the script's way to a conflict.
	extra string
	// inFlight counts down while draining.
	inFlight int64
	draining bool
	// stuck keeps the work in flight from getting less, so that the drain is overdue.
	stuck bool
	// finished: the last heartbeat said that nothing is left.
	finished bool
	// waiting are claims that are not ready yet, with the announcement made.
	waiting map[string]bool
}

// begin starts the process: a new incarnation that serves what is at home here.
func (w *worker) begin() {
	w.fleet.giveBack(w)
	w.mu.Lock()
	w.starts++
	w.running, w.draining, w.stuck, w.finished, w.extra = true, false, false, false, ""
	w.subscriptions = slices.Clone(w.home)
	w.inFlight = w.random.Int64N(40) + 5
	w.waiting = map[string]bool{}
	w.mu.Unlock()
	w.hurry()
}

// crash ends the process without a word.
func (w *worker) crash() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
}

func (w *worker) hurry() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) change(edit func()) {
	w.mu.Lock()
	edit()
	w.mu.Unlock()
	w.hurry()
}

func (w *worker) drop(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscriptions = slices.DeleteFunc(w.subscriptions, func(s string) bool { return slices.Contains(names, s) })
}

// drain announces that the worker leaves within d. A worker that is not stuck finishes early.
func (w *worker) drain(ctx context.Context, intent string, d time.Duration, stuck bool) {
	w.mu.Lock()
	if !w.running {
		w.mu.Unlock()
		return
	}
	w.draining, w.stuck = true, stuck
	w.inFlight = max(w.inFlight, 8)
	body := object{
		"group": w.group, "instance_id": w.id, "incarnation": w.incarnation(), "intent": intent,
		"drain_timeout_seconds": d.Seconds(), "in_flight_count": w.inFlight,
		"metadata": object{"host": "demo", "deployment": w.starts + 1},
	}
	w.mu.Unlock()
	if err := w.fleet.client.call(ctx, http.MethodPost, "/v1/shutdowns", body, nil); err != nil {
		w.fleet.trouble(ctx, err)
	}
	w.hurry()
}

// incarnation needs the lock.
func (w *worker) incarnation() string { return fmt.Sprintf("%s.%d", w.id, w.starts) }

// run beats until the context ends.
func (w *worker) run(ctx context.Context) {
	wait := time.Duration(0)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-w.wake:
			timer.Stop()
		case <-timer.C:
		}
		wait = w.beat(ctx)
	}
}

// beat sends one heartbeat, acts on the answer, and says when to send the next.
func (w *worker) beat(ctx context.Context) time.Duration {
	third := w.fleet.options.HeartbeatTimeout / 3
	message, alive := w.message()
	if !alive {
		return third
	}
	var reply heartbeatReply
	err := w.fleet.client.call(ctx, http.MethodPost, "/v1/heartbeats", message, &reply)
	w.fleet.trouble(ctx, err)
	if err != nil {
		return third / 2
	}
	w.follow(ctx, &reply)
	if reply.NextHeartbeat > 0 {
		third = time.Duration(reply.NextHeartbeat * float64(time.Second))
	}
	return third
}

// message makes the next heartbeat; false when the process does not run.
func (w *worker) message() (object, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return nil, false
	}
	w.work()
	reported := slices.Clone(w.subscriptions)
	if w.extra != "" {
		reported = append(reported, w.extra)
	}
	if w.finished {
		w.running, reported = false, []string{}
	}
	return object{
		"group": w.group, "instance_id": w.id, "incarnation": w.incarnation(),
		"timestamp": time.Now().UTC().Format(time.RFC3339Nano), "subscriptions": reported, "in_flight_count": w.inFlight,
		"load_factor": float64(len(reported)) / float64(2*len(w.home)),
		"labels":      map[string]string{"version": fmt.Sprintf("1.%d", w.starts), "zone": string(rune('a' + len(w.id)%3))},
	}, true
}

// work lets time pass over the work in flight; it needs the lock.
func (w *worker) work() {
	switch {
	case w.draining && w.stuck:
		w.inFlight = max(w.inFlight-1, 1)
	case w.draining:
		w.inFlight = max(w.inFlight-w.inFlight/2-1, 0)
		w.finished = w.inFlight == 0
	default:
		w.inFlight = max(w.inFlight+w.random.Int64N(11)-5, 0)
	}
}

// follow acts on what the service answered.
func (w *worker) follow(ctx context.Context, reply *heartbeatReply) {
	w.mu.Lock()
	able := w.running && !w.draining
	w.mu.Unlock()
	if !able {
		return
	}
	for _, d := range reply.Directives {
		if d.Type == "drain" {
			w.fleet.say("%s is asked by an operator to drain, and does", w.id)
			w.drain(ctx, "maintenance", 2*w.fleet.options.HeartbeatTimeout, false)
			return
		}
	}
	for _, a := range reply.Assignments {
		w.accept(ctx, a)
	}
	for _, c := range reply.Claims {
		w.honour(c)
	}
	w.takeOver(ctx, len(reply.Claims))
}

func (w *worker) accept(ctx context.Context, a assignment) {
	if err := w.fleet.client.call(ctx, http.MethodPost, "/v1/assignments/"+a.ID+"/ack", nil, nil); err != nil {
		return // it comes with the next answer again
	}
	for _, s := range a.Subscriptions {
		w.add(s)
	}
	w.fleet.say("%s accepts the assignment of %s", w.id, list(a.Subscriptions))
}

func (w *worker) add(subscription string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.subscriptions, subscription) {
		w.subscriptions = append(w.subscriptions, subscription)
	}
}

// honour starts serving what was claimed, once it is safe: the old owner may still be at work.
func (w *worker) honour(c claim) {
	if c.Ready {
		w.add(c.Subscription)
		w.hurry()
		w.fleet.say("%s takes over %s (fencing token %d)", w.id, c.Subscription, c.FencingToken)
		return
	}
	w.mu.Lock()
	told := w.waiting[c.ID]
	w.waiting[c.ID] = true
	w.mu.Unlock()
	if !told {
		w.fleet.say("%s holds the claim on %s and waits until its old owner is done", w.id, c.Subscription)
	}
}

// takeOver claims one orphan of the group at a time. Any number of survivors may try; the service lets one have it.
func (w *worker) takeOver(ctx context.Context, held int) {
	w.mu.Lock()
	hesitant := held > 0 || len(w.subscriptions) > 2*len(w.home) || w.random.IntN(3) == 0
	w.mu.Unlock()
	if hesitant {
		return
	}
	orphans, err := w.fleet.client.claimable(ctx, w.group)
	if err != nil || len(orphans) == 0 {
		return
	}
	w.mu.Lock()
	chosen := orphans[w.random.IntN(len(orphans))]
	w.mu.Unlock()
	var granted claim
	err = w.fleet.client.call(ctx, http.MethodPost, "/v1/claims",
		object{"group": w.group, "instance_id": w.id, "subscription": chosen.Subscription}, &granted)
	var refused *statusError
	switch {
	case errors.As(err, &refused) && refused.status == http.StatusConflict:
		w.fleet.say("%s is too late for %s", w.id, chosen.Subscription)
	case err == nil:
		w.fleet.say("%s claims %s, which %s left", w.id, chosen.Subscription, chosen.InstanceID)
		w.honour(granted)
	}
}
