package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// operator is the automation that the service calls: it believes nothing that is not signed.
type operator struct {
	fleet  *fleet
	server *http.Server
	id     string

	mu     sync.Mutex
	verify *standardwebhooks.Webhook
	seen   map[string]bool
}

// listenOperator starts the receiver and registers it.
func listenOperator(ctx context.Context, f *fleet) (*operator, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for webhooks: %w", err)
	}
	o := &operator{fleet: f, seen: map[string]bool{}}
	o.server = &http.Server{Handler: o, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := o.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			f.say("the webhook receiver stopped: %v", err)
		}
	}()
	if err := o.register(ctx, "http://"+listener.Addr().String()+"/coordsvc"); err != nil {
		return nil, errors.Join(err, o.server.Close())
	}
	return o, nil
}

func (o *operator) register(ctx context.Context, address string) error {
	var made struct {
		ID     string `json:"id"`
		Secret string `json:"secret"`
	}
	o.mu.Lock() // deliveries wait until there is a secret to judge them by
	defer o.mu.Unlock()
	err := o.fleet.client.call(ctx, http.MethodPost, "/v1/webhooks", object{
		"url": address, "description": "the demonstration's operator",
		"event_types": []string{"orphan.*", "group.*", "subscription.*", "peer.stale"},
	}, &made)
	if err != nil {
		return fmt.Errorf("register the webhook: %w", err)
	}
	verify, err := standardwebhooks.NewWebhook(made.Secret)
	if err != nil {
		return fmt.Errorf("read the webhook's secret: %w", err)
	}
	o.id, o.verify = made.ID, verify
	return nil
}

// ServeHTTP takes one delivery.
func (o *operator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	err = o.verify.Verify(body, r.Header)
	repeated := o.seen[r.Header.Get("Webhook-Id")]
	if err == nil {
		o.seen[r.Header.Get("Webhook-Id")] = true
	}
	o.mu.Unlock()
	if err != nil {
		o.fleet.say("operator: refused a call whose signature is wrong: %v", err)
		http.Error(w, "the signature is wrong", http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	if !repeated {
		o.tell(body)
	}
}

func (o *operator) tell(body []byte) {
	var event struct {
		Type string `json:"type"`
		Data struct {
			Group        string   `json:"group"`
			InstanceID   string   `json:"instance_id"`
			Cause        string   `json:"cause"`
			Uncovered    []string `json:"uncovered"`
			Claimant     string   `json:"claimant"`
			Resolution   string   `json:"resolution"`
			Subscription string   `json:"subscription"`
			Peers        []string `json:"peers"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		o.fleet.say("operator: cannot read an event: %v", err)
		return
	}
	d := event.Data
	parts := []string{event.Type}
	for _, p := range []struct{ name, text string }{
		{"", d.InstanceID},
		{"group ", onlyWithout(d.InstanceID, d.Group)},
		{"cause ", d.Cause},
		{"nobody serves ", strings.Join(d.Uncovered, ", ")},
		{"claimed by ", d.Claimant},
		{"ended as ", d.Resolution},
		{"", d.Subscription},
		{"served by ", strings.Join(d.Peers, ", ")},
	} {
		if p.text != "" {
			parts = append(parts, p.name+p.text)
		}
	}
	o.fleet.say("operator: webhook, signature verified: %s", strings.Join(parts, " · "))
}

func onlyWithout(present, text string) string {
	if present != "" {
		return ""
	}
	return text
}

// close removes the webhook from the service, and stops receiving.
func (o *operator) close(ctx context.Context) error {
	return errors.Join(
		o.fleet.client.call(ctx, http.MethodDelete, "/v1/webhooks/"+o.id, nil, nil),
		o.server.Shutdown(ctx))
}
