package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// client is the little that a worker needs to speak to the service.
type client struct {
	server string
	http   *http.Client
}

// statusError is an answer that is no success.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("answered %d: %s", e.status, e.text) }

type object = map[string]any

func (c *client) call(ctx context.Context, method, path string, body, answer any) error {
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		payload = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, payload)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %w", method, path, &statusError{resp.StatusCode, string(text[:min(len(text), 300)])})
	}
	if answer == nil || len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

type claim struct {
	ID           string `json:"id"`
	Subscription string `json:"subscription"`
	FencingToken uint64 `json:"fencing_token"`
	Ready        bool   `json:"ready"`
}

type assignment struct {
	ID            string   `json:"id"`
	Subscriptions []string `json:"subscriptions"`
}

type heartbeatReply struct {
	Status        string       `json:"status"`
	NextHeartbeat float64      `json:"next_heartbeat_seconds"`
	Claims        []claim      `json:"claims"`
	Assignments   []assignment `json:"assignments"`
	Directives    []struct {
		Type string `json:"type"`
	} `json:"directives"`
}

type orphan struct {
	Subscription string `json:"subscription"`
	InstanceID   string `json:"instance_id"`
}

func (c *client) claimable(ctx context.Context, group string) ([]orphan, error) {
	var list struct {
		Items []orphan `json:"items"`
	}
	query := url.Values{"group": {group}, "state": {"open"}, "claimable": {"true"}}
	err := c.call(ctx, http.MethodGet, "/v1/orphans?"+query.Encode(), nil, &list)
	return list.Items, err
}
