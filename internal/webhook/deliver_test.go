package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

func verifySignature(t *testing.T, secret string, got received) {
	t.Helper()
	wh, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	require.NoError(t, wh.Verify(got.body, got.header))
}

func TestEventIsDeliveredSigned(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("thanks\n")) })
	r := newRig(t, func(o *Options) { o.UserAgent = "coordsvc/1.2.3" })
	hook := r.create(service.WebhookCreate{
		URL:     strings.Replace(rc.URL, "://", "://user:hunter2@", 1) + "/in?token=abc",
		Headers: map[string]string{"X-Team": "orders"},
	})
	eventID := r.raise(1)

	got := rc.next(t)
	verifySignature(t, hook.Secret, got)
	id := got.header.Get("webhook-id")
	assert.Equal(t, deliveryID(eventID, hook.ID), id)
	assert.Equal(t, string(r.journal.entries[0].Raw), string(got.body), "the body is the event as committed, byte for byte")
	assert.Equal(t, "/in?token=abc", got.path)
	assert.Equal(t, "application/json", got.header.Get("Content-Type"))
	assert.Equal(t, "coordsvc/1.2.3", got.header.Get("User-Agent"))
	assert.Equal(t, "orders", got.header.Get("X-Team"))
	assert.Equal(t, "Basic dXNlcjpodW50ZXIy", got.header.Get("Authorization"))

	d := r.awaitDelivery(id, service.DeliveryDelivered)
	assert.Equal(t, hook.ID, d.WebhookID)
	assert.Equal(t, eventID, d.EventID)
	assert.Equal(t, "orphan.detected", d.EventType)
	assert.Equal(t, string(got.body), string(d.Event))
	require.Len(t, d.Attempts, 1)
	assert.Equal(t, 200, d.Attempts[0].Status)
	assert.Equal(t, `thanks\n`, d.Attempts[0].Response)
	assert.Empty(t, d.Attempts[0].Error)
	assert.True(t, d.NextAttemptAt.IsZero())
	assert.False(t, d.FinishedAt.IsZero())
	shown := r.webhook(hook.ID)
	assert.Equal(t, service.WebhookCounts{Delivered: 1}, shown.Counts)
	assert.NotContains(t, shown.URL, "hunter2")
	assert.Equal(t, redacted, shown.Headers["X-Team"])

	logs := r.logs.String()
	for _, secret := range []string{"hunter2", "token=abc", hook.Secret, "X-Team"} {
		assert.NotContains(t, logs, secret)
	}
}

func TestFailedAttemptsAreRepeatedUnderTheSameID(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(500, 302, 200))
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	id := deliveryID(r.raise(1), hook.ID)
	first := rc.next(t)
	for range 2 {
		again := rc.next(t)
		assert.Equal(t, id, again.header.Get("webhook-id"))
		assert.Equal(t, string(first.body), string(again.body))
		verifySignature(t, hook.Secret, again)
	}
	d := r.awaitDelivery(id, service.DeliveryDelivered)
	require.Equal(t, 3, d.AttemptCount)
	assert.Equal(t, []int{500, 302, 200}, []int{d.Attempts[0].Status, d.Attempts[1].Status, d.Attempts[2].Status})
	assert.True(t, r.webhook(hook.ID).Counts.FailingSince.IsZero(), "a success ends the failing")
}

func TestExhaustedDeliveryIsDeadUntilRetriedByHand(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(500, 500, 500, 500, 500, 200))
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	id := deliveryID(r.raise(1), hook.ID)
	d := r.awaitDelivery(id, service.DeliveryDead)
	assert.Equal(t, service.CauseExhausted, d.Cause)
	assert.Equal(t, 4, d.AttemptCount, "one attempt and three retries")
	assert.False(t, r.webhook(hook.ID).Counts.FailingSince.IsZero())
	assert.Equal(t, 1, r.webhook(hook.ID).Counts.Dead)

	d, err := r.w.Retry(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, service.DeliveryPending, d.Status)
	d = r.awaitDelivery(id, service.DeliveryDelivered)
	assert.Equal(t, 6, d.AttemptCount, "a retry begins a fresh schedule and keeps the old attempts")
	for range 6 {
		assert.Equal(t, id, rc.next(t).header.Get("webhook-id"))
	}
}

