package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// farewell bounds what is done after the context ended.
const farewell = 2 * time.Second

// Run drives the fleet until ctx ends or the rounds are over.
func Run(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	f := newFleet(o)
	operator, err := listenOperator(ctx, f)
	if err != nil {
		return err
	}
	fleetCtx, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	for _, id := range f.order {
		g.Go(func() error {
			f.workers[id].run(fleetCtx)
			return nil
		})
	}
	f.play(fleetCtx)
	stop()
	_ = g.Wait() // workers end with the context, and have no errors of their own
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := operator.close(after); err != nil {
		return fmt.Errorf("take the demonstration's webhook back: %w", err)
	}
	return nil
}

// play starts everybody and then goes through the rounds.
func (f *fleet) play(ctx context.Context) {
	f.say("%d workers in %d groups start", len(f.order), len(plans()))
	for _, id := range f.order {
		f.workers[id].begin()
	}
	for round := 0; f.options.Rounds == 0 || round < f.options.Rounds; round++ {
		if !f.playRound(ctx, round) {
			return
		}
	}
}

func (f *fleet) playRound(ctx context.Context, round int) bool {
	began := time.Now()
	at := func(timeouts float64) time.Duration {
		return time.Until(began.Add(time.Duration(timeouts * float64(f.options.HeartbeatTimeout))))
	}
	scenes := f.script(round)
	slices.SortStableFunc(scenes, func(a, b scene) int { return cmp.Compare(a.at, b.at) })
	for _, s := range scenes {
		if !pause(ctx, at(s.at)) {
			return false
		}
		s.play(ctx)
	}
	return pause(ctx, at(roundLength))
}
