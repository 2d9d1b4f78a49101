package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
)

func TestEveryRouteIsInTheContractAndTheOtherWayRound(t *testing.T) {
	t.Parallel()
	h := start(t)
	parameter := regexp.MustCompile(`:(\w+)`)
	var served []string
	for _, r := range h.api.Routes() {
		served = append(served, r.Method+" "+parameter.ReplaceAllString(r.Path, "{$1}"))
	}
	var promised []string
	for path, item := range h.contract.doc.Paths.Map() {
		for method := range item.Operations() {
			promised = append(promised, method+" "+path)
			assert.True(t, isAPI(path), "%s would go to the dashboard", path)
		}
	}
	assert.ElementsMatch(t, promised, served)
}

func TestTheContractKnowsEveryEvent(t *testing.T) {
	t.Parallel()
	schemas := readContract(t).doc.Components.Schemas
	about := schemas["EventType"].Value.Description
	for _, e := range append(coordination.EventTypes(), coordination.EventWebhookTest) {
		assert.Contains(t, about, "`"+string(e)+"`")
	}
	var keys []string
	for field := range fieldsOf(coordination.EventData{}) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		keys = append(keys, name)
	}
	assert.ElementsMatch(t, keys, slices.Collect(maps.Keys(schemas["EventData"].Value.Properties)))
}

func fieldsOf(v any) func(yield func(reflect.StructField) bool) {
	typ := reflect.TypeOf(v)
	return func(yield func(reflect.StructField) bool) {
		for i := range typ.NumField() {
			if !yield(typ.Field(i)) {
				return
			}
		}
	}
}

func TestEveryKindOfProblemIsInTheContract(t *testing.T) {
	t.Parallel()
	about := readContract(t).doc.Components.Schemas["Problem"].Value.Description
	slugs := []string{
		"malformed-json", "wrong-type", "bad-parameter", "cross-site", "no-such-path", "method-not-allowed", "too-large",
		"unsupported-media-type",
	}
	for _, k := range kinds() {
		slugs = append(slugs, k.slug)
	}
	slices.Sort(slugs)
	slugs = slices.Compact(slugs)
	for _, slug := range slugs {
		assert.Contains(t, about, "`"+slug+"`")
	}
	_, list, found := strings.Cut(about, "one of")
	require.True(t, found)
	documented := regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(list, -1)
	for _, match := range documented {
		assert.Contains(t, slugs, match[1], "documented, but never sent")
	}
}

// TestTourOfEveryOperation calls everything once the way people would, on the real service; the transport holds every answer
// against the contract.
func TestTourOfEveryOperation(t *testing.T) {
	t.Parallel()
	h := startWith(t, setup{api: func(o *Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, err := fmt.Fprintln(w, "coordsvc_up 1")
			assert.NoError(t, err)
		})
	}})
	tourWorkers(h)
	orphanID, claimID := tourTakeover(h)
	tourAssignments(h)
	tourWebhooks(h)
	tourReads(h, orphanID, claimID)
	tourEnds(h)
	for _, item := range h.contract.doc.Paths.Map() {
		for _, op := range item.Operations() {
			assert.True(t, h.contract.answered[op.OperationID], "%s was not shown to work", op.OperationID)
		}
	}
}

