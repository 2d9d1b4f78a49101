package webhook

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

var update = flag.Bool("update", false, "write the golden files anew")

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(EventSchema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("event.json", doc))
	schema, err := c.Compile("event.json")
	require.NoError(t, err)
	return schema
}

func pointer[T any](v T) *T { return &v }

// exampleEvents has one full event of every type.
func exampleEvents() []coordination.Event {
	at := time.Date(2026, 12, 1, 12, 0, 0, 250_000_000, time.UTC)
	peer := coordination.EventData{Group: "orders", InstanceID: "worker-7", Epoch: 3, Incarnation: "pod-5f2c"}
	with := func(base coordination.EventData, change func(*coordination.EventData)) coordination.EventData {
		change(&base)
		return base
	}
	leaving := with(peer, func(d *coordination.EventData) {
		d.Status, d.PreviousStatus, d.Intent = coordination.StatusDraining, coordination.StatusHealthy, coordination.IntentPreemption
		d.Deadline, d.LastSeen, d.InFlightCount = pointer(at.Add(30*time.Second)), pointer(at.Add(-2*time.Second)), pointer(int64(4))
		d.Subscriptions, d.Metadata = []string{"orders.eu", "orders.us"}, json.RawMessage(`{"node":"n-12"}`)
	})
	orphan := with(leaving, func(d *coordination.EventData) {
		d.Status, d.PreviousStatus, d.Metadata, d.InFlightCount = "", "", nil, nil
		d.Cause, d.Uncovered = coordination.StatusDraining, []string{"orders.us"}
		d.CoveredBy, d.OrphanIDs = map[string][]string{"orders.eu": {"worker-2"}}, []string{"orp_1", "orp_2"}
	})
	assigned := with(peer, func(d *coordination.EventData) {
		d.AssignmentID, d.SourceInstanceID, d.Priority, d.Subscriptions = "asg_1", "worker-1", pointer(int64(5)), []string{"orders.us"}
	})
	mass := coordination.EventData{Group: "orders", Epoch: 3, StaleCount: 6, PeerCount: 10, HeldUntil: pointer(at.Add(15 * time.Second))}
	status := func(now, before coordination.Status) coordination.EventData {
		return with(peer, func(d *coordination.EventData) { d.Status, d.PreviousStatus, d.LastSeen = now, before, pointer(at) })
	}
	data := map[coordination.EventType]coordination.EventData{
		coordination.EventPeerJoined:     status(coordination.StatusHealthy, ""),
		coordination.EventPeerDraining:   leaving,
		coordination.EventPeerTerminated: status(coordination.StatusTerminated, coordination.StatusDraining),
		coordination.EventPeerStale:      status(coordination.StatusStale, coordination.StatusHealthy),
		coordination.EventPeerRecovered:  status(coordination.StatusHealthy, coordination.StatusStale),
		coordination.EventPeerRejoined:   status(coordination.StatusHealthy, coordination.StatusTerminated),
		coordination.EventPeerRemoved:    peer,
		coordination.EventPeerIDConflict: with(peer, func(d *coordination.EventData) { d.Incarnations = []string{"pod-5f2c", "pod-9a01"} }),

		coordination.EventOrphanDetected:  orphan,
		coordination.EventOrphanEscalated: with(orphan, func(d *coordination.EventData) { d.Cause = coordination.StatusTerminated }),
		coordination.EventOrphanClaimed: with(orphan, func(d *coordination.EventData) {
			d.Subscriptions, d.Claimant, d.ClaimID, d.FencingToken = []string{"orders.us"}, "worker-3", "clm_1", 42
		}),
		coordination.EventOrphanResolved: with(orphan, func(d *coordination.EventData) {
			d.Claimant, d.Resolution, d.Uncovered = "worker-3", coordination.ResolvedTakenOver, nil
		}),

		coordination.EventSubscriptionConflict: {
			Group: "orders", Epoch: 3, Subscription: "orders.eu", Peers: []string{"worker-2", "worker-7"},
		},
		coordination.EventSubscriptionConflictResolved: {Group: "orders", Epoch: 3, Subscription: "orders.eu", Peers: []string{"worker-2"}},

		coordination.EventAssignmentCreated:      assigned,
		coordination.EventAssignmentDelivered:    assigned,
		coordination.EventAssignmentAcknowledged: assigned,
		coordination.EventAssignmentExpired:      assigned,
		coordination.EventGroupMassStaleness:     mass,
		coordination.EventGroupMassStalenessEnded: with(mass, func(d *coordination.EventData) {
			d.HeldUntil = nil
		}),
		coordination.EventLeaderChanged: {Epoch: 4, Identity: "replica-b", PreviousIdentity: "replica-a"},
		coordination.EventWebhookDisabled: {
			Epoch: 3, WebhookID: "wh_06f1q9", URL: "https://hooks.example.com/coordsvc", Reason: reasonGone,
		},
		coordination.EventWebhookTest: {Epoch: 3, WebhookID: "wh_06f1q9", URL: "https://hooks.example.com/coordsvc"},
	}
	var events []coordination.Event
	for _, typ := range slices.Sorted(maps.Keys(data)) {
		events = append(events, coordination.Event{ID: "evt_" + strings.ReplaceAll(string(typ), ".", "_"), Type: typ, Timestamp: at, Data: data[typ]})
	}
	return events
}

