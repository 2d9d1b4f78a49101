package demo

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// scene is one thing that happens, at a time given in heartbeat timeouts since the round began.
type scene struct {
	at   float64
	play func(context.Context)
}

// roundLength is how long a round of the script takes, in heartbeat timeouts.
const roundLength = 14

// script is one round. With a timeout of 4 s it takes a minute, but a crash, a drain and a conflict show within the
// first 15 s.
func (f *fleet) script(round int) []scene {
	timeout := f.options.HeartbeatTimeout
	beats := func(n float64) time.Duration { return time.Duration(n * float64(timeout)) }
	w := func(id string) *worker { return f.workers[id] }
	roll := func(at float64, id string) []scene {
		return []scene{
			{at, func(ctx context.Context) {
				f.say("%s is rolled: it drains for up to %s and restarts under the same id", id, beats(2.5))
				w(id).drain(ctx, "graceful", beats(2.5), false)
			}},
			{at + 2.2, func(context.Context) {
				w(id).begin()
				f.say("%s is back as a new incarnation", id)
			}},
		}
	}
	scenes := []scene{
		{0.5, func(context.Context) {
			f.say("billing-3 crashes: no word, no heartbeat")
			w("billing-3").crash()
		}},
		{1, func(context.Context) {
			f.say("search-4 begins to report catalogue.en, which search-1 serves: duplicate processing")
			w("search-4").change(func() { w("search-4").extra = "catalogue.en" })
		}},
		{1.5, func(ctx context.Context) { f.ghost(ctx, beats(4)) }},
		{2, func(ctx context.Context) {
			f.say("search-2 announces %s to drain, and will not make it", beats(1.5))
			w("search-2").drain(ctx, "preemption", beats(1.5), true)
		}},
		{4.5, func(context.Context) {
			f.say("search-4 lets go of catalogue.en")
			w("search-4").change(func() { w("search-4").extra = "" })
		}},
		{5.5, func(context.Context) {
			f.say("search-2 finishes at last, after its deadline")
			w("search-2").change(func() { w("search-2").stuck, w("search-2").inFlight = false, 0 })
		}},
		{6, func(context.Context) {
			w("billing-3").begin()
			f.say("billing-3 comes back; who took its work over hands it back")
		}},
		{7, func(ctx context.Context) {
			f.say("orders-5 reports that it is ill and is gone at once")
			w("orders-5").drain(ctx, "health_failure", 0, false)
			w("orders-5").crash()
		}},
		{7.5, func(context.Context) { w("search-2").begin() }},
		{9, func(context.Context) {
			f.say("a rack loses power: billing-1, billing-2 and billing-4 go silent together (mass staleness)")
			for _, id := range []string{"billing-1", "billing-2", "billing-4"} {
				w(id).crash()
			}
		}},
		{10.5, func(context.Context) { w("orders-5").begin() }},
		{12.5, func(context.Context) {
			f.say("the rack is back")
			for _, id := range []string{"billing-1", "billing-2", "billing-4"} {
				w(id).begin()
			}
		}},
	}
	scenes = append(scenes, roll(0.8, fmt.Sprintf("orders-%d", 1+round%4))...)
	return append(scenes, roll(4, fmt.Sprintf("orders-%d", 1+(round+1)%4))...)
}

// ghost makes a peer that was never heard: it announces its shutdown before its first heartbeat and takes it back.
func (f *fleet) ghost(ctx context.Context, window time.Duration) {
	announce := f.client.call(ctx, http.MethodPost, "/v1/shutdowns", object{
		"group": "search", "instance_id": "search-ghost", "intent": "maintenance",
		"drain_timeout_seconds": window.Seconds(), "subscriptions": []string{},
	}, nil)
	if announce != nil {
		f.trouble(ctx, announce)
		return
	}
	if err := f.client.call(ctx, http.MethodDelete, "/v1/peers/search-ghost/shutdown?group=search", nil, nil); err != nil {
		f.trouble(ctx, err)
		return
	}
	f.say("search-ghost announced its shutdown, took it back and was never heard: its status is unknown")
}