func tourWorkers(h *harness) {
	t := h.t
	r := h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"worker-1","group":"orders","timestamp":"2026-07-27T12:00:00.123456+00:00",
		"subscriptions":["inventory-sync"],"in_flight_count":5,"is_leader":true,"load_factor":0.75,"incarnation":"one","labels":{"zone":"eu"}}`)
	var beat apigen.HeartbeatReply
	r.decode(t, &beat)
	assert.Equal(t, apigen.PeerStatusHealthy, beat.Status)
	assert.EqualValues(t, "accepted", beat.Outcome)
	assert.InDelta(t, 15, beat.HeartbeatTimeoutSeconds, 0)
	assert.Equal(t, "node-a", *beat.Leader)
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"worker-3","group":"orders","subscriptions":["order-projection","a/b"]}`)
	r = h.want(200, "POST", "/v1/heartbeats/batch", `{"heartbeats":[{"instance_id":"w-1"},{"instance_id":"w-2","in_flight_count":-1},{"instance_id":"w-3","timestamp":"noon"},{"instance_id":"w-4","subscriptions":["s"]}]}`)
	var batch apigen.HeartbeatBatchReply
	r.decode(t, &batch)
	assert.Equal(t, 2, batch.Accepted)
	require.Len(t, batch.Rejected, 2)
	assert.Equal(t, 1, batch.Rejected[0].Index)
	assert.Equal(t, "/heartbeats/1/in_flight_count", (*batch.Rejected[0].Problem.Errors)[0].Pointer)
	assert.Equal(t, 2, batch.Rejected[1].Index)
	assert.Equal(t, "/heartbeats/2/timestamp", (*batch.Rejected[1].Problem.Errors)[0].Pointer)

	h.want(202, "POST", "/v1/shutdowns", `{"instance_id":"w-4","intent":"maintenance"}`)
	var p apigen.Peer
	h.want(200, "DELETE", "/v1/peers/w-4/shutdown", nil).decode(t, &p)
	assert.Equal(t, apigen.PeerStatusHealthy, p.Status)
	assert.Equal(t, "not-draining", slug(h.want(409, "DELETE", "/v1/peers/w-4/shutdown", nil).problem(t)))

	r = h.want(202, "POST", "/v1/shutdowns", `{"instance_id":"worker-3","group":"orders","intent":"preemption","drain_timeout_seconds":0,
		"in_flight_count":3,"metadata":{"spot": ["x", {"y":1}]}}`)
	var shutdown apigen.ShutdownReply
	r.decode(t, &shutdown)
	assert.Equal(t, apigen.PeerStatusTerminated, shutdown.Status)
	assert.InDelta(t, 0, *shutdown.TimeRemainingSeconds, 0)
	assert.JSONEq(t, `{"spot":["x",{"y":1}]}`, string(shutdown.Notification.Metadata))
	assert.Equal(t, "peer-terminated", slug(h.want(409, "DELETE", "/v1/peers/worker-3/shutdown?group=orders", nil).problem(t)))
	h.want(200, "GET", "/v1/peers/worker-3?group=orders", nil).decode(t, &p)
	assert.Equal(t, []string{"order-projection", "a/b"}, p.Subscriptions)
	assert.Equal(t, "worker-3", p.LastHeartbeat.InstanceID)
	h.want(404, "GET", "/v1/peers/worker-3", nil)
}

func slug(p problem) string { return strings.TrimPrefix(p.Type, problemType) }

func tourTakeover(h *harness) (orphanID, claimID string) {
	t := h.t
	h.awaitEvent(coordination.EventOrphanDetected)
	var view map[string][]string
	h.want(200, "GET", "/v1/orphaned-subscriptions?group=orders", nil).decode(t, &view)
	assert.Equal(t, map[string][]string{"worker-3": {"order-projection", "a/b"}}, view)
	h.want(200, "GET", "/v1/orphaned-subscriptions", nil).decode(t, &view)

	var orphans apigen.OrphanList
	h.want(200, "GET", "/v1/orphans?state=open&cause=terminated&claimable=true&group=orders&instance_id=worker-3&subscription=order-projection", nil).decode(t, &orphans)
	require.Len(t, orphans.Items, 1)
	orphanID = orphans.Items[0].ID

	r := h.want(201, "POST", "/v1/claims", `{"group":"orders","subscription":"order-projection","instance_id":"worker-1"}`)
	var c apigen.Claim
	r.decode(t, &c)
	assert.Equal(t, "/v1/claims/"+c.ID, r.header.Get("Location"))
	assert.Equal(t, orphanID, value(c.OrphanID))
	var again apigen.Claim
	h.want(200, "POST", "/v1/claims", `{"group":"orders","subscription":"order-projection","instance_id":"worker-1"}`).decode(t, &again)
	assert.Equal(t, c.FencingToken, again.FencingToken)
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"worker-2","group":"orders"}`)
	refused := h.want(409, "POST", "/v1/claims", `{"group":"orders","subscription":"order-projection","instance_id":"worker-2"}`).problem(t)
	assert.Equal(t, "claim-held", slug(refused))
	assert.Equal(t, "worker-1", refused.Holder)
	refused = h.want(409, "POST", "/v1/claims", `{"group":"orders","subscription":"inventory-sync","instance_id":"worker-2"}`).problem(t)
	assert.Equal(t, "subscription-served", slug(refused))
	assert.Equal(t, "worker-1", refused.Holder)

	var beat apigen.HeartbeatReply
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"worker-1","group":"orders","incarnation":"one","subscriptions":["inventory-sync"],"labels":{"zone":"eu"}}`).decode(t, &beat)
	require.Len(t, beat.Claims, 1)
	assert.Equal(t, c.ID, beat.Claims[0].ID)
	h.want(200, "GET", "/v1/claims/"+c.ID, nil).decode(t, &again)
	var list apigen.ClaimList
	h.want(200, "GET", "/v1/claims?group=orders&state=active&instance_id=worker-1", nil).decode(t, &list)
	assert.Equal(t, 1, list.Total)
	var o apigen.Orphan
	h.want(200, "GET", "/v1/orphans/"+orphanID, nil).decode(t, &o)
	require.NotNil(t, o.Claim)
	assert.Equal(t, c.ID, o.Claim.ID)
	return orphanID, c.ID
}

