package consulstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/coordsvc/coordsvc/internal/service"
)

// errNoAnswer is the cause of a request's end when Options.Timeout ran out.
var errNoAnswer = errors.New("no answer in time")

func kvOp(op api.KVTxnOp) *api.TxnOp { return &api.TxnOp{KV: &op} }

// found is what a read found under one key, relative to Root.
type found struct {
	key string
	// index is 0 when there is nothing.
	index uint64
	value []byte
}

// read reads keys, and below trees everything, as of one moment. The first len(keys) results are those of keys, in
// their order. It asks the leader, which makes sure that it still is one: a read sees every
// write that was acknowledged before.
func (s *Store) read(ctx context.Context, limit time.Duration, keys []string, tree string) ([]found, []found, error) {
	ops := make(api.TxnOps, 0, len(keys)+1)
	for _, k := range keys {
		ops = append(ops, kvOp(api.KVTxnOp{Verb: api.KVGetOrEmpty, Key: s.options.Root + k}))
	}
	if tree != "" {
		ops = append(ops, kvOp(api.KVTxnOp{Verb: api.KVGetTree, Key: s.options.Root + tree}))
	}
	ok, response, err := s.ask(ctx, limit, ops)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, s.refusal(response.Errors)
	}
	results := make([]found, 0, len(response.Results))
	for _, r := range response.Results {
		if r.KV == nil {
			continue
		}
		results = append(results, found{strings.TrimPrefix(r.KV.Key, s.options.Root), r.KV.ModifyIndex, r.KV.Value})
	}
	// Consul leaves out, without a word, what the token may not read; a key that is not there has a result, too.
	if len(results) < len(keys) {
		return nil, nil, s.denied("read", "")
	}
	for i, k := range keys {
		if results[i].key != k {
			return nil, nil, s.denied("read", "")
		}
	}
	return results[:len(keys)], results[len(keys):], nil
}

// readKeys reads keys as of one moment.
func (s *Store) readKeys(ctx context.Context, keys ...string) ([]found, error) {
	results, _, err := s.read(ctx, s.options.Timeout, keys, "")
	return results, err
}

// write applies operations as one transaction, unless Consul refuses: then it returns the errors of the operations.
// At most Options.MaxInFlight run at once.
func (s *Store) write(ctx context.Context, ops api.TxnOps) (api.TxnResults, api.TxnErrors, error) {
	timer := time.NewTimer(s.options.Timeout)
	defer timer.Stop()
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-timer.C:
		return nil, nil, fmt.Errorf("%w: the writes before this one took longer than %v, nothing was written", service.ErrUnavailable, s.options.Timeout)
	}
	defer func() { <-s.slots }()
	return s.writeNow(ctx, s.options.Timeout, ops)
}

// writeNow is write that waits for nobody.
func (s *Store) writeNow(ctx context.Context, limit time.Duration, ops api.TxnOps) (api.TxnResults, api.TxnErrors, error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	ok, response, err := s.ask(ctx, limit, ops)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, fmt.Errorf("whether the write happened is unknown: %w: %w", service.ErrUnavailable, context.Cause(ctx))
	case errors.Is(err, service.ErrTooLarge):
		return nil, nil, err
	case err != nil:
		s.health.wrote(err)
		return nil, nil, err
	}
	if !ok {
		if err := s.deniedIn(response.Errors); err != nil {
			s.health.wrote(err)
			return nil, nil, err
		}
		return nil, response.Errors, nil
	}
	s.health.wrote(nil)
	return response.Results, nil, nil
}

// ask makes one request and tells why there was no answer to it.
func (s *Store) ask(ctx context.Context, limit time.Duration, ops api.TxnOps) (bool, *api.TxnResponse, error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	query := (&api.QueryOptions{RequireConsistent: true}).WithContext(limited)
	ok, response, _, err := s.options.Client.Txn().Txn(ops, query)
	if err != nil {
		return false, nil, s.explain(ctx, limited, limit, err)
	}
	return ok, response, nil
}

// explain makes one of the port's errors of what the client returned. The client returns the body of an
// unexpected answer as text, without its status.
func (s *Store) explain(ctx, limited context.Context, limit time.Duration, err error) error {
	text := err.Error()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(context.Cause(limited), errNoAnswer):
		return fmt.Errorf("%w: Consul gave no answer within %v: %w", service.ErrUnavailable, limit, err)
	case isDenied(text):
		return s.denied("write", text)
	case isTooLarge(text):
		return fmt.Errorf("%w for this Consul; its limits txn_max_req_len and kv_max_value_size must be 512 KiB or more: %w", service.ErrTooLarge, err)
	case strings.Contains(text, "No cluster leader") || strings.Contains(text, "leadership lost"):
		return fmt.Errorf("%w: Consul has no leader at the moment: %w", service.ErrUnavailable, err)
	case strings.Contains(text, "rate limit") || strings.Contains(text, "Too Many Requests"):
		return fmt.Errorf("%w: Consul limits the rate of requests: %w", service.ErrUnavailable, err)
	case strings.Contains(text, "Failed request") || strings.Contains(text, "Unexpected response code"):
		return fmt.Errorf("%w: Consul failed: %w", service.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: Consul cannot be reached: %w", service.ErrUnavailable, err)
	}
}

func isDenied(text string) bool {
	return strings.Contains(text, "Permission denied") || strings.Contains(text, "ACL not found")
}

func isTooLarge(text string) bool {
	return strings.Contains(text, "too large") || strings.Contains(text, "too many operations")
}

// deniedIn finds a denied permission among the errors of a transaction's operations.
func (s *Store) deniedIn(errs api.TxnErrors) error {
	for _, e := range errs {
		if isDenied(e.What) {
			return s.denied("write", e.What)
		}
	}
	return nil
}

// denied names the permission that is missing. It is worth a retry: tokens are mended while the service runs.
func (s *Store) denied(what, text string) error {
	if text == "" {
		text = "the answer left keys out"
	}
	return fmt.Errorf("%w: Consul's access control denies the store's token to %s; it needs key_prefix %q { policy = \"write\" } and key %q { policy = \"read\" } or more: %s",
		service.ErrUnavailable, what, s.options.Root, s.options.LeaderKey, text)
}

// refusal is what errors of operations mean where none is expected.
func (s *Store) refusal(errs api.TxnErrors) error {
	if err := s.deniedIn(errs); err != nil {
		return err
	}
	for _, e := range errs {
		return fmt.Errorf("%w: Consul refused operation %d: %s", service.ErrUnavailable, e.OpIndex, e.What)
	}
	return fmt.Errorf("%w: Consul refused the transaction without a reason", service.ErrUnavailable)
}
