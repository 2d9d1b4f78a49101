package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/coordsvc/coordsvc/internal/service"
)

// Sizes of the mapped file. A mapping larger than the file spares the writer from waiting for
// readers when the file grows; growing in steps spares it an fsync for every few pages.
const (
	initialMapping = 256 << 20
	growthStep     = 4 << 20
)

// Store is the embedded service.Store. Open it with OpenStore, end it with Close.
type Store struct {
	options StoreOptions
	dir     directory
	db      *bolt.DB

	queue   chan *request
	closing chan struct{}
	// ended is closed when the writer has ended: what is still queued then is never answered.
	ended chan struct{}
	close func() error

	durable atomic.Pointer[durability]
	health  atomic.Pointer[service.PartHealth]
	history *history
	timings writerTimings
}

var _ service.Store = (*Store)(nil)

// maxOperations keeps one transaction short next to the others of its batch.
const maxOperations = 1024

// MaxOperations implements service.Store.
func (*Store) MaxOperations() int { return maxOperations }

// durability is the newest bbolt transaction known to be on disk. settled is closed when a newer one replaces it.
type durability struct {
	txid int
	// poisoned: a sync failed, nothing will become durable any more, readers need not wait for it.
	poisoned bool
	settled  chan struct{}
}

// OpenStore opens the store in a directory, creating it when it never existed. It verifies the whole
// database first and refuses what is damaged, missing or in use; the error says what to do.
func OpenStore(ctx context.Context, options StoreOptions) (*Store, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(ctx, options.Dir, options.LockTimeout)
	if err != nil {
		return nil, err
	}
	s, err := openInDirectory(dir, options)
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return s, nil
}

func openInDirectory(dir directory, options StoreOptions) (*Store, error) {
	create := func(path string) error { return createEmpty(path, options.OpenFile) }
	if err := dir.prepare(options.Now(), create); err != nil {
		return nil, err
	}
	current, err := verifyDatabase(dir.database())
	if err != nil {
		return nil, err
	}
	db, err := openDatabase(dir.database(), options)
	if err != nil {
		return nil, err
	}
	return startStore(dir, db, current, options), nil
}

// verifyDatabase checks a database file that nobody writes.
func verifyDatabase(path string) (state, error) {
	file, err := os.Open(path)
	if err != nil {
		return state{}, fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return state{}, fmt.Errorf("open the database: %w", err)
	}
	current, err := verifyFile(file, info.Size())
	if err != nil {
		return state{}, fmt.Errorf("the database %s cannot be used and was left untouched; restore it from a backup, "+
			"or move it away together with %s to start empty: %w", path, markerFile, err)
	}
	return current, nil
}

