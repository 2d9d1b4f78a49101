package service

import (
	"context"
	"errors"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// Errors of the ports. Adapters return exactly these (wrapped, with context),
// so that the service can tell a lost race from a lost term from an engine that is away.
var (
	// ErrNoRecord: the key holds no record.
	ErrNoRecord = errors.New("no such record")
	// ErrConflict: a Check of the transaction did not hold; nothing was written.
	ErrConflict = errors.New("record changed in between")
	// ErrFenced: the transaction's Fence is not (or no longer) the holder of the leader key; nothing was written.
	ErrFenced = errors.New("leadership lost")
	// ErrTooLarge: the transaction touches more keys than Store.MaxOperations, nothing was written.
	ErrTooLarge = errors.New("transaction is too large")
	// ErrUnavailable: the engine cannot be asked now; whether a write happened is unknown. Worth a retry.
	ErrUnavailable = errors.New("unavailable")
	// ErrGap: a watcher is further behind than the store remembers; list again, then watch from there.
	ErrGap = errors.New("watch fell behind")
	// ErrCorrupt: stored bytes fail their checksum. Never served, never overwritten silently.
	ErrCorrupt = errors.New("store is damaged")
)

// Record is one key of the store.
type Record struct {
	Key string
	// Value is never nil for an existing record. Callers must not modify it.
	Value []byte
	// Revision is the store revision of the transaction that last wrote this key.
	Revision uint64
}

// Check makes a transaction conditional on a key's revision; Revision 0 demands absence.
type Check struct {
	Key      string
	Revision uint64
}

// Put writes one key.
type Put struct {
	Key   string
	Value []byte
}

// Txn is one atomic, durable write: all of it or nothing.
type Txn struct {
	// Fence, when set, lets the transaction commit only while that term's session holds the leader key.
	Fence   *Fence
	Checks  []Check
	Puts    []Put
	Deletes []string
}

// Changes is what one committed transaction did, as a watcher sees it.
type Changes struct {
	Revision uint64
	Puts     []Record
	Deletes  []string
}

// Store is the small fenced key-value interface that holds what must last.
// All methods are safe for concurrent use.
type Store interface {
	// Get reads one record; ErrNoRecord when absent.
	Get(ctx context.Context, key string) (Record, error)
	// List reads every record whose key starts with prefix, in byte order of keys, as of one
	// revision, which it returns: a Watch after that revision misses nothing.
	List(ctx context.Context, prefix string) ([]Record, uint64, error)
	// Commit applies a transaction and returns its revision once it is durable (fsynced, or committed by a
	// quorum). Revisions only grow, over restarts too. An empty transaction is refused.
	// Errors: ErrConflict, ErrFenced, ErrTooLarge, ErrUnavailable.
	Commit(ctx context.Context, txn Txn) (uint64, error)
	// MaxOperations is the most distinct keys that one transaction may put, delete or check, at least 16.
	MaxOperations() int
	// Watch delivers every transaction after revision `after` that touches prefix, in commit order,
	// with only the keys under prefix, until ctx ends or deliver fails. ErrGap when the
	// store no longer remembers that far back.
	Watch(ctx context.Context, prefix string, after uint64, deliver func(Changes) error) error
	// Health says whether the store can be used now, and if not why and since when.
	Health() PartHealth
}

// Fence proves a term of leadership to the store. It is comparable.
type Fence struct {
	// Session names the holder's session, unique for every term.
	Session string
	// Epoch is the term's fencing token.
	Epoch uint64
}

// LeaderChange tells a listener that this replica gained or lost leadership.
type LeaderChange struct {
	Leading bool
	// Fence is the term gained or lost.
	Fence Fence
}

// Elector is the LeaderElector of the original protocol with fencing added.
// All methods are safe for concurrent use.
type Elector interface {
	// Identity is this replica's stable unique name.
	Identity() string
	// IsLeader is a cached read, never true past the trust window.
	IsLeader() bool
	// CurrentLeader is the identity of who leads, "" when nobody does or it is not known.
	CurrentLeader() string
	// Epoch is the epoch of the current term as far as this replica knows; 0 before the first.
	Epoch() uint64
	// Fence returns this replica's term while it leads.
	Fence() (Fence, bool)
	// TryAcquire makes one attempt, bounded by timeout (0: 10 s), and reports whether this replica leads afterwards.
	TryAcquire(ctx context.Context, timeout time.Duration) (bool, error)
	// Release gives leadership up; safe when not leading. It survives a cancelled ctx.
	Release(ctx context.Context) error
	// Renew extends the lease and reports whether this replica still leads.
	Renew(ctx context.Context) (bool, error)
	// OnLeaderChange registers a listener, called on edges only, in registration order; a panic or a slow one
	// harms nobody. The handle removes it again.
	OnLeaderChange(listener func(LeaderChange)) (handle int)
	RemoveLeaderChangeCallback(handle int)
	// Run campaigns until ctx ends, then releases.
	Run(ctx context.Context) error
	Health() PartHealth
}

// EpochSource takes the next epoch in the first transaction of a new term, checked by the session of fence
// (whose Epoch is still 0). The elector does not report leadership before it answered.
type EpochSource func(ctx context.Context, identity string, fence Fence) (uint64, error)

// Receiver takes what a bus delivers. The service implements it.
type Receiver interface {
	// ReceiveHeartbeat applies a heartbeat that another replica or a worker published.
	ReceiveHeartbeat(ctx context.Context, hb coordination.Heartbeat, arrival coordination.Arrival) error
	// ReceiveShutdown commits a shutdown notification; the message may be acknowledged only after nil.
	ReceiveShutdown(ctx context.Context, n coordination.Shutdown) error
	// ReceiveAssignment hears of an assignment that somebody published on the reserved topic.
	ReceiveAssignment(ctx context.Context, a coordination.Assignment) error
	// BusUp and BusDown tell that consuming (re)started or stopped.
	BusUp()
	BusDown(reason error)
}

// Bus carries the three messages between replicas and workers. A bus never delivers a replica's own messages back to it.
type Bus interface {
	// PublishHeartbeat relays a heartbeat that came in over HTTP; it never blocks on the engine: what cannot be sent
	// is coalesced, newest per peer, and relayed on return.
	PublishHeartbeat(hb coordination.Heartbeat, receivedAt time.Time)
	PublishShutdown(ctx context.Context, n coordination.Shutdown) error
	PublishAssignment(ctx context.Context, a coordination.Assignment) error
	// Run consumes into r until ctx ends; it redials for ever.
	Run(ctx context.Context, r Receiver) error
	Health() PartHealth
}

// PartHealth is the state of one part (store, bus, elector) as /readyz?verbose and the dashboard show it.
type PartHealth struct {
	// Name is store, bus or elector.
	Name string
	// Kind names the adapter: "bbolt", "in-process", "in-memory", later "consul", "rabbitmq".
	Kind  string
	Ready bool
	// Reason says what is wrong and what would help; "" while ready.
	Reason string
	Since  time.Time
}