func tourAssignments(h *harness) {
	t := h.t
	r := h.want(201, "POST", "/v1/assignments", `{"group":"orders","target_instance_id":"worker-2","subscriptions":["a/b"],"priority":7,"source_instance_id":"worker-3"}`)
	var a apigen.Assignment
	r.decode(t, &a)
	assert.Equal(t, "/v1/assignments/"+a.ID, r.header.Get("Location"))
	var beat apigen.HeartbeatReply
	h.want(200, "POST", "/v1/heartbeats", `{"instance_id":"worker-2","group":"orders"}`).decode(t, &beat)
	require.Len(t, beat.Assignments, 1)
	assert.Equal(t, a.ID, beat.Assignments[0].ID)
	h.want(200, "GET", "/v1/assignments/"+a.ID, nil)
	var list apigen.AssignmentList
	h.want(200, "GET", "/v1/assignments?group=orders&target_instance_id=worker-2", nil).decode(t, &list)
	assert.Equal(t, 1, list.Total)
	h.want(200, "POST", "/v1/assignments/"+a.ID+"/ack", nil).decode(t, &a)
	assert.Equal(t, apigen.AssignmentStateAcknowledged, a.State)
	assert.NotNil(t, a.AcknowledgedAt)
}

func tourWebhooks(h *harness) {
	t := h.t
	received := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.Header.Get("Webhook-Id") }))
	defer receiver.Close()
	r := h.want(201, "POST", "/v1/webhooks", map[string]any{
		"url": receiver.URL, "event_types": []string{"*"}, "groups": []string{"orders"}, "headers": map[string]string{"Authorization": "Bearer x"},
		"description": "tour", "enabled": true, "secret": nil,
	})
	var w apigen.Webhook
	r.decode(t, &w)
	assert.Equal(t, "/v1/webhooks/"+w.ID, r.header.Get("Location"))
	require.NotNil(t, w.Secret)
	assert.NotContains(t, string(r.body), "Bearer x")
	var got apigen.Webhook
	h.want(200, "GET", "/v1/webhooks/"+w.ID, nil).decode(t, &got)
	assert.Nil(t, got.Secret)
	h.want(200, "PATCH", "/v1/webhooks/"+w.ID, `{"description":"tour, changed","event_types":["orphan.*"],"groups":null}`).decode(t, &got)
	assert.Equal(t, []string{"orphan.*"}, got.EventTypes)
	assert.Equal(t, []string{"orders"}, got.Groups)
	var list apigen.WebhookList
	h.want(200, "GET", "/v1/webhooks", nil).decode(t, &list)
	assert.Equal(t, 1, list.Total)
	h.want(200, "POST", "/v1/webhooks/"+w.ID+"/rotate-secret", `{"overlap_seconds":60}`).decode(t, &got)
	assert.NotEqual(t, *w.Secret, *got.Secret)
	h.want(200, "POST", "/v1/webhooks/"+w.ID+"/rotate-secret", nil)

	r = h.want(202, "POST", "/v1/webhooks/"+w.ID+"/test", nil)
	var d apigen.Delivery
	r.decode(t, &d)
	assert.Equal(t, "/v1/deliveries/"+d.ID, r.header.Get("Location"))
	// Events of the tour before may have been on their way when the webhook was registered.
	arrives := func() {
		for id := range received {
			if id == d.ID {
				return
			}
		}
	}
	arrives()
	h.want(200, "GET", "/v1/deliveries/"+d.ID, nil)
	h.want(202, "POST", "/v1/deliveries/"+d.ID+"/retry", nil)
	arrives()
	var deliveries apigen.DeliveryList
	h.want(200, "GET", "/v1/webhooks/"+w.ID+"/deliveries?limit=1", nil).decode(t, &deliveries)
	assert.Len(t, deliveries.Items, 1)
	h.want(200, "GET", "/v1/webhooks/"+w.ID+"/deliveries?status=dead", nil).decode(t, &deliveries)
	assert.Empty(t, deliveries.Items)
	h.want(204, "DELETE", "/v1/webhooks/"+w.ID, nil)
	h.want(404, "GET", "/v1/webhooks/"+w.ID, nil)
}

