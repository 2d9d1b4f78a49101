package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// plan is a group before it starts: how many workers, and what each of them serves.
type plan struct {
	group   string
	workers int
	// topics are spread over the workers in turn.
	topics []string
}

func plans() []plan {
	return []plan{
		{"orders", 5, []string{
			"orders.eu", "orders.us", "orders.apac", "returns.eu", "returns.us",
			"returns.apac", "stock.eu", "stock.us", "stock.apac", "carts",
		}},
		{"billing", 4, []string{
			"invoices.eu", "invoices.us", "payments.card", "payments.sepa",
			"refunds", "dunning", "ledger", "tax",
		}},
		{"search", 4, []string{
			"catalogue.en", "catalogue.de", "catalogue.fr", "prices",
			"reviews", "suggestions", "synonyms", "rankings",
		}},
	}
}

// fleet is all workers, and what they tell.
type fleet struct {
	options Options
	client  *client
	start   time.Time
	workers map[string]*worker
	order   []string

	mu   sync.Mutex
	away bool
	// homes is which worker serves a subscription when all are well; by group and subscription.
	homes map[[2]string]*worker
}

func newFleet(o Options) *fleet {
	f := &fleet{
		options: o, client: &client{o.Server, o.Client}, start: time.Now(),
		workers: map[string]*worker{}, homes: map[[2]string]*worker{},
	}
	for i, p := range plans() {
		for n := range p.workers {
			w := &worker{
				fleet: f, group: p.group, id: fmt.Sprintf("%s-%d", p.group, n+1),
				random: rand.New(rand.NewPCG(o.Seed, uint64(i*100+n))), //nolint:gosec // a simulation wants repeatable chance
				wake:   make(chan struct{}, 1),
			}
			for at := n; at < len(p.topics); at += p.workers {
				w.home = append(w.home, p.topics[at])
				f.homes[[2]string{p.group, p.topics[at]}] = w
			}
			f.workers[w.id] = w
			f.order = append(f.order, w.id)
		}
	}
	return f
}

// say tells one thing that happens, with the seconds since the start.
func (f *fleet) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.write(fmt.Sprintf("%5.1fs  %s\n", time.Since(f.start).Seconds(), fmt.Sprintf(format, args...)))
}

func (f *fleet) write(text string) {
	_, _ = io.WriteString(f.options.Out, text) // who closed our output does not want to be told
}

// trouble reports a service that is away once, and its return.
func (f *fleet) trouble(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	was := f.away
	f.away = err != nil
	f.mu.Unlock()
	switch {
	case err != nil && !was:
		f.say("the service does not answer as it should: %v", err)
	case err == nil && was:
		f.say("the service answers again")
	}
}

// giveBack makes everybody in the group drop what comes home to w: it starts now, and will report these itself.
func (f *fleet) giveBack(w *worker) {
	for _, id := range f.order {
		other := f.workers[id]
		if other.group == w.group && other != w {
			other.drop(w.home)
		}
	}
}

func list(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) == 0 {
		return "nothing"
	}
	return strings.Join(sorted, ", ")
}

// pause waits, or ends early with the context; it reports whether the time went by.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
