package webhook

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/service"
)

func TestKilledBetweenJournalAndDispatch(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	r.store.intercept(func(txn service.Txn) error {
		if txn.Fence != nil {
			return service.ErrUnavailable
		}
		return nil
	})
	id := deliveryID(r.raise(1), hook.ID)
	r.restart()
	r.awaitDelivery(id, service.DeliveryDelivered)
	assert.Equal(t, id, rc.next(t).header.Get("webhook-id"))
	assert.Empty(t, rc.requests)
}

func TestKilledDuringAnAttempt(t *testing.T) {
	t.Parallel()
	blocked := true
	var mu sync.Mutex
	rc := newReceiver(t, func(n int, w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		wait := blocked
		mu.Unlock()
		if wait {
			hang(n, w, r)
		}
	})
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	id := deliveryID(r.raise(1), hook.ID)
	first := rc.next(t)
	r.kill()
	mu.Lock()
	blocked = false
	mu.Unlock()
	r.elector.lead()
	r.start()
	d := r.awaitDelivery(id, service.DeliveryDelivered)
	second := rc.next(t)
	assert.Equal(t, id, first.header.Get("webhook-id"))
	assert.Equal(t, id, second.header.Get("webhook-id"), "a duplicate has the same id")
	assert.Equal(t, string(first.body), string(second.body))
	assert.Equal(t, 1, d.AttemptCount, "the attempt that was cut off was not made")
	verifySignature(t, hook.Secret, second)
}

func TestKilledBetweenAttemptAndRecord(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	recording := make(chan struct{}, 10)
	r.store.intercept(func(txn service.Txn) error {
		if txn.Fence != nil && len(txn.Checks) > 0 && txn.Checks[0].Key != keyCursor {
			recording <- struct{}{}
			return service.ErrUnavailable
		}
		return nil
	})
	id := deliveryID(r.raise(1), hook.ID)
	<-recording
	r.restart()
	r.awaitDelivery(id, service.DeliveryDelivered)
	for range 2 {
		assert.Equal(t, id, rc.next(t).header.Get("webhook-id"))
	}
}

func TestAttemptsAndRetryTimesSurviveARestart(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(503, 200))
	r := newRig(t, func(o *Options) { o.RetrySchedule = []time.Duration{time.Second} })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	id := deliveryID(r.raise(1), hook.ID)
	r.await("the failure", func() bool {
		d, err := r.w.Delivery(t.Context(), id)
		return err == nil && d.AttemptCount == 1
	})
	due := r.delivery(id).NextAttemptAt
	r.restart()
	d := r.awaitDelivery(id, service.DeliveryDelivered)
	require.Len(t, d.Attempts, 2)
	assert.False(t, d.Attempts[1].At.Before(due), "not before it was due")
	assert.Equal(t, 503, d.Attempts[0].Status)
}

// Whatever the instant: every event arrives, under one id, and none is enqueued twice.
func TestKilledAtRandomInstants(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	rc := newReceiver(t, statuses(200, 500, 200, 200, 500, 200))
	r := newRig(t, func(o *Options) { o.StopGrace, o.MaxTxnOperations = time.Millisecond, 5 })
	hooks := make([]service.Webhook, 5)
	for i := range hooks {
		hooks[i] = r.create(service.WebhookCreate{URL: rc.URL})
	}
	expected := map[string]bool{}
	for round := range 12 {
		for n := range 6 {
			eventID := r.raise(round*6 + n)
			for _, h := range hooks {
				expected[deliveryID(eventID, h.ID)] = true
			}
		}
		instant, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(30_000))*time.Microsecond)
		<-instant.Done()
		cancel()
		r.restart()
	}
	for id := range expected {
		r.awaitDelivery(id, service.DeliveryDelivered)
	}
	r.shutDown()
	seen := map[string]bool{}
	for len(rc.requests) > 0 {
		seen[rc.next(t).header.Get("webhook-id")] = true
	}
	assert.Equal(t, expected, seen)
}

func TestLostTermCommitsNothing(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	rc := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { <-release })
	r := newRig(t, func(o *Options) { o.StopGrace = patience })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	id := deliveryID(r.raise(1), hook.ID)
	rc.next(t)
	r.elector.lose()
	r.raise(2)
	close(release)
	r.elector.lead()
	d := r.awaitDelivery(id, service.DeliveryDelivered)
	assert.Equal(t, 1, d.AttemptCount, "the ex-leader's attempt may end, but is not recorded")
	// An endpoint's deliveries are made side by side: their order is nobody's promise.
	again := []string{rc.next(t).header.Get("webhook-id"), rc.next(t).header.Get("webhook-id")}
	assert.ElementsMatch(t, []string{id, deliveryID("evt_2", hook.ID)}, again)
	assert.Len(t, r.deliveries(hook.ID), 2)
}

func TestFollowerMakesNoAttempts(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := newRig(t, nil)
	r.elector.lose()
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	d, err := r.w.Test(t.Context(), hook.ID)
	require.NoError(t, err)
	r.await("the follower's index to show it", func() bool { return r.webhook(hook.ID).Counts.Pending == 1 })
	assert.Empty(t, rc.requests)
	r.elector.lead()
	r.awaitDelivery(d.ID, service.DeliveryDelivered)
	verifySignature(t, hook.Secret, rc.next(t))
}

