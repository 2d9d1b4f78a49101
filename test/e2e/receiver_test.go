//go:build e2e

package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// delivery is one request that a receiver took.
type delivery struct {
	id, body string
	event    event
}

type event struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		InstanceID    string   `json:"instance_id"`
		Cause         string   `json:"cause"`
		Subscriptions []string `json:"subscriptions"`
		Claimant      string   `json:"claimant"`
		Resolution    string   `json:"resolution"`
		Epoch         uint64   `json:"epoch"`
	} `json:"data"`
}

// receiver takes webhooks. It verifies every signature; answers 204 unless told otherwise.
type receiver struct {
	*httptest.Server

	t      *testing.T
	secret string

	mu   sync.Mutex
	took []delivery
	// hang makes it not answer; came tells of every request that hangs.
	hang bool
	came chan string
}

const receiverSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // of the tests alone

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, secret: receiverSecret, came: make(chan string, 100)}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// register subscribes the receiver to the event types.
func (r *receiver) register(s *service, types ...string) {
	r.t.Helper()
	made := s.call(http.StatusCreated, http.MethodPost, "/v1/webhooks", object{"url": r.URL, "secret": r.secret, "event_types": types})
	require.Equal(r.t, r.secret, made["secret"])
}

// ServeHTTP takes one delivery.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the service was killed while it sent
	}
	verifier, err := standardwebhooks.NewWebhook(r.secret)
	if !assert.NoError(r.t, err) || !assert.NoError(r.t, verifier.Verify(body, req.Header)) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	d := delivery{id: req.Header.Get("Webhook-Id"), body: string(body)}
	assert.NoError(r.t, json.Unmarshal(body, &d.event))
	r.mu.Lock()
	hang := r.hang
	if !hang {
		r.took = append(r.took, d)
	}
	r.mu.Unlock()
	if hang {
		r.came <- d.id
		<-req.Context().Done()
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) setHang(hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang = hang
}

// deliveries are those of the type so far.
func (r *receiver) deliveries(eventType string) []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []delivery
	for _, d := range r.took {
		if d.event.Type == eventType || eventType == "*" {
			all = append(all, d)
		}
	}
	return all
}

// assertTold checks that deliveries repeat one another only under the same id, and that no event has two ids.
func assertTold(t *testing.T, all []delivery) {
	t.Helper()
	byID, byEvent := map[string]string{}, map[string]string{}
	for _, d := range all {
		if body, seen := byID[d.id]; seen {
			assert.Equal(t, body, d.body, "webhook-id %s stands for two bodies", d.id)
		}
		byID[d.id] = d.body
		if id, seen := byEvent[d.event.ID]; seen {
			assert.Equal(t, id, d.id, "event %s came under two ids", d.event.ID)
		}
		byEvent[d.event.ID] = d.id
	}
}
