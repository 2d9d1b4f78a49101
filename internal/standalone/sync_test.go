package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coordsvc/coordsvc/internal/service"
)

// brokenSync opens files whose descriptor can later be pointed at /dev/null, where every write succeeds and every sync
// fails: a disk that takes data and cannot promise it.
type brokenSync struct{ file *os.File }

func (b *brokenSync) open(name string, flag int, perm os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(name, flag, perm)
	b.file = file
	return file, err
}

func (b *brokenSync) breakSync() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Dup3(int(null.Fd()), int(b.file.Fd()), syscall.O_CLOEXEC), null.Close())
}

// commitWithBrokenSync runs in a process of its own, since it plays with descriptors. It returns what went wrong.
func commitWithBrokenSync(ctx context.Context, dir string) error {
	disk := &brokenSync{}
	s, err := OpenStore(ctx, StoreOptions{Dir: dir, OpenFile: disk.open})
	if err != nil {
		return err
	}
	revision, err := s.Commit(ctx, put("a", "durable"))
	if err != nil {
		return err
	}
	if err := disk.breakSync(); err != nil {
		return err
	}
	for attempt := range 3 {
		if r, err := s.Commit(ctx, put("a", "not durable")); !errors.Is(err, service.ErrUnavailable) || r != 0 {
			return fmt.Errorf("attempt %d: committed at %d (%w) although no sync completed", attempt, r, err)
		}
	}
	if h := s.Health(); h.Ready || !strings.Contains(h.Reason, databaseFile) || !strings.Contains(h.Reason, "restart") {
		return fmt.Errorf("health after a failed sync is %+v", h)
	}
	record, err := s.Get(ctx, "a")
	if err != nil || string(record.Value) != "durable" || record.Revision != revision {
		return fmt.Errorf("reads do not go on: %+v, %w", record, err)
	}
	if err := s.Watch(ctx, "", revision-1, func(c service.Changes) error {
		if c.Revision != revision {
			return fmt.Errorf("watchers were told of revision %d", c.Revision)
		}
		return errWatched
	}); !errors.Is(err, errWatched) {
		return err
	}
	say("refused as it should be")
	return nil
}

var errWatched = errors.New("watched")

// TestNothingIsAcknowledgedBeforeItsSync fails if a commit is answered though no sync of the database
// file completed after it came in: the file's syncs all fail, so that nothing may be acknowledged.
func TestNothingIsAcknowledgedBeforeItsSync(t *testing.T) {
	dir := t.TempDir()
	if line := startChild(t, roleSyncs, dir).line(t); line != "refused as it should be" {
		t.Fatal(line)
	}
	s := openTestStore(t, StoreOptions{Dir: dir})
	if record, err := s.Get(t.Context(), "a"); err != nil || string(record.Value) != "durable" {
		t.Errorf("after the restart a is %q (%v)", record.Value, err)
	}
}

// commitBeyondTheLimit fills what the process may write, and goes on when there is room again.
func commitBeyondTheLimit(ctx context.Context, dir string) error {
	s, err := OpenStore(ctx, StoreOptions{Dir: dir})
	if err != nil {
		return err
	}
	if _, err := s.Commit(ctx, put("small", "1")); err != nil {
		return err
	}
	size, err := s.Size()
	if err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	full := syscall.Rlimit{Cur: uint64(size), Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		return err
	}
	large := service.Txn{Puts: []service.Put{{Key: "large", Value: bytes.Repeat([]byte("x"), int(size))}}}
	if _, err := s.Commit(ctx, large); !errors.Is(err, service.ErrUnavailable) {
		return fmt.Errorf("a commit that does not fit: %w", err)
	}
	if h := s.Health(); h.Ready || !strings.Contains(h.Reason, databaseFile) || !strings.Contains(h.Reason, "space") {
		return fmt.Errorf("health on a full disk is %+v", h)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if _, err := s.Commit(ctx, large); err != nil {
		return fmt.Errorf("a commit after there is space again: %w", err)
	}
	if h := s.Health(); !h.Ready || h.Reason != "" {
		return fmt.Errorf("health after there is space again is %+v", h)
	}
	if err := s.Close(); err != nil {
		return err
	}
	say("went on")
	return nil
}

func TestAFullDiskIsSurvived(t *testing.T) {
	dir := t.TempDir()
	if line := startChild(t, roleLimits, dir).line(t); line != "went on" {
		t.Fatal(line)
	}
	s := openTestStore(t, StoreOptions{Dir: dir})
	records, _, err := s.List(t.Context(), "")
	if err != nil || len(records) != 2 {
		t.Errorf("%d records (%v), want 2", len(records), err)
	}
	if _, err := os.Stat(filepath.Join(dir, markerFile)); err != nil {
		t.Error(err)
	}
}
