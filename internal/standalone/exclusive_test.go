package standalone

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// holdStore keeps a store open until the parent lets go.
func holdStore(ctx context.Context, dir string) error {
	s, err := OpenStore(ctx, StoreOptions{Dir: dir})
	if err != nil {
		return err
	}
	say("open")
	untilStdinEnds()
	return s.Close()
}

func TestASecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, roleHold, dir)
	c.line(t)
	begin := time.Now()
	_, err := OpenStore(t.Context(), StoreOptions{Dir: dir, LockTimeout: 50 * time.Millisecond})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("want ErrInUse naming %s, got %v", dir, err)
	}
	if waited := time.Since(begin); waited < 50*time.Millisecond {
		t.Errorf("gave up after %v", waited)
	}
	if _, err := CheckStore(t.Context(), dir, 50*time.Millisecond); !errors.Is(err, ErrInUse) {
		t.Errorf("a check beside a running store says %v", err)
	}
}

func TestTheSameProcessIsRefusedTwice(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, StoreOptions{Dir: dir})
	if _, err := OpenStore(t.Context(), StoreOptions{Dir: dir, LockTimeout: 1}); !errors.Is(err, ErrInUse) {
		t.Fatalf("want ErrInUse, got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openTestStore(t, StoreOptions{Dir: dir, LockTimeout: 1})
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	openTestStore(t, StoreOptions{Dir: dir})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenStore(ctx, StoreOptions{Dir: dir, LockTimeout: time.Hour}); !errors.Is(err, ErrInUse) {
		t.Fatalf("want ErrInUse, got %v", err)
	}
}

// TestACrashWhileCreatingIsCompleted starts from what each step of the first start leaves behind.
func TestACrashWhileCreatingIsCompleted(t *testing.T) {
	complete := t.TempDir()
	s := openTestStore(t, StoreOptions{Dir: complete})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(filepath.Join(complete, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string][]byte{
		"directory only":          {},
		"lock only":               {lockFile: {}},
		"empty unfinished file":   {lockFile: {}, creatingFile: {}},
		"half an unfinished file": {lockFile: {}, creatingFile: database[:len(database)/2]},
		"complete, not moved":     {lockFile: {}, creatingFile: database},
		"moved, no marker":        {lockFile: {}, databaseFile: database},
		"half a marker":           {lockFile: {}, databaseFile: database, markerFile + ".creating": []byte("coord")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range files {
				if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := openTestStore(t, StoreOptions{Dir: dir})
			mustCommit(t, s, put("a", "1"))
			for _, file := range []string{databaseFile, markerFile} {
				if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, creatingFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there (%v)", creatingFile, err)
			}
		})
	}
}

func TestADirectoryThatCannotBeUsedIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := OpenStore(t.Context(), StoreOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want an error that names it", dir, err)
		}
	}
	if _, err := OpenStore(t.Context(), StoreOptions{}); err == nil || !strings.Contains(err.Error(), "Dir") {
		t.Errorf("without a directory: %v", err)
	}
}
