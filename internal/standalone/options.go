package standalone

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

type openFileFunc = func(name string, flag int, perm os.FileMode) (*os.File, error)

// StoreOptions configures OpenStore. Only Dir is required.
type StoreOptions struct {
	// Dir is the data directory; it is made when absent.
	Dir string
	// LockTimeout is how long to wait for another process to leave the directory (5 s): a restart overlaps a little.
	LockTimeout time.Duration
	// Holds says whether a fence's session holds the leader key at this moment; the writer asks it for every
	// fenced transaction. Without it every fenced transaction is refused.
	Holds func(service.Fence) bool
	// HistoryTxns and HistoryBytes bound what Watch remembers (4,096 transactions, 64 MiB).
	HistoryTxns  int
	HistoryBytes int
	// OpenFile opens the database file (os.OpenFile). bbolt syncs the file it returns.
	OpenFile openFileFunc
	Logger   *slog.Logger
	Now      func() time.Time
}

func (o StoreOptions) withDefaults() (StoreOptions, error) {
	if o.Dir == "" {
		return o, errors.New("store: Dir is empty")
	}
	if o.LockTimeout < 0 || o.HistoryTxns < 0 || o.HistoryBytes < 0 {
		return o, errors.New("store: LockTimeout, HistoryTxns and HistoryBytes must not be negative")
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = 5 * time.Second
	}
	if o.HistoryTxns == 0 {
		o.HistoryTxns = 4096
	}
	if o.HistoryBytes == 0 {
		o.HistoryBytes = 64 << 20
	}
	if o.Holds == nil {
		o.Holds = func(service.Fence) bool { return false }
	}
	if o.OpenFile == nil {
		o.OpenFile = os.OpenFile
	}
	o.Logger = loggerOrDiscard(o.Logger, "store")
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

func loggerOrDiscard(logger *slog.Logger, component string) *slog.Logger {
	if logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return logger.With("component", component)
}
