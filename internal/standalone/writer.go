package standalone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/coordsvc/coordsvc/internal/service"
)

// A batch is what was waiting when the writer came round, up to these limits.
const (
	maxBatchTxns  = 512
	maxBatchBytes = 8 << 20
)

// States of a request.
const (
	requestQueued int32 = iota
	requestTaken
	requestAbandoned
)

type request struct {
	txn   service.Txn
	state atomic.Int32
	reply chan outcome

	// outcome and changes are the writer's, until it replies.
	outcome outcome
	changes service.Changes
}

type outcome struct {
	revision uint64
	err      error
}

// writerTimings says where the writer's time goes, for the benchmarks.
type writerTimings struct {
	batches, txns     atomic.Int64
	total, committing atomic.Int64
}

// Commit implements service.Store. When ctx ends before the writer took the transaction, nothing is written; when
// it ends later, the error is an ErrUnavailable: whether it is written is not known to the caller.
func (s *Store) Commit(ctx context.Context, txn service.Txn) (uint64, error) {
	if err := validateTxn(txn); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	revision, err := s.submit(ctx, txn)
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return revision, nil
}

func (s *Store) submit(ctx context.Context, txn service.Txn) (uint64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	r := &request{txn: txn, reply: make(chan outcome, 1)}
	select {
	case <-s.closing:
		return 0, errClosed()
	default:
	}
	select {
	case s.queue <- r:
	case <-s.closing:
		return 0, errClosed()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	select {
	case o := <-r.reply:
		return o.revision, o.err
	case <-s.ended:
		return s.lateReply(r)
	case <-ctx.Done():
		if r.state.CompareAndSwap(requestQueued, requestAbandoned) {
			return 0, context.Cause(ctx)
		}
		return 0, fmt.Errorf("%w: %w", service.ErrUnavailable, context.Cause(ctx))
	}
}

// lateReply is the answer to a request that met the writer's end: it was the last to be served, or came too late.
func (s *Store) lateReply(r *request) (uint64, error) {
	select {
	case o := <-r.reply:
		return o.revision, o.err
	default:
		return 0, errClosed()
	}
}

func errClosed() error { return fmt.Errorf("the store is closed: %w", service.ErrUnavailable) }

// validateTxn refuses what bbolt would refuse in the middle of a batch, and what has no single meaning.
func validateTxn(txn service.Txn) error {
	if len(txn.Puts)+len(txn.Deletes) == 0 {
		return errors.New("an empty transaction")
	}
	written := make(map[string]bool, len(txn.Puts)+len(txn.Deletes))
	write := func(key string) error {
		if key == "" || len(key) > bolt.MaxKeySize {
			return fmt.Errorf("a key of %d bytes; 1 to %d are allowed", len(key), bolt.MaxKeySize)
		}
		if written[key] {
			return fmt.Errorf("key %q is written twice", key)
		}
		written[key] = true
		return nil
	}
	for _, p := range txn.Puts {
		if err := write(p.Key); err != nil {
			return err
		}
	}
	for _, key := range txn.Deletes {
		if err := write(key); err != nil {
			return err
		}
	}
	for _, c := range txn.Checks {
		written[c.Key] = true
	}
	if n := len(written); n > maxOperations {
		return fmt.Errorf("a transaction on %d keys; %d are allowed: %w", n, maxOperations, service.ErrTooLarge)
	}
	return nil
}

// runWriter is the one goroutine that writes. When the store closes it commits what is queued, then ends.
func (s *Store) runWriter(current state) {
	defer close(s.ended)
	w := &writer{store: s, current: current}
	for {
		select {
		case r := <-s.queue:
			w.commitBatch(w.gather(r))
			continue
		default:
		}
		select {
		case r := <-s.queue:
			w.commitBatch(w.gather(r))
		case <-s.closing:
			w.commitRest()
			return
		}
	}
}

// writer is the state of the writer goroutine.
type writer struct {
	store    *Store
	current  state
	poisoned error
}

// gather takes every request that is waiting now.
func (w *writer) gather(first *request) []*request {
	batch, size := make([]*request, 0, 8), 0
	for r := first; ; {
		if r.state.CompareAndSwap(requestQueued, requestTaken) {
			batch = append(batch, r)
			for _, p := range r.txn.Puts {
				size += len(p.Key) + len(p.Value)
			}
		}
		if len(batch) >= maxBatchTxns || size >= maxBatchBytes {
			return batch
		}
		select {
		case r = <-w.store.queue:
		default:
			return batch
		}
	}
}

// commitRest takes what slipped into the queue while the store closed.
func (w *writer) commitRest() {
	for {
		select {
		case r := <-w.store.queue:
			w.commitBatch(w.gather(r))
		default:
			return
		}
	}
}

// commitBatch judges and writes a batch as one bbolt transaction, and answers after it is durable.
func (w *writer) commitBatch(batch []*request) {
	if len(batch) == 0 {
		return
	}
	begin := time.Now()
	if w.poisoned != nil {
		w.answer(batch, w.poisoned)
		return
	}
	err := w.writeBatch(batch)
	w.answer(batch, err)
	w.store.timings.batches.Add(1)
	w.store.timings.txns.Add(int64(len(batch)))
	w.store.timings.total.Add(int64(time.Since(begin)))
}

// answer replies to everybody: err when the batch failed as a whole, else each its own outcome.
func (w *writer) answer(batch []*request, err error) {
	for _, r := range batch {
		if err != nil {
			r.outcome = outcome{err: err}
		}
		r.reply <- r.outcome
	}
}

// writeBatch returns an error when the batch as a whole was not made durable.
func (w *writer) writeBatch(batch []*request) (err error) {
	tx, err := w.store.db.Begin(true)
	if err != nil {
		return w.poison(fmt.Errorf("begin: %w", err))
	}
	next, err := w.apply(tx, batch)
	if err != nil {
		return errors.Join(w.poison(err), rollBack(tx))
	}
	if next == w.current {
		return rollBack(tx)
	}
	txid, begin := tx.ID(), time.Now()
	err = commitTx(tx)
	w.store.timings.committing.Add(int64(time.Since(begin)))
	if err != nil {
		return w.commitFailed(err, tx)
	}
	w.current = next
	w.publish(batch, txid)
	return nil
}

// publish makes a durable batch visible: to watchers, then to readers, so that a watch that starts at
// a revision just read finds it in the history.
func (w *writer) publish(batch []*request, txid int) {
	changes := make([]service.Changes, 0, len(batch))
	for _, r := range batch {
		if r.outcome.err == nil {
			changes = append(changes, r.changes)
		}
	}
	w.store.history.append(changes)
	w.store.settle(txid, false)
	w.store.setHealth(true, "")
}

// apply writes a batch into tx and fills in each request's outcome. Its own error means that tx is in an unknown state.
func (w *writer) apply(tx *bolt.Tx, batch []*request) (next state, err error) {
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	records := tx.Bucket([]byte(recordsBucket))
	next = w.current
	for _, r := range batch {
		old, err := w.judge(records, r.txn)
		if err != nil {
			r.outcome = outcome{err: err}
			continue
		}
		next.revision++
		if r.changes, err = write(records, &next, r.txn, old); err != nil {
			return state{}, err
		}
		r.outcome = outcome{revision: next.revision}
	}
	if next == w.current {
		return next, nil
	}
	return next, tx.Bucket([]byte(stateBucket)).Put([]byte(stateKey), encodeState(next))
}

// judge decides whether a transaction may commit on top of the earlier ones of its batch. It returns the revisions of
// the records that it replaces; a damaged one is not overwritten.
func (w *writer) judge(records *bolt.Bucket, txn service.Txn) (old map[string]uint64, err error) {
	if txn.Fence != nil && !w.store.options.Holds(*txn.Fence) {
		return nil, service.ErrFenced
	}
	for _, c := range txn.Checks {
		revision, err := revisionOf(records, c.Key)
		if err != nil {
			return nil, err
		}
		if revision != c.Revision {
			return nil, fmt.Errorf("%q is at revision %d, not %d: %w", c.Key, revision, c.Revision, service.ErrConflict)
		}
	}
	old = make(map[string]uint64, len(txn.Puts)+len(txn.Deletes))
	for _, p := range txn.Puts {
		if old[p.Key], err = revisionOf(records, p.Key); err != nil {
			return nil, err
		}
	}
	for _, key := range txn.Deletes {
		if old[key], err = revisionOf(records, key); err != nil {
			return nil, err
		}
	}
	return old, nil
}

// revisionOf is 0 when there is no record.
func revisionOf(records *bolt.Bucket, key string) (uint64, error) {
	stored := records.Get([]byte(key))
	if stored == nil {
		return 0, nil
	}
	revision, _, err := decodeRecord([]byte(key), stored)
	return revision, err
}

// write applies a judged transaction at next.revision.
func write(records *bolt.Bucket, next *state, txn service.Txn, old map[string]uint64) (service.Changes, error) {
	changes := service.Changes{Revision: next.revision}
	for _, p := range txn.Puts {
		key, stored := []byte(p.Key), encodeRecord(p.Key, next.revision, p.Value)
		if err := records.Put(key, stored); err != nil {
			return changes, fmt.Errorf("put %q: %w", p.Key, err)
		}
		if old[p.Key] != 0 {
			next.remove(key, old[p.Key])
		}
		next.put(key, next.revision)
		changes.Puts = append(changes.Puts, service.Record{Key: p.Key, Value: stored[headerSize:], Revision: next.revision})
	}
	for _, k := range txn.Deletes {
		if old[k] == 0 {
			continue
		}
		if err := records.Delete([]byte(k)); err != nil {
			return changes, fmt.Errorf("delete %q: %w", k, err)
		}
		next.remove([]byte(k), old[k])
		changes.Deletes = append(changes.Deletes, k)
	}
	return changes, nil
}

// commitTx writes and syncs; bbolt syncs the data pages before the meta page, and that again.
func commitTx(tx *bolt.Tx) (err error) {
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return tx.Commit()
}

// rollBack undoes a transaction; after a failed commit bbolt has done so already.
func rollBack(tx *bolt.Tx) (err error) {
	defer recoverDamage(&err)
	if err := tx.Rollback(); err != nil && !errors.Is(err, bolterrors.ErrTxClosed) {
		return err
	}
	return nil
}

// commitFailed tells a write that was refused, which leaves the file as it was, from anything that leaves
// its state unknown.
func (w *writer) commitFailed(err error, tx *bolt.Tx) error {
	if !writeRefused(err) {
		return errors.Join(w.poison(err), rollBack(tx))
	}
	reason := "writing to " + w.store.dir.database() + " failed (" + err.Error() + "); free some space or mend the disk"
	w.store.setHealth(false, reason)
	w.store.options.Logger.Error("store write failed", "error", err)
	return fmt.Errorf("%s: %w", reason, service.ErrUnavailable)
}

// writeRefused: the file could not grow or a page could not be written, which bbolt undoes. It reports the first as
// text only.
func writeRefused(err error) bool {
	var refused *fs.PathError
	return (errors.As(err, &refused) && refused.Op == "write") || strings.HasPrefix(err.Error(), "file resize error")
}

// poison ends writing for the life of this process: after a failed sync the kernel may drop the pages and report
// success the next time, so that nothing written after it could be trusted.
func (w *writer) poison(err error) error {
	reason := "writing to " + w.store.dir.database() + " failed (" + err.Error() + "), no more writes are accepted; check the disk and restart"
	w.poisoned = fmt.Errorf("%s: %w", reason, service.ErrUnavailable)
	w.store.settle(w.store.durable.Load().txid, true)
	w.store.setHealth(false, reason)
	w.store.options.Logger.Error("store poisoned", "error", err)
	return w.poisoned
}
