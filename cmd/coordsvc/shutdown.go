package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func shutdownCommand(s *streams) *cobra.Command {
	client := &clientFlags{streams: s}
	peer := &peerFlags{}
	note := &shutdownFlags{}
	wait := &waitFlags{}
	cmd := &cobra.Command{
		Use:   "shutdown",
		Short: "Announce that a worker is leaving, and wait for its drain if asked to",
		Long: `Announce that a worker is leaving. Once this ends with exit code 0, the announcement is durable.
With --wait it ends when the worker has finished (its last heartbeat said so) or its drain window is over.`,
		Example: `  # a preStop hook
  coordsvc shutdown --instance-id "$HOSTNAME" --drain-timeout 45s --wait`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			message, err := peer.fields(cmd)
			if err != nil {
				return err
			}
			if err := note.fill(cmd, message); err != nil {
				return err
			}
			answer, err := client.call(cmd.Context(), http.MethodPost, "/v1/shutdowns", message)
			if err != nil {
				return err
			}
			client.print(answer)
			if !wait.wait {
				return nil
			}
			return wait.until(cmd.Context(), client, peer, answer)
		},
	}
	peer.register(cmd)
	note.register(cmd)
	cmd.Flags().BoolVar(&wait.wait, "wait", false, "end only when the drain has ended")
	cmd.Flags().DurationVar(&wait.timeout, "wait-timeout", 0, "longest time for --wait; 0: the drain window and 10s (exit code 5 when it runs out)")
	client.register(cmd)
	return cmd
}

// shutdownFlags are the notification's own fields.
type shutdownFlags struct {
	intent, initiatedAt, completionAt, metadata string
	drain                                       time.Duration
}

func (n *shutdownFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.intent, "intent", "graceful", "why it leaves: graceful, maintenance, preemption or health_failure")
	cmd.Flags().DurationVar(&n.drain, "drain-timeout", 30*time.Second, "time that the worker has to finish, from now")
	cmd.Flags().StringVar(&n.completionAt, "expected-completion-at", "", "the same as a time, RFC 3339 with offset")
	cmd.Flags().StringVar(&n.initiatedAt, "initiated-at", "", "when the shutdown began, RFC 3339 with offset; unset: stamped on arrival")
	cmd.Flags().StringVar(&n.metadata, "metadata", "", `a JSON object for whoever reads the event, such as '{"node": "n7"}'`)
	cmd.MarkFlagsMutuallyExclusive("drain-timeout", "expected-completion-at")
}

func (n *shutdownFlags) fill(cmd *cobra.Command, message map[string]any) error {
	message["intent"] = n.intent
	if n.completionAt != "" {
		message["expected_completion_at"] = n.completionAt
	} else {
		message["drain_timeout_seconds"] = n.drain.Seconds()
	}
	if n.initiatedAt != "" {
		message["initiated_at"] = n.initiatedAt
	}
	if cmd.Flags().Changed("metadata") {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(n.metadata), &object); err != nil || object == nil {
			return usageError("--metadata: this is not a JSON object")
		}
		message["metadata"] = object
	}
	return nil
}

type waitFlags struct {
	wait    bool
	timeout time.Duration
}

// pollEvery is how often --wait looks.
const pollEvery = 500 * time.Millisecond

var errStillDraining = errors.New("still draining")

// until polls the peer until its drain has ended.
func (w *waitFlags) until(ctx context.Context, client *clientFlags, peer *peerFlags, answer []byte) error {
	limit := w.timeout
	if limit <= 0 {
		var reply struct {
			Remaining float64 `json:"time_remaining_seconds"`
		}
		if err := json.Unmarshal(answer, &reply); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		limit = time.Duration(reply.Remaining*float64(time.Second)) + 10*time.Second
	}
	ranOut := &exitError{exitWaitEnded, fmt.Errorf("%s is still draining after %s", peer.instanceID, limit)}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ranOut)
	defer cancel()
	path := "/v1/peers/" + url.PathEscape(peer.instanceID)
	if peer.group != "" {
		path += "?group=" + url.QueryEscape(peer.group)
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if err := drained(ctx, client, path); !errors.Is(err, errStillDraining) && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// drained looks once. A service that is away for a moment does not end the wait.
func drained(ctx context.Context, client *clientFlags, path string) error {
	answer, err := client.call(ctx, http.MethodGet, path, nil)
	var refused *refusal
	var exit *exitError
	switch {
	case errors.As(err, &refused) && refused.status == http.StatusNotFound:
		return nil // forgotten: there is nothing left to wait for
	case errors.As(err, &exit) && exit.code == exitUnreachable:
		return errStillDraining
	case err != nil:
		return err
	}
	var peer struct {
		Status  string `json:"status"`
		Overdue bool   `json:"overdue"`
	}
	if err := json.Unmarshal(answer, &peer); err != nil {
		return fmt.Errorf("read the peer: %w", err)
	}
	switch {
	case peer.Status == "terminated" && !peer.Overdue:
		return nil
	case peer.Status == "terminated", peer.Status == "draining":
		return errStillDraining
	}
	return fmt.Errorf("the drain was ended by something else: the peer is %s", peer.Status)
}
