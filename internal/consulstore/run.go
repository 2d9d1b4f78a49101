package consulstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"
)

const (
	// probeLimit bounds one probe, so that Health tells of a Consul that says nothing within two seconds.
	probeLimit = 1500 * time.Millisecond
	// collectRounds is how often the collector looks within one PartsGrace.
	collectRounds = 5
)

// Run feeds Watch, keeps Health true while nobody commits, trims change records and collects parts, until ctx
// ends; it returns the cause. Trouble with Consul never ends it. It runs once.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.follow(ctx) })
	g.Go(func() error { return every(ctx, s.options.ProbeInterval, s.probe) })
	g.Go(func() error { return every(ctx, s.options.ProbeInterval, s.trim) })
	g.Go(func() error { return every(ctx, max(s.options.PartsGrace/collectRounds, time.Millisecond), s.collect) })
	return g.Wait()
}

// every calls fn at once and then again and again.
func every(ctx context.Context, interval time.Duration, fn func(context.Context)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		fn(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// probe asks Consul for something that only a leader with a quorum answers.
func (s *Store) probe(ctx context.Context) {
	limit := min(probeLimit, s.options.Timeout)
	before := s.Health()
	var err error
	if s.health.mustWrite() {
		sealed := seal(probeKey, kindMark, rand.Text(), nil)
		_, _, err = s.writeNow(ctx, limit, api.TxnOps{kvOp(api.KVTxnOp{Verb: api.KVSet, Key: s.options.Root + probeKey, Value: sealed})})
	} else {
		var head []found
		head, _, err = s.read(ctx, limit, []string{headKey}, "")
		if ctx.Err() == nil {
			s.health.read(err)
		}
		if err == nil {
			s.compareHead(head[0].index)
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.tail.wake()
	}
	switch after := s.Health(); {
	case before.Ready && !after.Ready:
		s.options.Logger.Warn("store is not available", "reason", after.Reason)
	case !before.Ready && after.Ready:
		s.options.Logger.Info("store is available")
	}
}

// compareHead wakes the query that waits for news when there must have been some: it hears nothing of a restored snapshot
// until its time is over, and nothing at all on a connection that died without a word.
func (s *Store) compareHead(head uint64) {
	newest, _ := s.tail.known()
	if head < newest || newest < s.headBefore {
		s.tail.wake()
	}
	s.headBefore = head
}

// trim deletes the oldest change records where there are too many. The mark of the highest trimmed revision moves in
// the same transaction, by compare-and-set, so that of several replicas one trims at a time and a watcher
// that missed something learns of it.
func (s *Store) trim(ctx context.Context) {
	for ctx.Err() == nil {
		victims := s.tail.excess()
		if len(victims) == 0 {
			return
		}
		trimmed, err := s.trimOnce(ctx, victims)
		if err != nil && ctx.Err() == nil {
			s.options.Logger.Debug("trimming change records failed; trying again", "error", err)
		}
		if err != nil || !trimmed {
			return
		}
		s.tail.trimmed(victims)
	}
}

// trimOnce is false when another replica was faster.
func (s *Store) trimOnce(ctx context.Context, victims []storedChange) (bool, error) {
	results, err := s.readKeys(ctx, trimmedKey)
	if err != nil {
		return false, err
	}
	mark := results[0]
	highest, err := decodeTrimmed(mark)
	if err != nil {
		return false, err
	}
	highest = max(highest, victims[len(victims)-1].revision)
	sealed := seal(trimmedKey, kindMark, rand.Text(), binary.BigEndian.AppendUint64(nil, highest))
	ops := api.TxnOps{kvOp(api.KVTxnOp{Verb: api.KVCAS, Key: s.options.Root + trimmedKey, Value: sealed, Index: mark.index})}
	for _, v := range victims {
		ops = append(ops, kvOp(api.KVTxnOp{Verb: api.KVDelete, Key: s.options.Root + v.key}))
	}
	_, failed, err := s.write(ctx, ops)
	return err == nil && len(failed) == 0, err
}

// collect deletes parts that no record has referred to for PartsGrace.
func (s *Store) collect(ctx context.Context) {
	err := s.collectAll(ctx)
	if err != nil && ctx.Err() == nil {
		s.options.Logger.Debug("collecting parts failed; trying again", "error", err)
	}
}

func (s *Store) collectAll(ctx context.Context) error {
	limited, cancel := context.WithTimeoutCause(ctx, s.options.Timeout, errNoAnswer)
	defer cancel()
	dirs, _, err := s.options.Client.KV().Keys(s.options.Root+partsDir, "/", (&api.QueryOptions{}).WithContext(limited))
	if err != nil {
		return s.explain(ctx, limited, s.options.Timeout, err)
	}
	there := make(map[string]bool, len(dirs))
	var failures []error
	for _, dir := range dirs {
		id := strings.TrimSuffix(dir[len(s.options.Root)+len(partsDir):], "/")
		there[id] = true
		if err := s.judge(ctx, id); err != nil {
			failures = append(failures, fmt.Errorf("parts %s: %w", id, err))
		}
	}
	for id := range s.unreferenced {
		if !there[id] {
			delete(s.unreferenced, id)
		}
	}
	return errors.Join(failures...)
}

// judge looks whether a record refers to the parts of one id, and deletes them when none has for long. The
// deletion demands that none of the records changed in between. A transaction that is still to come
// demands that the parts are there: it fails, whenever it comes.
func (s *Store) judge(ctx context.Context, id string) error {
	results, err := s.readKeys(ctx, ownersKey(id))
	if err != nil {
		return err
	}
	owners := results[0]
	var records []found
	if owners.index != 0 {
		payload, err := unsealAs(owners.key, kindOwners, owners.value)
		if err != nil {
			return err
		}
		r := reader{rest: payload}
		if records, err = s.readRecords(ctx, r.keys()); err != nil {
			return err
		}
	}
	referred, err := refers(records, id)
	if err != nil {
		return err
	}
	if referred {
		delete(s.unreferenced, id)
		return nil
	}
	since, ok := s.unreferenced[id]
	if !ok {
		s.unreferenced[id] = s.options.Now()
		return nil
	}
	if s.options.Now().Sub(since) < s.options.PartsGrace {
		return nil
	}
	return s.deleteParts(ctx, id, append(records, owners))
}

func (s *Store) readRecords(ctx context.Context, keys []string) ([]found, error) {
	for i, k := range keys {
		keys[i] = dataKey(k)
	}
	return s.readKeys(ctx, keys...)
}

func refers(records []found, id string) (bool, error) {
	for _, f := range records {
		if f.index == 0 {
			continue
		}
		k, payload, err := unseal(f.key, f.value)
		if err != nil {
			return false, err
		}
		if k != kindManifest {
			continue
		}
		m, err := decodeManifest(f.key, payload)
		if err != nil || m.id == id {
			return true, err
		}
	}
	return false, nil
}

// deleteParts deletes all parts of one id unless one of the keys changed since it was read.
func (s *Store) deleteParts(ctx context.Context, id string, unchanged []found) error {
	var ops api.TxnOps
	for _, f := range unchanged {
		key := s.options.Root + f.key
		if f.index == 0 {
			ops = append(ops, kvOp(api.KVTxnOp{Verb: api.KVCheckNotExists, Key: key}))
		} else {
			ops = append(ops, kvOp(api.KVTxnOp{Verb: api.KVCheckIndex, Key: key, Index: f.index}))
		}
	}
	ops = append(ops, kvOp(api.KVTxnOp{Verb: api.KVDeleteTree, Key: s.options.Root + partsDir + id + "/"}))
	_, failed, err := s.write(ctx, ops)
	if err == nil && len(failed) == 0 {
		delete(s.unreferenced, id)
	}
	return err
}
