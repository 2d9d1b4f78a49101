package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"
)

const (
	envServer     = "COORDSVC_SERVER"
	defaultServer = "http://127.0.0.1:8080"
	// maxAnswer bounds what is read of an answer: the answers to these calls are small.
	maxAnswer = 1 << 20
)

// clientFlags are the flags that all client commands share.
type clientFlags struct {
	streams *streams
	server  string
	timeout time.Duration
	retries int
	quiet   bool
}

func (f *clientFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.server, "server", "", "the service's URL [COORDSVC_SERVER] (default "+defaultServer+")")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "time for the call, retries included")
	cmd.Flags().IntVar(&f.retries, "retries", 5, "further tries while the service cannot be reached or asks to wait")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "do not print the answer")
}

func (f *clientFlags) base() (string, error) {
	server := f.server
	if server == "" {
		server = f.streams.getenv(envServer)
	}
	if server == "" {
		server = defaultServer
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usageError("--server: %q is not a URL such as %s", server, defaultServer)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// refusal is an answer that is no success.
type refusal struct {
	status int
	title  string
	detail string
	errors []struct{ Pointer, Detail string }
}

func (r *refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the service answered %d", r.status)
	for _, part := range []string{r.title, r.detail} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	for _, e := range r.errors {
		fmt.Fprintf(&b, "\n  %s: %s", e.Pointer, e.Detail)
	}
	return b.String()
}

// again: a repeat may succeed.
func (r *refusal) again() bool {
	return r.status == http.StatusTooManyRequests || r.status == http.StatusBadGateway ||
		r.status == http.StatusServiceUnavailable || r.status == http.StatusGatewayTimeout
}

// call makes one call, with repeats while that can help. The messages may be repeated safely: a heartbeat is a
// state, and a second shutdown notification joins the first one's drain.
func (f *clientFlags) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	base, err := f.base()
	if err != nil {
		return nil, err
	}
	var payload []byte
	if body != nil {
		if payload, err = json.Marshal(body); err != nil {
			return nil, usageError("write the request: %w", err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within %s", f.timeout))
	defer cancel()
	waits := &backoff.ExponentialBackOff{
		InitialInterval: 200 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 2 * time.Second,
	}
	answer, err := backoff.Retry(ctx, func() ([]byte, error) { return attempt(ctx, method, base+path, payload) },
		backoff.WithBackOff(waits), backoff.WithMaxTries(uint(max(f.retries, 0))+1), backoff.WithMaxElapsedTime(0))
	return answer, classify(base, err)
}

func attempt(ctx context.Context, method, target string, payload []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(payload))
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	req.Header.Set("Accept", "application/json")
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode < 300 {
		return answer, nil
	}
	refused := readRefusal(resp.StatusCode, answer)
	if !refused.again() {
		return nil, backoff.Permanent(refused)
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		return nil, errors.Join(refused, backoff.RetryAfter(seconds))
	}
	return nil, refused
}

func readRefusal(status int, answer []byte) *refusal {
	var problem struct {
		Title, Detail string
		Errors        []struct{ Pointer, Detail string }
	}
	r := &refusal{status: status}
	if json.Unmarshal(answer, &problem) == nil {
		r.title, r.detail, r.errors = problem.Title, problem.Detail, problem.Errors
	}
	return r
}

// classify gives an error its exit code.
func classify(base string, err error) error {
	var refused *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.again():
		return &exitError{exitUnreachable, refused}
	case errors.As(err, &refused):
		return &exitError{exitRefused, refused}
	}
	return &exitError{exitUnreachable, fmt.Errorf("cannot reach %s: %w", base, err)}
}

func (f *clientFlags) print(answer []byte) {
	if f.quiet {
		return
	}
	var indented bytes.Buffer
	if json.Indent(&indented, bytes.TrimSpace(answer), "", "  ") != nil {
		indented.Reset()
		indented.Write(answer)
	}
	f.streams.printf("%s\n", indented.Bytes())
}

// keyValues reads KEY=VALUE flags.
func keyValues(flag string, entries []string) (map[string]string, error) {
	values := make(map[string]string, len(entries))
	for _, e := range entries {
		key, value, found := strings.Cut(e, "=")
		if !found || key == "" {
			return nil, usageError("--%s: %q is not KEY=VALUE", flag, e)
		}
		values[key] = value
	}
	return values, nil
}