func TestGoneDisablesTheEndpoint(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(410, 200))
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: strings.Replace(rc.URL, "://", "://u:p@", 1) + "/x?token=abc", EventTypes: []string{"*"}})
	id := deliveryID(r.raise(1), hook.ID)
	d := r.awaitDelivery(id, service.DeliveryDead)
	assert.Equal(t, service.CauseGone, d.Cause)
	r.await("webhook.disabled", func() bool { return len(r.journal.ofType(coordination.EventWebhookDisabled)) == 1 })
	event := r.journal.ofType(coordination.EventWebhookDisabled)[0]
	assert.Equal(t, hook.ID, event.Data.WebhookID)
	assert.Equal(t, rc.URL+"/x", event.Data.URL, "neither credentials nor query")
	assert.Equal(t, reasonGone, event.Data.Reason)
	assert.Equal(t, uint64(1), event.Data.Epoch)
	v := r.webhook(hook.ID)
	assert.False(t, v.Enabled)
	assert.Equal(t, reasonGone, v.DisabledReason)
	_, err := r.w.Retry(t.Context(), id)
	require.ErrorIs(t, err, service.ErrWebhookDisabled)

	r.await("the event to be noted as raised", func() bool {
		ep, _ := r.w.ledger.endpoint(hook.ID)
		return !ep.Announce
	})
	enabled := true
	v, err = r.w.Patch(t.Context(), hook.ID, service.WebhookPatch{Enabled: &enabled})
	require.NoError(t, err)
	assert.True(t, v.Enabled)
	assert.Empty(t, v.DisabledReason)
	_, err = r.w.Retry(t.Context(), id)
	require.NoError(t, err)
	r.awaitDelivery(id, service.DeliveryDelivered)
}

func TestRetryAfterHoldsTheEndpoint(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	r := newRig(t, func(o *Options) { o.AttemptsPerEndpoint = 1 })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	id := deliveryID(r.raise(1), hook.ID)
	first := rc.next(t)
	r.await("the refusal to be recorded", func() bool { return r.delivery(id).AttemptCount == 1 })
	assert.Equal(t, time.Second, r.delivery(id).Attempts[0].RetryAfter)
	r.raise(2)
	for range 2 {
		assert.GreaterOrEqual(t, rc.next(t).at.Sub(first.at), time.Second, "nothing comes before the receiver asked for it")
	}
}

func TestEndpointsDoNotHoldEachOtherUp(t *testing.T) {
	t.Parallel()
	slow := newReceiver(t, hang)
	quick := newReceiver(t, nil)
	r := newRig(t, func(o *Options) { o.SharedAttempts = 2 })
	for range 8 {
		r.create(service.WebhookCreate{URL: slow.URL})
	}
	hook := r.create(service.WebhookCreate{URL: quick.URL, Groups: []string{"quick"}})
	for n := range 10 {
		r.raise(n)
	}
	// Every hanging endpoint has its own slot taken, and all shared ones are.
	for range 10 {
		slow.next(t)
	}
	event := orphanEvent(99)
	event.Data.Group = "quick"
	raised := time.Now()
	require.NoError(t, r.journal.Raise(t.Context(), event))
	got := quick.next(t)
	assert.Less(t, got.at.Sub(raised), 500*time.Millisecond)
	r.awaitDelivery(deliveryID(event.ID, hook.ID), service.DeliveryDelivered)
}

func TestAttemptsOfOneEndpointAreBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	entered := make(chan struct{}, 100)
	rc := newReceiver(t, func(int, http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	})
	r := newRig(t, func(o *Options) { o.AttemptsPerEndpoint = 3 })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	for n := range 8 {
		r.raise(n)
	}
	for range 3 {
		<-entered
	}
	r.await("all to be queued", func() bool { return r.webhook(hook.ID).Counts.Pending == 8 })
	assert.Empty(t, entered, "a fourth attempt would be one too many")
	close(release)
	r.await("all to be delivered", func() bool { return r.webhook(hook.ID).Counts.Delivered == 8 })
}

