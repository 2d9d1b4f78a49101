package standalone

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordsvc/coordsvc/internal/service"
)

func openTestStore(t *testing.T, options StoreOptions) *Store {
	t.Helper()
	s, err := OpenStore(t.Context(), options)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

func put(key, value string) service.Txn {
	return service.Txn{Puts: []service.Put{{Key: key, Value: []byte(value)}}}
}

func mustCommit(t *testing.T, s service.Store, txn service.Txn) uint64 {
	t.Helper()
	revision, err := s.Commit(context.Background(), txn)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return revision
}

func TestAReopenedStoreHoldsWhatWasCommitted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := openTestStore(t, StoreOptions{Dir: dir})
	mustCommit(t, s, put("a", "1"))
	revision := mustCommit(t, s, put("b", "2"))
	mustCommit(t, s, service.Txn{Deletes: []string{"a"}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = openTestStore(t, StoreOptions{Dir: dir})
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, service.ErrNoRecord) {
		t.Errorf("a was deleted, Get says %v", err)
	}
	b, err := s.Get(t.Context(), "b")
	if err != nil || string(b.Value) != "2" || b.Revision != revision {
		t.Errorf("b is %+v (%v), want 2 at revision %d", b, err, revision)
	}
	if next := mustCommit(t, s, put("c", "3")); next != revision+2 {
		t.Errorf("the first revision after reopening is %d, want %d", next, revision+2)
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	openTestStore(t, StoreOptions{Dir: dir})
	for path, want := range map[string]os.FileMode{
		dir:                              0o700,
		filepath.Join(dir, databaseFile): 0o600,
		filepath.Join(dir, markerFile):   0o600,
		filepath.Join(dir, lockFile):     0o600,
		filepath.Dir(dir):                0o700,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

func TestADatabaseThatWentMissingIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, StoreOptions{Dir: dir})
	mustCommit(t, s, put("a", "1"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	database, marker := filepath.Join(dir, databaseFile), filepath.Join(dir, markerFile)
	if err := os.Remove(database); err != nil {
		t.Fatal(err)
	}
	_, err := OpenStore(t.Context(), StoreOptions{Dir: dir})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), database) || !strings.Contains(err.Error(), "remove "+marker) {
		t.Fatalf("want ErrMissing naming %s and %s, got %v", database, marker, err)
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	s = openTestStore(t, StoreOptions{Dir: dir})
	if records, revision, err := s.List(t.Context(), ""); err != nil || len(records) != 0 || revision != 0 {
		t.Errorf("after removing the marker: %d records at revision %d (%v)", len(records), revision, err)
	}
}
