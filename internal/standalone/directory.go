package standalone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The files of a data directory.
const (
	databaseFile = "coordsvc.db"
	// creatingFile is a database that is not complete yet; it is renamed when it is, so that a crash in
	// between leaves nothing that looks like a database.
	creatingFile = "coordsvc.db.creating"
	markerFile   = "INITIALIZED"
	lockFile     = "LOCK"
)

const lockRetry = 20 * time.Millisecond

var (
	// ErrInUse means that another process has the data directory open.
	ErrInUse = errors.New("data directory is in use")
	// ErrMissing means that the directory was initialised, but its database is gone.
	ErrMissing = errors.New("database is missing")
)

// directory is an opened, locked data directory.
type directory struct {
	path string
	lock *os.File
}

func (d directory) database() string { return filepath.Join(d.path, databaseFile) }
func (d directory) marker() string   { return filepath.Join(d.path, markerFile) }

// openDirectory creates the directory when needed and takes its lock, waiting up to timeout.
func openDirectory(ctx context.Context, path string, timeout time.Duration) (directory, error) {
	if err := makeDirectory(path); err != nil {
		return directory{}, fmt.Errorf("data directory %s cannot be created: %w", path, err)
	}
	return lockDirectory(ctx, path, timeout)
}

func makeDirectory(path string) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func lockDirectory(ctx context.Context, path string, timeout time.Duration) (directory, error) {
	file, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return directory{}, fmt.Errorf("data directory %s is not writable: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		locked, err := tryLock(file)
		if err != nil {
			return directory{}, errors.Join(fmt.Errorf("data directory %s cannot be locked: %w", path, err), file.Close())
		}
		if locked {
			return directory{path: path, lock: file}, nil
		}
		select {
		case <-time.After(lockRetry):
		case <-ctx.Done():
			return directory{}, errors.Join(inUse(path), file.Close())
		}
	}
}

func inUse(path string) error {
	return fmt.Errorf("%w: %s is open in another process; stop that one, or give this one a directory of its own", ErrInUse, path)
}

// prepare makes sure that a complete database and its marker are there.
func (d directory) prepare(now time.Time, create func(path string) error) error {
	info, err := os.Stat(d.database())
	switch {
	case err == nil && info.Mode().IsRegular():
		return d.ensureMarker(now)
	case err == nil:
		return fmt.Errorf("%s is not a regular file", d.database())
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look for the database: %w", err)
	}
	if since, initialised := d.initialisedAt(); initialised {
		return fmt.Errorf("%w: the database %s is gone although this directory was initialised at %s; restore it, or remove %s to start empty",
			ErrMissing, d.database(), since, d.marker())
	}
	if err := d.createDatabase(create); err != nil {
		return fmt.Errorf("create the database %s: %w", d.database(), err)
	}
	return d.ensureMarker(now)
}

// createDatabase builds the database beside its place and moves it there when it is complete and durable.
func (d directory) createDatabase(create func(path string) error) error {
	creating := filepath.Join(d.path, creatingFile)
	if err := os.Remove(creating); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := create(creating); err != nil {
		return err
	}
	if err := os.Rename(creating, d.database()); err != nil {
		return err
	}
	return syncDirectory(d.path)
}

// ensureMarker writes the marker unless it is there. A database without one is a start that crashed just before.
func (d directory) ensureMarker(now time.Time) error {
	if _, initialised := d.initialisedAt(); initialised {
		return nil
	}
	text := "coordsvc keeps its data here.\ninitialised_at: " + now.UTC().Format(time.RFC3339) + "\n"
	if err := writeDurably(d.marker(), []byte(text)); err != nil {
		return fmt.Errorf("write the marker %s: %w", d.marker(), err)
	}
	return nil
}

// initialisedAt reads the marker. What it says is for people; that it exists is what counts.
func (d directory) initialisedAt() (since string, initialised bool) {
	text, err := os.ReadFile(d.marker())
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if _, at, found := strings.Cut(string(text), "initialised_at: "); found {
		return strings.TrimSpace(at), true
	}
	return "an unknown time", true
}

func (d directory) close() error { return d.lock.Close() }

func writeDurably(path string, data []byte) error {
	temporary := path + ".creating"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory makes new names in a directory durable.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// createEmpty writes a complete database without records.
func createEmpty(path string, openFile openFileFunc) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{OpenFile: openFile, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket([]byte(recordsBucket)); err != nil {
			return err
		}
		bucket, err := tx.CreateBucket([]byte(stateBucket))
		if err != nil {
			return err
		}
		return bucket.Put([]byte(stateKey), encodeState(state{}))
	})
	return errors.Join(err, db.Sync(), db.Close())
}
