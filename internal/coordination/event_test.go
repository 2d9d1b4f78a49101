package coordination

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOrphanEventsAlwaysHaveTheirKeys(t *testing.T) {
	at := time.Date(2026, 7, 27, 12, 0, 0, 0, time.UTC)
	text, err := json.Marshal(Event{ID: "evt_1", Type: EventOrphanDetected, Timestamp: at, Data: EventData{
		Group: "default", InstanceID: "a", Epoch: 3, Cause: StatusStale, Subscriptions: []string{"orders"}, Uncovered: []string{"orders"},
	}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"evt_1","type":"orphan.detected","timestamp":"2026-07-27T12:00:00Z","data":{
		"group":"default","instance_id":"a","epoch":3,"cause":"stale","intent":null,"subscriptions":["orders"],
		"uncovered":["orders"],"covered_by":{},"deadline":null,"last_seen":null,"orphan_ids":[]}}`, string(text))

	var back Event
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, "a", back.Data.InstanceID)
	assert.Empty(t, back.Data.Intent)

	text, err = json.Marshal(Event{ID: "evt_2", Type: EventPeerJoined, Timestamp: at, Data: EventData{Group: "default", InstanceID: "a"}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"evt_2","type":"peer.joined","timestamp":"2026-07-27T12:00:00Z","data":{"group":"default","instance_id":"a","epoch":0}}`, string(text))
}