// openDatabase lets bbolt map a verified file.
func openDatabase(path string, options StoreOptions) (db *bolt.DB, err error) {
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	db, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout:         options.LockTimeout,
		OpenFile:        options.OpenFile,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: initialMapping,
		NoStatistics:    true,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, inUse(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	db.AllocSize = growthStep
	return db, nil
}

// recoverDamage turns a panic of bbolt, which asserts what it reads, or a fault in the mapped file into an error.
func recoverDamage(err *error) {
	if r := recover(); r != nil {
		*err = damage("reading the database failed: %v", r)
	}
}

func startStore(dir directory, db *bolt.DB, current state, options StoreOptions) *Store {
	s := &Store{
		options: options,
		dir:     dir,
		db:      db,
		queue:   make(chan *request, maxBatchTxns),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
		history: newHistory(current.revision, options.HistoryTxns, options.HistoryBytes),
	}
	s.durable.Store(&durability{settled: make(chan struct{})})
	s.settle(lastTxid(db), false)
	s.setHealth(true, "")
	s.close = sync.OnceValue(s.shutDown)
	go s.runWriter(current)
	return s
}

func lastTxid(db *bolt.DB) int {
	txid := 0
	_ = db.View(func(tx *bolt.Tx) error { txid = tx.ID(); return nil })
	return txid
}

// Close commits what is queued, ends the watchers and releases the directory. It may be called more than once.
func (s *Store) Close() error { return s.close() }

func (s *Store) shutDown() error {
	close(s.closing)
	<-s.ended
	s.setHealth(false, "closed")
	if err := errors.Join(s.db.Close(), s.dir.close()); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// Get implements service.Store.
func (s *Store) Get(ctx context.Context, key string) (service.Record, error) {
	var record service.Record
	err := s.view(ctx, func(tx *bolt.Tx) error {
		stored := tx.Bucket([]byte(recordsBucket)).Get([]byte(key))
		if stored == nil {
			return service.ErrNoRecord
		}
		var err error
		record, err = copyRecord([]byte(key), stored)
		return err
	})
	if err != nil {
		return service.Record{}, fmt.Errorf("get %q: %w", key, err)
	}
	return record, nil
}

// List implements service.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]service.Record, uint64, error) {
	var records []service.Record
	var current state
	err := s.view(ctx, func(tx *bolt.Tx) error {
		var err error
		if current, err = decodeState(tx.Bucket([]byte(stateBucket)).Get([]byte(stateKey))); err != nil {
			return err
		}
		records, err = listRecords(ctx, tx, []byte(prefix))
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list %q: %w", prefix, err)
	}
	return records, current.revision, nil
}

func listRecords(ctx context.Context, tx *bolt.Tx, prefix []byte) ([]service.Record, error) {
	const askContextEvery = 1024
	var records []service.Record
	cursor := tx.Bucket([]byte(recordsBucket)).Cursor()
	for k, stored := cursor.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, stored = cursor.Next() {
		record, err := copyRecord(k, stored)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
		if len(records)%askContextEvery == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return records, nil
}

// copyRecord copies out of the mapped file, which is not valid after the read transaction.
func copyRecord(key, stored []byte) (service.Record, error) {
	revision, value, err := decodeRecord(key, stored)
	if err != nil {
		return service.Record{}, err
	}
	owned := make([]byte, len(value))
	copy(owned, value)
	return service.Record{Key: string(key), Value: owned, Revision: revision}, nil
}

// view runs fn in a read transaction that shows only what is durable.
func (s *Store) view(ctx context.Context, fn func(*bolt.Tx) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tx, err := s.db.Begin(false)
	if err != nil {
		return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	if err := s.awaitDurable(ctx, tx.ID()); err != nil {
		return err
	}
	return fn(tx)
}

// awaitDurable waits while the transaction that a reader sees is written but not synced yet. After a
// failed sync there is nothing to wait for: whether that transaction survives a restart is unknown.
func (s *Store) awaitDurable(ctx context.Context, txid int) error {
	for {
		d := s.durable.Load()
		if txid <= d.txid || d.poisoned {
			return nil
		}
		select {
		case <-d.settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settle publishes the newest durable transaction. Only the writer (and the start) calls it.
func (s *Store) settle(txid int, poisoned bool) {
	previous := s.durable.Swap(&durability{txid: txid, poisoned: poisoned, settled: make(chan struct{})})
	close(previous.settled)
}

// Health implements service.Store.
func (s *Store) Health() service.PartHealth { return *s.health.Load() }

// setHealth keeps Since while nothing changes.
func (s *Store) setHealth(ready bool, reason string) {
	previous := s.health.Load()
	if previous != nil && previous.Ready == ready && previous.Reason == reason {
		return
	}
	s.health.Store(&service.PartHealth{Name: "store", Kind: "bbolt", Ready: ready, Reason: reason, Since: s.options.Now()})
}

// Size is the length of the database file in bytes. Space freed by deletes is reused, not given back.
func (s *Store) Size() (int64, error) {
	info, err := os.Stat(s.dir.database())
	if err != nil {
		return 0, fmt.Errorf("size of the store: %w", err)
	}
	return info.Size(), nil
}

// StoreCheck is what CheckStore found in a sound store.
type StoreCheck struct {
	Path     string
	Bytes    int64
	Records  uint64
	Revision uint64
}

// CheckStore verifies every page and record of the store in dir without changing it. The store must not be
// open elsewhere: it waits up to timeout for that.
func CheckStore(ctx context.Context, dir string, timeout time.Duration) (StoreCheck, error) {
	if _, err := os.Stat(dir); err != nil {
		return StoreCheck{}, fmt.Errorf("data directory: %w", err)
	}
	d, err := lockDirectory(ctx, dir, timeout)
	if err != nil {
		return StoreCheck{}, err
	}
	defer func() { _ = d.close() }()
	current, err := verifyDatabase(d.database())
	if err != nil {
		return StoreCheck{}, err
	}
	info, err := os.Stat(d.database())
	if err != nil {
		return StoreCheck{}, fmt.Errorf("size of the store: %w", err)
	}
	return StoreCheck{Path: d.database(), Bytes: info.Size(), Records: current.count, Revision: current.revision}, nil
}
