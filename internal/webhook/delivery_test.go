package webhook

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

func TestRetryByHandDuringAnAttempt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	schedule := []time.Duration{time.Second}
	fresh := func() delivery {
		var d delivery
		d.retry(now)
		return d
	}
	failed, gone, success := verdict{outcome: OutcomeStatus}, verdict{gone: true}, verdict{success: true}

	d := fresh()
	d.record(attempt{At: now}, failed, now, true, schedule, 0)
	assert.Equal(t, service.DeliveryPending, d.Status)
	assert.Equal(t, now, d.NextAttemptAt, "due as the person asked")
	assert.True(t, d.Manual)
	assert.Zero(t, d.Series, "an attempt of the old series does not use up the new schedule")
	assert.Equal(t, 1, d.AttemptCount)

	d = fresh()
	d.record(attempt{At: now}, success, now, true, schedule, 0)
	assert.Equal(t, service.DeliveryDelivered, d.Status, "delivered is delivered")

	d = fresh()
	d.record(attempt{At: now}, failed, now, false, schedule, 0)
	assert.Equal(t, now.Add(time.Second), d.NextAttemptAt)
	assert.False(t, d.Manual)
	d.record(attempt{At: now}, gone, now, false, schedule, 0)
	assert.Equal(t, service.CauseGone, d.Cause)
}

func TestNewestAttemptsAreKept(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	var d delivery
	for i := range maxKeptAttempts + 5 {
		d.retry(now)
		d.record(attempt{At: now.Add(time.Duration(i))}, verdict{}, now, false, nil, 0)
	}
	assert.Equal(t, maxKeptAttempts+5, d.AttemptCount)
	require.Len(t, d.Attempts, maxKeptAttempts)
	assert.Equal(t, now.Add(5), d.Attempts[0].At)
	assert.True(t, d.hasAttempt(attempt{At: now.Add(5)}))
	assert.False(t, d.hasAttempt(attempt{At: now.Add(4)}))
}

func TestBodySurvivesTheRecord(t *testing.T) {
	t.Parallel()
	body, err := eventBody(&service.JournalEntry{Raw: []byte("{ \"id\": \"<evt>\",\n \"n\": 1.50, \"s\": \"\u2028é\" }")})
	require.NoError(t, err)
	d := delivery{ID: "msg_1", Event: body}
	for range 3 {
		put, err := d.put()
		require.NoError(t, err)
		d, err = decodeDelivery(service.Record{Key: put.Key, Value: put.Value})
		require.NoError(t, err)
		assert.Equal(t, string(body), string(d.Event))
	}
	event := coordination.Event{ID: "evt_1", Type: coordination.EventPeerStale}
	body, err = eventBody(&service.JournalEntry{Event: event})
	require.NoError(t, err)
	want, err := json.Marshal(&event)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(body), "an entry without its raw form is encoded")
}
