package consulstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

const (
	// maxConsulOps is how many operations Consul takes in one transaction since 1.14.
	maxConsulOps = 128
	// maxKeys is what a transaction may touch: 64 operations less fence, change record, head and the check of its
	// parts. A delete that is checked takes a second operation; with all of them checked it is still under maxConsulOps.
	maxKeys = 60
	// maxValues bounds the values of one transaction together, in bytes.
	maxValues = 64 << 20
	// maxBody is what one request may carry: Consul's default limit is 512 KiB.
	maxBody = 500 << 10
	// listRequests is how many requests' time a List may take: it is one answer, but a large one.
	listRequests = 12
	// rereads bounds how often a read starts again because parts were collected under it.
	rereads = 3
	// minChanges keeps a watcher that lags for a moment from starting over.
	minChanges = 16
)

// Store is service.Store on Consul's key-value store. Run must run beside it: it feeds Watch, probes Consul for
// Health, and tidies. There is nothing to close.
type Store struct {
	options Options
	health  *health
	tail    *tail
	slots   chan struct{}
	// unreferenced remembers since when parts are seen without a record that refers to them. Only the collector uses it.
	unreferenced map[string]time.Time
	// headBefore is the head's index at the last probe. Only the prober uses it.
	headBefore uint64
}

var _ service.Store = (*Store)(nil)

// New makes a store. It asks Consul nothing yet.
func New(options Options) (*Store, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Store{
		options:      options,
		health:       newHealth(options.Now),
		tail:         newTail(options.MaxChanges, options.MaxChangeBytes),
		slots:        make(chan struct{}, options.MaxInFlight),
		unreferenced: make(map[string]time.Time),
	}, nil
}

// MaxOperations implements service.Store.
func (*Store) MaxOperations() int { return maxKeys }

// Health implements service.Store.
func (s *Store) Health() service.PartHealth { return s.health.get() }

// Get implements service.Store. It is a consistent read: it sees every write acknowledged before.
func (s *Store) Get(ctx context.Context, key string) (service.Record, error) {
	var gone uint64
	for {
		record, err := s.getOnce(ctx, key)
		switch {
		case err == nil:
			return record, nil
		case !errors.Is(err, errPartsGone):
			return service.Record{}, fmt.Errorf("get %q: %w", key, err)
		case record.Revision == gone:
			return service.Record{}, fmt.Errorf("get %q: %w", key, damaged(dataKey(key), "its parts are missing"))
		}
		gone = record.Revision
	}
}

func (s *Store) getOnce(ctx context.Context, key string) (service.Record, error) {
	if ctx.Err() != nil {
		return service.Record{}, context.Cause(ctx)
	}
	results, err := s.readKeys(ctx, dataKey(key))
	if err != nil {
		return service.Record{}, err
	}
	if results[0].index == 0 {
		return service.Record{}, service.ErrNoRecord
	}
	return s.record(ctx, make(blobs), results[0])
}

// record makes a record of what is stored, parts included.
func (s *Store) record(ctx context.Context, seen blobs, f found) (service.Record, error) {
	key, err := recordKey(f.key)
	if err != nil {
		return service.Record{}, err
	}
	value, err := s.value(ctx, seen, f.key, f.value)
	return service.Record{Key: key, Value: value, Revision: f.index}, err
}

// List implements service.Store. It is one consistent read of the records together with the head, whose index
// is the revision: every transaction writes the head.
func (s *Store) List(ctx context.Context, prefix string) ([]service.Record, uint64, error) {
	for n := 1; ; n++ {
		records, revision, err := s.listOnce(ctx, prefix)
		switch {
		case err == nil:
			return records, revision, nil
		case errors.Is(err, errPartsGone) && n < rereads:
			continue
		case errors.Is(err, errPartsGone):
			err = fmt.Errorf("%w: %w", service.ErrCorrupt, err)
		}
		return nil, 0, fmt.Errorf("list %q: %w", prefix, err)
	}
}

func (s *Store) listOnce(ctx context.Context, prefix string) ([]service.Record, uint64, error) {
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	heads, stored, err := s.read(ctx, listRequests*s.options.Timeout, []string{headKey}, dataKey(prefix))
	if err != nil {
		return nil, 0, err
	}
	records, seen := make([]service.Record, 0, len(stored)), make(blobs)
	for _, f := range stored {
		record, err := s.record(ctx, seen, f)
		if err != nil {
			return nil, 0, err
		}
		records = append(records, record)
	}
	// Escaping keeps prefixes, not the order.
	slices.SortFunc(records, func(a, b service.Record) int { return cmp.Compare(a.Key, b.Key) })
	return records, heads[0].index, nil
}