func tourReads(h *harness, orphanID, claimID string) {
	t := h.t
	var peers apigen.PeerList
	h.want(200, "GET", "/v1/peers?group=orders&status=healthy&status=terminated&q=WORKER&limit=2", nil).decode(t, &peers)
	assert.Equal(t, 3, peers.Total)
	assert.Len(t, peers.Items, 2)
	require.NotNil(t, peers.NextCursor)
	h.want(200, "GET", "/v1/peers?group=orders&q=worker&limit=2&cursor="+*peers.NextCursor, nil).decode(t, &peers)
	assert.Len(t, peers.Items, 1)
	assert.Nil(t, peers.NextCursor)
	h.want(200, "GET", "/v1/peers?label=zone%3Deu&subscription=inventory-sync", nil).decode(t, &peers)
	assert.Equal(t, 1, peers.Total)

	var s apigen.Summary
	h.want(200, "GET", "/v1/summary", nil).decode(t, &s)
	assert.Equal(t, 4, s.Peers.Healthy)
	assert.Equal(t, 1, s.Peers.Terminated)
	assert.Equal(t, 5, s.Peers.Total)
	assert.Len(t, s.Groups, 2)
	var l apigen.Leader
	h.want(200, "GET", "/v1/leader", nil).decode(t, &l)
	assert.True(t, l.IsLeader)
	assert.Equal(t, "node-a", *l.Identity)

	var events apigen.EventList
	h.want(200, "GET", "/v1/events?type=orphan.*&group=orders&instance_id=worker-3&order=oldest&limit=1", nil).decode(t, &events)
	require.Len(t, events.Items, 1)
	var first coordination.Event
	require.NoError(t, json.Unmarshal(events.Items[0], &first))
	assert.Equal(t, coordination.EventOrphanDetected, first.Type)
	assert.NotEqual(t, "0-0", events.Head)

	for _, path := range []string{"/livez", "/healthz", "/readyz", "/readyz?verbose", "/metrics", "/docs", "/docs/style.css"} {
		h.want(200, "GET", path, nil)
	}
	var ready apigen.Readiness
	h.want(200, "GET", "/readyz?verbose=true", nil).decode(t, &ready)
	assert.Len(t, *ready.Parts, 3)
	h.want(200, "GET", "/readyz?verbose=0", nil).decode(t, &ready)
	assert.Equal(t, h.contract.raw, h.want(200, "GET", "/openapi.yaml", nil).body)

	var c apigen.Claim
	h.want(200, "DELETE", "/v1/claims/"+claimID, nil).decode(t, &c)
	assert.Equal(t, apigen.ClaimStateReleased, c.State)
	var o apigen.Orphan
	h.want(200, "POST", "/v1/orphans/"+orphanID+"/dismiss", `{"reason":"retired"}`).decode(t, &o)
	assert.EqualValues(t, "dismissed", *o.Resolution)
	assert.Equal(t, "retired", *o.DismissReason)
	h.want(200, "POST", "/v1/orphans/"+orphanID+"/dismiss", nil)
}

func tourEnds(h *harness) {
	h.want(204, "DELETE", "/v1/peers/w-1", nil)
	h.want(404, "GET", "/v1/peers/w-1", nil)
	var handoff apigen.HandoffReply
	h.want(200, "POST", "/v1/leader/handoff", nil).decode(h.t, &handoff)
	assert.True(h.t, handoff.Released)
}
