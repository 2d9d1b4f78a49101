package consulstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	// waitTime is how long Consul holds a query that waits for news.
	waitTime = 10 * time.Second
	// fetchMost is how many new change records are read by name; with more, all are read.
	fetchMost = 60

	retryMin = 50 * time.Millisecond
	retryMax = time.Second
)

// Watch implements service.Store. It runs deliver on the caller's goroutine and returns its error, the cause of ctx's
// end, ErrGap, or ErrUnavailable when Consul is away at the start. When Consul goes away later it waits, and goes on
// where it was. Without Run it waits for ever.
//
// A put whose value was stored in parts is left out when the parts are gone, which they are some minutes after
// the record was replaced or deleted; the later transaction that did so follows.
func (s *Store) Watch(ctx context.Context, prefix string, after uint64, deliver func(service.Changes) error) error {
	generation, err := s.watchFrom(ctx, after)
	if err != nil {
		return fmt.Errorf("watch %q: %w", prefix, err)
	}
	for {
		pending, grown, err := s.tail.since(after, generation)
		if err != nil {
			return fmt.Errorf("watch %q: %w", prefix, err)
		}
		for _, c := range pending {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if under := narrow(c, prefix); len(under.Puts)+len(under.Deletes) > 0 {
				if err := deliver(under); err != nil {
					return err
				}
			}
			after = c.Revision
		}
		if grown == nil {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchFrom makes sure that a revision which the tail has not reached yet exists: after Consul went back it never may.
func (s *Store) watchFrom(ctx context.Context, after uint64) (generation int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	newest, generation := s.tail.known()
	if after <= newest {
		return generation, nil
	}
	results, err := s.readKeys(ctx, headKey)
	if err != nil {
		return 0, err
	}
	if results[0].index < after {
		return 0, fmt.Errorf("revision %d is still to come, the store is at %d: %w", after, results[0].index, service.ErrGap)
	}
	return generation, nil
}

// follow feeds the tail until ctx ends.
func (s *Store) follow(ctx context.Context) error {
	var index uint64
	pause := retryMin
	for ctx.Err() == nil {
		next, err := s.step(ctx, index)
		if err == nil {
			index, pause = next, retryMin
			continue
		}
		if ctx.Err() != nil {
			break
		}
		s.options.Logger.Debug("reading the store's changes failed; trying again", "error", err, "retry_seconds", pause.Seconds())
		index = 0
		wait(ctx, pause)
		pause = min(2*pause, retryMax)
	}
	return context.Cause(ctx)
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// step waits for news after an index of Consul's and takes them in. It returns the index to wait after next.
func (s *Store) step(ctx context.Context, index uint64) (next uint64, err error) {
	if !s.tail.isLoaded() {
		return 0, s.readAll(ctx)
	}
	keys, next, err := s.changeKeys(ctx, index)
	if err != nil {
		return 0, err
	}
	if next < index {
		// Consul's index went backwards: start over, as its documentation demands.
		next = 0
	}
	switch fresh, lost := s.tail.compare(keys); {
	case lost, len(fresh) > fetchMost:
		err = s.readAll(ctx)
	case len(fresh) > 0:
		err = s.readSome(ctx, fresh)
	}
	return next, err
}

// changeKeys waits until the set of change records is not what it was at index, or waitTime passed, and
// returns their names. The answer is some past state of the store, complete up to that: the names
// hold one transaction's record only if they hold those of all before it, but for trimmed ones.
func (s *Store) changeKeys(ctx context.Context, index uint64) (names []string, next uint64, err error) {
	limit := waitTime + waitTime/16 + s.options.Timeout
	limited, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	s.tail.onInterrupt(cancel)
	query := (&api.QueryOptions{WaitIndex: index, WaitTime: waitTime}).WithContext(limited)
	full, meta, err := s.options.Client.KV().Keys(s.options.Root+changesDir, "", query)
	if err != nil {
		return nil, 0, s.explain(ctx, limited, limit, err)
	}
	names = make([]string, 0, len(full))
	for _, k := range full {
		names = append(names, k[len(s.options.Root):])
	}
	// Waiting after index 0 would be no waiting.
	return names, max(meta.LastIndex, 1), nil
}

// readAll reads all change records.
func (s *Store) readAll(ctx context.Context) error {
	marks, stored, err := s.read(ctx, listRequests*s.options.Timeout, []string{headKey, trimmedKey}, changesDir)
	if err != nil {
		return err
	}
	return s.take(ctx, marks, stored, true)
}

// readSome reads the change records of the given names; one that is trimmed by now is not there.
func (s *Store) readSome(ctx context.Context, names []string) error {
	results, err := s.readKeys(ctx, append([]string{headKey, trimmedKey}, names...)...)
	if err != nil {
		return err
	}
	return s.take(ctx, results[:2], results[2:], false)
}

// take makes a batch of what was read, with all values, and gives it to the tail.
func (s *Store) take(ctx context.Context, marks, stored []found, whole bool) error {
	newest, _ := s.tail.known()
	b := batch{head: marks[0].index, whole: whole}
	if b.head < newest {
		if !whole {
			return s.readAll(ctx)
		}
		s.options.Logger.Warn("consul went back to an older state; watchers start anew", "revision", b.head, "was", newest)
		newest = 0
	}
	var err error
	if b.trimmed, err = decodeTrimmed(marks[1]); err != nil {
		return err
	}
	slices.SortFunc(stored, func(x, y found) int { return cmp.Compare(x.index, y.index) })
	seen := make(blobs)
	for _, f := range stored {
		if f.index == 0 {
			continue
		}
		b.stored = append(b.stored, storedChange{key: f.key, revision: f.index, size: len(f.value)})
		if f.index <= newest {
			continue
		}
		changes, err := s.changes(ctx, seen, f)
		switch {
		case errors.Is(err, service.ErrCorrupt):
			s.options.Logger.Error("a change record is damaged; watchers start anew", "key", f.key, "revision", f.index, "error", err)
			b.unreadable = f.index
		case err != nil:
			return err
		default:
			b.changes = append(b.changes, changes)
		}
	}
	s.tail.add(b)
	return nil
}

// changes reads a change record.
func (s *Store) changes(ctx context.Context, seen blobs, f found) (service.Changes, error) {
	payload, err := unsealAs(f.key, kindChange, f.value)
	if err != nil {
		return service.Changes{}, err
	}
	record, err := decodeChange(f.key, payload)
	if err != nil {
		return service.Changes{}, err
	}
	changes := service.Changes{Revision: f.index, Deletes: record.deletes}
	for _, p := range record.puts {
		value, err := s.value(ctx, seen, dataKey(p.key), p.sealed)
		if errors.Is(err, errPartsGone) {
			continue
		}
		if err != nil {
			return service.Changes{}, err
		}
		changes.Puts = append(changes.Puts, service.Record{Key: p.key, Value: value, Revision: f.index})
	}
	return changes, nil
}

// decodeTrimmed reads the mark of the highest trimmed revision, 0 when nothing was trimmed yet.
func decodeTrimmed(f found) (uint64, error) {
	const size = 8
	if f.index == 0 {
		return 0, nil
	}
	payload, err := unsealAs(trimmedKey, kindMark, f.value)
	if err != nil {
		return 0, err
	}
	if len(payload) != size {
		return 0, damaged(trimmedKey, "it has %d bytes, not %d", len(payload), size)
	}
	return binary.BigEndian.Uint64(payload), nil
}