func TestFullQueueStoresDeadDeliveries(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	rc := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { <-release })
	metrics := &countingMetrics{}
	r := newRig(t, func(o *Options) { o.QueueLimit, o.Metrics = 3, metrics })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	var ids []string
	for n := range 5 {
		ids = append(ids, deliveryID(r.raise(n), hook.ID))
	}
	for _, id := range ids[3:] {
		d := r.awaitDelivery(id, service.DeliveryDead)
		assert.Equal(t, service.CauseQueueFull, d.Cause)
		assert.Zero(t, d.AttemptCount)
		assert.NotEmpty(t, d.Event)
	}
	close(release)
	for _, id := range ids[:3] {
		r.awaitDelivery(id, service.DeliveryDelivered)
	}
	_, err := r.w.Retry(t.Context(), ids[4])
	require.NoError(t, err)
	r.awaitDelivery(ids[4], service.DeliveryDelivered)
	r.shutDown()
	assert.Equal(t, 2, metrics.drops(DropQueueFull))
}

func TestTestSend(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(200, 500))
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL, Disabled: true})
	d, err := r.w.Test(t.Context(), hook.ID)
	require.NoError(t, err)
	assert.True(t, d.Test)
	got := rc.next(t)
	verifySignature(t, hook.Secret, got)
	assert.Equal(t, d.ID, got.header.Get("webhook-id"))
	assert.Contains(t, string(got.body), `"type":"webhook.test"`)
	r.awaitDelivery(d.ID, service.DeliveryDelivered)

	d, err = r.w.Test(t.Context(), hook.ID)
	require.NoError(t, err)
	d = r.awaitDelivery(d.ID, service.DeliveryDead)
	assert.Equal(t, 1, d.AttemptCount, "a test is attempted once")
	assert.True(t, r.webhook(hook.ID).Counts.FailingSince.IsZero(), "a failed test does not count against the endpoint")
	assert.Empty(t, r.journal.entries, "tests are in no journal")
	_, err = r.w.Test(t.Context(), "wh_none")
	require.ErrorIs(t, err, coordination.ErrNotFound)
}

func TestRotatedSecretSignsForTheOverlap(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := newRig(t, nil)
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	rotated, err := r.w.RotateSecret(t.Context(), hook.ID, service.RotateSecret{})
	require.NoError(t, err)
	assert.NotEqual(t, hook.Secret, rotated.Secret)
	assert.WithinDuration(t, time.Now().Add(24*time.Hour), rotated.OldSecretExpiresAt, time.Minute)
	r.raise(1)
	got := rc.next(t)
	verifySignature(t, hook.Secret, got)
	verifySignature(t, rotated.Secret, got)

	none := time.Duration(0)
	last, err := r.w.RotateSecret(t.Context(), hook.ID, service.RotateSecret{Secret: publicSecret, Overlap: &none})
	require.NoError(t, err)
	assert.True(t, last.OldSecretExpiresAt.IsZero())
	r.raise(2)
	got = rc.next(t)
	verifySignature(t, publicSecret, got)
	assert.Len(t, strings.Fields(got.header.Get("webhook-signature")), 1)

	tooLong := 8 * 24 * time.Hour
	_, err = r.w.RotateSecret(t.Context(), hook.ID, service.RotateSecret{Overlap: &tooLong, Secret: "x"})
	assert.ElementsMatch(t, []string{"/secret", "/overlap_seconds"}, pointers(err))
}

func TestOldSecretEndsAtItsInstant(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	ep := endpoint{Secret: "new", OldSecret: "old", OldSecretUntil: until}
	assert.Equal(t, []string{"new", "old"}, ep.secrets(until.Add(-1)))
	assert.Equal(t, []string{"new"}, ep.secrets(until))
	assert.Equal(t, []string{"new"}, ep.secrets(until.Add(1)))
}