func TestStopCutsAfterTheGrace(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	quick := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { <-release })
	slow := newReceiver(t, hang)
	r := newRig(t, func(o *Options) { o.StopGrace = 300 * time.Millisecond })
	first := r.create(service.WebhookCreate{URL: quick.URL})
	second := r.create(service.WebhookCreate{URL: slow.URL})
	eventID := r.raise(1)
	quick.next(t)
	slow.next(t)
	stopped := make(chan error, 1)
	started := time.Now()
	go func() { stopped <- r.w.Stop(context.Background()) }()
	close(release)
	d := r.awaitDelivery(deliveryID(eventID, first.ID), service.DeliveryDelivered)
	assert.Equal(t, 1, d.AttemptCount, "what ends within the grace is recorded")
	require.NoError(t, <-stopped)
	assert.Less(t, time.Since(started), 2*time.Second)
	cut := r.delivery(deliveryID(eventID, second.ID))
	assert.Equal(t, service.DeliveryPending, cut.Status)
	assert.Zero(t, cut.AttemptCount, "what is cut off was not made")

	r.raise(2)
	_, err := r.w.Test(t.Context(), first.ID)
	require.NoError(t, err, "registration and reading go on")
	assert.Empty(t, quick.requests, "nothing is started after Stop")
	require.NoError(t, r.w.Stop(t.Context()))

	r.restart()
	ids := []string{slow.next(t).header.Get("webhook-id"), slow.next(t).header.Get("webhook-id")}
	assert.ElementsMatch(t, []string{cut.ID, deliveryID("evt_2", second.ID)}, ids, "the next leader goes on under the same id")
}

func TestEventWithMoreDeliveriesThanATransaction(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := newRig(t, func(o *Options) { o.MaxTxnOperations = 4 })
	const endpoints = 7
	for range endpoints {
		r.create(service.WebhookCreate{URL: rc.URL})
	}
	var mu sync.Mutex
	commits := 0
	r.store.intercept(func(txn service.Txn) error {
		assert.LessOrEqual(t, len(txn.Checks)+len(txn.Puts), 4)
		mu.Lock()
		defer mu.Unlock()
		if len(txn.Checks) == 1 && txn.Checks[0].Key == keyCursor {
			commits++
			if commits == 3 {
				return service.ErrUnavailable
			}
		}
		return nil
	})
	r.raise(1)
	r.raise(2)
	seen := map[string]int{}
	for range 2 * endpoints {
		seen[rc.next(t).header.Get("webhook-id")]++
	}
	assert.Len(t, seen, 2*endpoints, "each event once to each endpoint, over an interrupted dispatch too")
	r.awaitFloor(service.Position{Revision: 2})
	assert.Empty(t, rc.requests)
}

func TestEventRaisedAgainIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	e := orphanEvent(1)
	r.journal.repeat(t, e, 3)
	r.awaitDelivery(deliveryID(e.ID, hook.ID), service.DeliveryDelivered)
	r.journal.repeat(t, e, 1)
	r.awaitDelivery(deliveryID(r.raise(2), hook.ID), service.DeliveryDelivered)
	assert.Len(t, rc.requests, 2)
}

func TestGapInTheJournalIsCounted(t *testing.T) {
	t.Parallel()
	metrics := &countingMetrics{}
	rc := newReceiver(t, nil)
	r := newRig(t, func(o *Options) { o.Metrics = metrics })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	r.awaitDelivery(deliveryID(r.raise(1), hook.ID), service.DeliveryDelivered)
	r.kill()
	r.journal.lose()
	r.elector.lead()
	r.start()
	r.awaitDelivery(deliveryID(r.raise(2), hook.ID), service.DeliveryDelivered)
	assert.Equal(t, 1, metrics.drops(DropGap))
}

func TestStoreAwayWhileRecording(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	var mu sync.Mutex
	failures := 0
	r.store.intercept(func(txn service.Txn) error {
		mu.Lock()
		defer mu.Unlock()
		if txn.Fence != nil && txn.Checks[0].Key != keyCursor && failures < 2 {
			failures++
			if failures == 2 {
				// Committed, but the answer is lost.
				_, err := r.file.Commit(context.Background(), txn)
				return errors.Join(err, service.ErrUnavailable)
			}
			return service.ErrUnavailable
		}
		return nil
	})
	d := r.awaitDelivery(deliveryID(r.raise(1), hook.ID), service.DeliveryDelivered)
	assert.Equal(t, 1, d.AttemptCount)
	r.awaitDelivery(deliveryID(r.raise(2), hook.ID), service.DeliveryDelivered)
	assert.Len(t, rc.requests, 2, "an attempt is not repeated because its record waits")
}

func TestCursorIsWrittenWithoutEndpointsToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	assert.Equal(t, service.Position{}, r.w.CursorFloor(), "nothing may leave the journal yet")
	for n := range 3 {
		r.raise(n)
	}
	r.awaitKey(keyCursor)
	r.restart()
	hook := r.create(service.WebhookCreate{URL: "http://127.0.0.1:1/"})
	r.raise(3)
	r.await("dispatch", func() bool { return len(r.deliveries(hook.ID)) > 0 })
	assert.Len(t, r.deliveries(hook.ID), 1, "events from before the registration are not delivered")
	r.awaitFloor(service.Position{Revision: 4})
}

func TestDisabledEventSurvivesACrash(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(410))
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	raising := make(chan struct{})
	r.shutDown()
	r.opts.StopGrace = time.Millisecond
	r.elector.lead()
	r.startWith(failingRaiser{raising})
	r.raise(1)
	<-raising
	assert.False(t, r.webhook(hook.ID).Enabled)
	assert.Empty(t, r.journal.ofType("webhook.disabled"))
	r.restart()
	r.await("webhook.disabled", func() bool {
		return len(r.journal.ofType("webhook.disabled")) == 1
	})
}
