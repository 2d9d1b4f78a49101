package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

const benchBody = `{"instance_id":"worker-0001","group":"orders","timestamp":"2026-07-27T12:00:00.123456+00:00",` +
	`"subscriptions":["order-projection","inventory-sync","billing-export"],"in_flight_count":5,"is_leader":false,` +
	`"load_factor":0.75}`

// BenchmarkDecodeHeartbeat compares this package's reader with encoding/json on one body.
func BenchmarkDecodeHeartbeat(b *testing.B) {
	data := []byte(benchBody)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		var r reader
		for b.Loop() {
			var hb coordination.Heartbeat
			if err := r.decodeHeartbeat(data, &hb); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var hb yardstick
			if err := json.Unmarshal(data, &hb); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type yardstick struct {
	InstanceID    string   `json:"instance_id"`
	Group         string   `json:"group"`
	Timestamp     string   `json:"timestamp"`
	Subscriptions []string `json:"subscriptions"`
	InFlightCount int64    `json:"in_flight_count"`
	IsLeader      bool     `json:"is_leader"`
	LoadFactor    float64  `json:"load_factor"`
}

// BenchmarkHeartbeatHandler is the entrance's own share: everything but the connection and the service.
func BenchmarkHeartbeatHandler(b *testing.B) {
	a := &API{service: answering{}, bodies: newBodies(1<<20, 8<<20), jsonType: []string{"application/json"}, kinds: kinds(), origins: http.NewCrossOriginProtection()}
	b.Run("ours", func(b *testing.B) { benchHandler(b, a) })
	b.Run("bare", func(b *testing.B) {
		benchHandler(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var hb yardstick
			if err != nil || json.Unmarshal(body, &hb) != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"status":"healthy"}`)
		}))
	})
}

func benchHandler(b *testing.B, handler http.Handler) {
	b.ReportAllocs()
	body := strings.NewReader(benchBody)
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, heartbeatPath, io.NopCloser(body))
	r.ContentLength = int64(len(benchBody))
	r.Header.Set("Content-Type", "application/json")
	w := &discardWriter{header: http.Header{}}
	for b.Loop() {
		body.Reset(benchBody)
		clear(w.header)
		handler.ServeHTTP(w, r)
		if w.status != 0 && w.status != http.StatusOK {
			b.Fatal(fmt.Sprint("status ", w.status))
		}
	}
}

type discardWriter struct {
	header http.Header
	status int
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) WriteHeader(status int)      { w.status = status }

// answering is the service's port without a service: the benchmark measures what stands before it.
type answering struct{ service.Coordinator }

func (answering) Heartbeat(context.Context, coordination.Heartbeat) (service.HeartbeatReply, error) {
	return service.HeartbeatReply{
		Status: coordination.StatusHealthy, Outcome: coordination.OutcomeAccepted, ReceivedAt: time.Now(),
		HeartbeatTimeout: 15 * time.Second, NextHeartbeat: 5 * time.Second, Leader: "node-a",
	}, nil
}