func TestDisabledEndpointHoldsItsQueue(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(500, 200))
	r := newRig(t, func(o *Options) { o.RetrySchedule = []time.Duration{time.Second} })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	id := deliveryID(r.raise(1), hook.ID)
	rc.next(t)
	r.await("the failure", func() bool { return r.delivery(id).AttemptCount == 1 })
	off, on := false, true
	_, err := r.w.Patch(t.Context(), hook.ID, service.WebhookPatch{Enabled: &off})
	require.NoError(t, err)
	other := r.create(service.WebhookCreate{URL: newReceiver(t, nil).URL})
	r.awaitDelivery(deliveryID(r.raise(2), other.ID), service.DeliveryDelivered)
	assert.Len(t, r.deliveries(hook.ID), 1, "no delivery is made for a disabled endpoint")
	wait, _ := r.w.ledger.next(hook.ID, time.Now().Add(time.Hour), time.Time{}, nil)
	assert.Empty(t, wait, "held although due")
	_, err = r.w.Patch(t.Context(), hook.ID, service.WebhookPatch{Enabled: &on})
	require.NoError(t, err)
	r.awaitDelivery(id, service.DeliveryDelivered)
}

func TestFailingEndpointIsDisabledWithAnEvent(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(500))
	r := newRig(t, func(o *Options) { o.DisableAfter = time.Nanosecond })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	r.raise(1)
	r.await("the endpoint to be disabled", func() bool { return !r.webhook(hook.ID).Enabled })
	assert.Contains(t, r.webhook(hook.ID).DisabledReason, "no attempt has succeeded since")
	r.await("webhook.disabled", func() bool { return len(r.journal.ofType(coordination.EventWebhookDisabled)) == 1 })
}

func TestPatch(t *testing.T) {
	t.Parallel()
	before, after := newReceiver(t, nil), newReceiver(t, nil)
	r := newRig(t, nil)
	withPassword := strings.Replace(before.URL, "://", "://u:secret@", 1)
	hook := r.create(service.WebhookCreate{URL: withPassword, Headers: map[string]string{"X-A": "1", "X-B": "2"}, Description: "d"})
	shown := r.webhook(hook.ID)
	headers := map[string]string{"X-A": shown.Headers["X-A"], "X-C": "3"}
	_, err := r.w.Patch(t.Context(), hook.ID, service.WebhookPatch{URL: &shown.URL, Headers: &headers})
	require.NoError(t, err)
	r.raise(1)
	got := before.next(t)
	assert.Equal(t, "1", got.header.Get("X-A"), "a redacted value sent back stays")
	assert.Empty(t, got.header.Get("X-B"))
	assert.Equal(t, "3", got.header.Get("X-C"))
	assert.NotEmpty(t, got.header.Get("Authorization"), "a redacted password sent back stays")

	types, groups, none := []string{"peer.*"}, []string{"orders"}, map[string]string{}
	v, err := r.w.Patch(t.Context(), hook.ID, service.WebhookPatch{URL: &after.URL, EventTypes: &types, Groups: &groups, Headers: &none})
	require.NoError(t, err)
	assert.Equal(t, "d", v.Description)
	assert.Equal(t, types, v.EventTypes)
	assert.Empty(t, v.Headers)
	bad := []string{"nope"}
	_, err = r.w.Patch(t.Context(), hook.ID, service.WebhookPatch{EventTypes: &bad})
	assert.Equal(t, []string{"/event_types/0"}, pointers(err))
	assert.Equal(t, types, r.webhook(hook.ID).EventTypes)
	_, err = r.w.Patch(t.Context(), "wh_none", service.WebhookPatch{})
	require.ErrorIs(t, err, coordination.ErrNotFound)
}

