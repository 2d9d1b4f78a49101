//go:build load

package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/app"
)

// BenchmarkHeartbeats lets the service and a bare server take turns, and reports the medians and their ratio.
func BenchmarkHeartbeats(b *testing.B) {
	const turn = time.Second
	ours, bare := serve(b, app.Defaults()), bareServer(b)
	toOurs, toBare := requests(ours, 10_000), requests(bare, 10_000)
	measure := func(address string, all [][]byte, during time.Duration) float64 {
		rate, err := generate(b.Context(), address, all, during)
		if err != nil {
			b.Fatal(err)
		}
		return rate
	}
	// All peers are known and both servers warm before anything counts.
	measure(ours, toOurs, turn)
	measure(bare, toBare, turn)
	var rates, yardstick, ratios []float64
	for b.Loop() {
		r, y := measure(ours, toOurs, turn), measure(bare, toBare, turn)
		rates, yardstick, ratios = append(rates, r), append(yardstick, y), append(ratios, r/y)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(rates), "heartbeats/s")
	b.ReportMetric(median(yardstick), "bare/s")
	b.ReportMetric(median(ratios), "ratio")
}

// BenchmarkMemory reports what a peer with three subscriptions costs at a hundred thousand of them.
func BenchmarkMemory(b *testing.B) {
	const peers, batch = 100_000, 1000
	var costs []float64
	o := app.Defaults()
	o.HeartbeatTimeout = time.Hour // nobody beats twice here, and a fleet that turns stale is another measurement
	for b.Loop() {
		address := serve(b, o)
		before := heap()
		for first := 0; first < peers; first += batch {
			var body strings.Builder
			for i := first; i < first+batch; i++ {
				fmt.Fprintf(&body, `,{"instance_id":"worker-%06d","group":"group-%d","subscriptions":["a-%d","b-%d","c-%d"]}`, i, i%100, i, i, i)
			}
			post(b, address, "/v1/heartbeats/batch", `{"heartbeats":[`+body.String()[1:]+`]}`)
		}
		costs = append(costs, float64(settledHeap(b)-before)/peers)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(costs), "B/peer")
}

// BenchmarkTimeoutToWebhook reports how long after the end of its heartbeat timeout a silent peer's event arrives.
func BenchmarkTimeoutToWebhook(b *testing.B) {
	o := app.Defaults()
	o.HeartbeatTimeout = 500 * time.Millisecond
	address := serve(b, o)
	arrived := make(chan time.Time, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			arrived <- time.Now()
		}
	}))
	b.Cleanup(receiver.Close)
	post(b, address, "/v1/webhooks", fmt.Sprintf(`{"url":%q,"event_types":["peer.stale"]}`, receiver.URL))
	var waits []float64
	for i := 0; b.Loop(); i++ {
		beat := time.Now()
		post(b, address, "/v1/heartbeats", fmt.Sprintf(`{"instance_id":"worker-%d","group":"group-%d"}`, i, i))
		waits = append(waits, float64((<-arrived).Sub(beat.Add(o.HeartbeatTimeout)).Microseconds())/1000)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(waits), "ms-to-webhook")
	b.ReportMetric(slices.Max(waits), "ms-to-webhook-max")
}

// serve runs the service on a free port until the benchmark ends.
func serve(b *testing.B, o app.Options) string {
	b.Helper()
	address := make(chan string, 1)
	o.Listen, o.DataDir, o.LogOutput = "127.0.0.1:0", b.TempDir(), io.Discard
	o.OnListening = func(a net.Addr) { address <- a.String() }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, o) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	select {
	case a := <-address:
		return a
	case err := <-ended:
		ended <- err
		b.Fatal(err)
		return ""
	}
}

// bareServer is the yardstick: net/http, the body read and decoded with encoding/json, a constant answer.
func bareServer(b *testing.B) string {
	b.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var heartbeat struct {
			InstanceID    string   `json:"instance_id"`
			Group         string   `json:"group"`
			Timestamp     string   `json:"timestamp"`
			Subscriptions []string `json:"subscriptions"`
			InFlightCount int64    `json:"in_flight_count"`
			IsLeader      bool     `json:"is_leader"`
			LoadFactor    float64  `json:"load_factor"`
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &heartbeat) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"healthy"}`)
	}))
	b.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func post(b *testing.B, address, path, body string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 || bytes.Contains(text, []byte(`"problem"`)) {
		b.Fatalf("%s: %d %v %.300s", path, answer.StatusCode, err, text)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// settledHeap is the heap once what is still to be written is written: two looks a second apart that agree within a percent.
func settledHeap(b *testing.B) int64 {
	b.Helper()
	last := heap()
	for range 120 {
		<-time.After(time.Second)
		now := heap()
		if d := now - last; d < now/100 && -d < now/100 {
			return now
		}
		last = now
	}
	b.Fatal("the heap does not settle")
	return 0
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
