package webhook

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/service"
)

// listStore answers List with what the test says.
type listStore struct {
	service.Store
	records  []service.Record
	revision uint64
}

func (s *listStore) List(context.Context, string) ([]service.Record, uint64, error) {
	return s.records, s.revision, nil
}

func pendingAt(id string, next time.Time) delivery {
	return delivery{ID: id, WebhookID: "wh_1", CreatedAt: next, Status: service.DeliveryPending, NextAttemptAt: next}
}

func TestLedgerTellsOldNewsFromNew(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	l := newLedger()
	d := pendingAt("msg_1", now)
	old, err := d.put()
	require.NoError(t, err)
	d.finish(now, service.DeliveryDelivered, "")
	l.noteDeliveries([]delivery{d}, 7)
	require.NoError(t, l.apply(keyDelivery, service.Changes{Revision: 5, Puts: []service.Record{{Key: old.Key, Value: old.Value, Revision: 5}}}))
	assert.Zero(t, l.totalPending(), "the watch lags behind an own commit")

	require.NoError(t, l.apply(keyDelivery, service.Changes{Revision: 6, Deletes: []string{old.Key}}))
	assert.True(t, l.known("msg_1"), "an older deletion")
	require.NoError(t, l.apply(keyDelivery, service.Changes{Revision: 8, Deletes: []string{old.Key}}))
	assert.False(t, l.known("msg_1"))
}

func TestLedgerLoadsAfterAGap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	l := newLedger()
	l.noteEndpoint(endpoint{ID: "wh_1", Enabled: true}, 1)
	l.noteDeliveries([]delivery{pendingAt("msg_gone", now), pendingAt("msg_kept", now)}, 3)
	l.noteDeliveries([]delivery{pendingAt("msg_newer", now)}, 12)
	kept := pendingAt("msg_kept", now.Add(time.Hour))
	put, err := kept.put()
	require.NoError(t, err)
	store := &listStore{records: []service.Record{{Key: put.Key, Value: put.Value, Revision: 9}}, revision: 10}
	revision, err := l.load(t.Context(), store, keyDelivery)
	require.NoError(t, err)
	assert.Equal(t, uint64(10), revision)
	assert.False(t, l.known("msg_gone"), "deleted while nobody watched")
	assert.True(t, l.known("msg_newer"), "committed after the list was taken")
	assert.Equal(t, 2, l.totalPending())
	require.NoError(t, l.await(t.Context(), keyDelivery, 10))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, l.await(ended, keyDelivery, 11))
}

func TestLedgerPicksWhatIsDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	l := newLedger()
	l.noteEndpoint(endpoint{ID: "wh_1", Enabled: true}, 1)
	manual := pendingAt("msg_manual", now)
	manual.Manual = true
	test := pendingAt("msg_test", now.Add(time.Second))
	test.Manual, test.Test = true, true
	l.noteDeliveries([]delivery{
		pendingAt("msg_first", now.Add(-time.Minute)), pendingAt("msg_second", now), pendingAt("msg_later", now.Add(time.Hour)), manual, test,
	}, 2)
	none := time.Time{}
	pick := func(at, paused time.Time, busy ...string) string {
		set := map[string]bool{}
		for _, id := range busy {
			set[id] = true
		}
		id, _ := l.next("wh_1", at, paused, set)
		return id
	}
	assert.Equal(t, "msg_manual", pick(now, none), "a person waits for it")
	assert.Equal(t, "msg_first", pick(now, none, "msg_manual"))
	assert.Equal(t, "msg_second", pick(now, none, "msg_manual", "msg_first"))
	assert.Empty(t, pick(now, none, "msg_manual", "msg_first", "msg_second"))
	_, wait := l.next("wh_1", now, none, map[string]bool{"msg_manual": true, "msg_first": true, "msg_second": true})
	assert.Equal(t, time.Second, wait, "until the earliest of the others")
	assert.Empty(t, pick(now.Add(-time.Second), none, "msg_first"), "due at its instant")

	paused := now.Add(time.Minute)
	assert.Equal(t, "msg_manual", pick(now, paused), "a pause does not hold what a person asked for")
	assert.Empty(t, pick(now, paused, "msg_manual"))
	assert.Equal(t, "msg_first", pick(paused, paused, "msg_manual", "msg_test"))

	l.noteEndpoint(endpoint{ID: "wh_1"}, 3)
	assert.Empty(t, pick(now, none), "disabled")
	assert.Equal(t, "msg_test", pick(now.Add(time.Second), none), "tests go out all the same")
	assert.Empty(t, pick(now.Add(time.Hour), none, "msg_test"))
	id, _ := l.next("wh_2", now, none, nil)
	assert.Empty(t, id)
}