func TestEveryEventHasASchemaAndAGolden(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t)
	seen := map[coordination.EventType]bool{}
	for _, e := range exampleEvents() {
		seen[e.Type] = true
		body, err := json.MarshalIndent(&e, "", "  ")
		require.NoError(t, err)
		golden := filepath.Join("testdata", "events", string(e.Type)+".json")
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
			require.NoError(t, os.WriteFile(golden, append(body, '\n'), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err, "run the test with -update")
		assert.Equal(t, string(want), string(body)+"\n")
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(want))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(value), "%s", e.Type)
	}
	for _, typ := range append(coordination.EventTypes(), coordination.EventWebhookTest) {
		assert.True(t, seen[typ], "%s has an example", typ)
	}
}

func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t)
	const head = `{"id":"evt_1","timestamp":"2026-12-01T12:00:00Z",`
	for _, bad := range []string{
		`{}`,
		head + `"type":"orphan.detected"}`,
		head + `"type":"orphan.detected","data":{"epoch":1}}`,
		head + `"type":"orphan.detected","data":{"epoch":1,"group":"g","instance_id":"i","cause":"bored","subscriptions":["a"],"uncovered":["a"]}}`,
		head + `"type":"orphan.detected","data":{"epoch":1,"group":"g","instance_id":"i","cause":"stale","subscriptions":["a"],"uncovered":[]}}`,
		head + `"type":"peer.stale","data":{"group":"g","instance_id":"i"}}`,
		head + `"type":"leader.changed","data":{"epoch":-1}}`,
		`{"id":"evt_1","timestamp":"yesterday","type":"leader.changed","data":{"epoch":1}}`,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(bad))
		require.NoError(t, err)
		require.Error(t, schema.Validate(value), bad)
	}
	future := head + `"type":"peer.promoted","data":{"epoch":1,"rank":2}}`
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(future))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(value), "types and keys may be added")
}

func TestSchemaNamesEveryKeyAndType(t *testing.T) {
	t.Parallel()
	var doc struct {
		Properties map[string]any
		Defs       map[string]struct {
			Description string
			Required    []string
			Properties  map[string]struct{ Description string }
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal([]byte(EventSchema()), &doc))
	assert.ElementsMatch(t, jsonKeys(reflect.TypeFor[coordination.Event]()), slices.Collect(maps.Keys(doc.Properties)))
	data := doc.Defs["data"]
	assert.ElementsMatch(t, jsonKeys(reflect.TypeFor[coordination.EventData]()), slices.Collect(maps.Keys(data.Properties)))
	for key, p := range data.Properties {
		assert.NotEmpty(t, p.Description, key)
	}
	types := append(coordination.EventTypes(), coordination.EventWebhookTest)
	assert.Len(t, doc.Defs, len(types)+1)
	for _, typ := range types {
		def, ok := doc.Defs[string(typ)]
		assert.True(t, ok, "%s is defined", typ)
		assert.NotEmpty(t, def.Description, typ)
		assert.Contains(t, def.Required, "epoch", typ)
	}
}

func jsonKeys(typ reflect.Type) []string {
	var keys []string
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		keys = append(keys, name)
	}
	return keys
}