func TestDeleteTakesTheLogAlong(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(500))
	r := newRig(t, func(o *Options) { o.RetrySchedule = []time.Duration{time.Hour} })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	id := deliveryID(r.raise(1), hook.ID)
	rc.next(t)
	require.NoError(t, r.w.Delete(t.Context(), hook.ID))
	require.ErrorIs(t, r.w.Delete(t.Context(), hook.ID), coordination.ErrNotFound)
	_, err := r.w.Get(t.Context(), hook.ID)
	require.ErrorIs(t, err, coordination.ErrNotFound)
	_, err = r.w.Deliveries(t.Context(), hook.ID, service.DeliveriesRequest{})
	require.ErrorIs(t, err, coordination.ErrNotFound)
	r.await("the deliveries to go", func() bool {
		_, err := r.store.Get(t.Context(), keyDelivery+id)
		return err != nil
	})
	assert.Zero(t, r.w.Pending())
}

func TestLogIsTrimmedToTheNewestFinished(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := newRig(t, func(o *Options) { o.LogLimit, o.AttemptsPerEndpoint = 5, 1 })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	other := r.create(service.WebhookCreate{URL: newReceiver(t, statuses(500)).URL})
	const events = 5 + logSlack + 10
	var newest string
	for n := range events {
		newest = deliveryID(r.raise(n), hook.ID)
	}
	r.awaitDelivery(newest, service.DeliveryDelivered)
	r.await("the log to be trimmed", func() bool { return len(r.deliveries(hook.ID)) <= 5 })
	left := r.deliveries(hook.ID)
	require.Len(t, left, 5)
	assert.Equal(t, newest, left[0].ID)
	assert.Equal(t, "evt_"+"60", left[4].EventID)
	assert.NotNil(t, r.deliveries(other.ID))
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, statuses(200, 400))
	r := newRig(t, func(o *Options) { o.RetrySchedule, o.AttemptsPerEndpoint = []time.Duration{}, 1 })
	hook := r.create(service.WebhookCreate{URL: rc.URL})
	r.create(service.WebhookCreate{URL: rc.URL, EventTypes: []string{"peer.*"}})
	r.create(service.WebhookCreate{URL: rc.URL, EventTypes: []string{"peer.*"}})
	for n := range 7 {
		r.raise(n)
	}
	r.await("all to be done", func() bool {
		c := r.webhook(hook.ID).Counts
		return c.Delivered == 1 && c.Dead == 6
	})
	var seen []string
	page := service.DeliveriesRequest{Page: service.Page{Limit: 3}}
	for {
		list, err := r.w.Deliveries(t.Context(), hook.ID, page)
		require.NoError(t, err)
		assert.Equal(t, 7, list.Total)
		for _, d := range list.Items {
			seen = append(seen, d.EventID)
		}
		if page.Cursor = list.NextCursor; page.Cursor == "" {
			break
		}
	}
	assert.Equal(t, []string{"evt_6", "evt_5", "evt_4", "evt_3", "evt_2", "evt_1", "evt_0"}, seen, "newest first")
	dead, err := r.w.Deliveries(t.Context(), hook.ID, service.DeliveriesRequest{Status: service.DeliveryDead})
	require.NoError(t, err)
	assert.Equal(t, 6, dead.Total)
	assert.Len(t, dead.Items, 6)

	hooks, err := r.w.List(t.Context(), service.Page{Limit: 2})
	require.NoError(t, err)
	require.Len(t, hooks.Items, 2)
	assert.Equal(t, hook.ID, hooks.Items[0].ID)
	assert.Equal(t, 3, hooks.Total)
	rest, err := r.w.List(t.Context(), service.Page{Limit: 2, Cursor: hooks.NextCursor})
	require.NoError(t, err)
	assert.Len(t, rest.Items, 1)
	assert.Empty(t, rest.NextCursor)

	for _, bad := range []service.Page{{Limit: -1}, {Limit: 1001}, {Cursor: "%"}, {Cursor: "bnVsbA"}} {
		_, err := r.w.List(t.Context(), bad)
		require.ErrorIs(t, err, coordination.ErrInvalid)
		_, err = r.w.Deliveries(t.Context(), hook.ID, service.DeliveriesRequest{Page: bad})
		require.ErrorIs(t, err, coordination.ErrInvalid)
	}
	_, err = r.w.Deliveries(t.Context(), hook.ID, service.DeliveriesRequest{Status: "lost"})
	assert.Equal(t, []string{"/status"}, pointers(err))
}
