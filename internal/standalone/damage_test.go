package standalone

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/coordsvc/coordsvc/internal/service"
)

// soundStore writes a store with branch pages, overflow pages, free pages and both small and large values,
// and returns its directory and its bytes.
func soundStore(t *testing.T) (dir string, database []byte) {
	t.Helper()
	dir = t.TempDir()
	s := openTestStore(t, StoreOptions{Dir: dir})
	for i := range 8 {
		txn := service.Txn{}
		for j := range 100 {
			txn.Puts = append(txn.Puts, service.Put{Key: fmt.Sprintf("k/%03d", i*100+j), Value: bytes.Repeat([]byte{byte(i)}, 200)})
		}
		mustCommit(t, s, txn)
	}
	mustCommit(t, s, put("k/010", "rewritten"))
	mustCommit(t, s, put("large", strings.Repeat("x", 20_000)))
	mustCommit(t, s, service.Txn{Deletes: []string{"k/100", "k/200", "k/300"}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(filepath.Join(dir, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	return dir, database
}

// openDamaged overwrites the database, opens the store and returns what that says. The file must stay as it is.
func openDamaged(t *testing.T, dir string, database []byte) error {
	t.Helper()
	path := filepath.Join(dir, databaseFile)
	if err := os.WriteFile(path, database, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(t.Context(), StoreOptions{Dir: dir})
	if err == nil {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	if after, readErr := os.ReadFile(path); readErr != nil || !bytes.Equal(after, database) {
		t.Errorf("a refused database was changed (%v)", readErr)
	}
	return err
}

func TestADamagedDatabaseIsRefused(t *testing.T) {
	dir, sound := soundStore(t)
	if err := openDamaged(t, dir, sound); err != nil {
		t.Fatalf("the sound database: %v", err)
	}
	edit := func(change func([]byte) []byte) []byte { return change(bytes.Clone(sound)) }
	value := bytes.Index(sound, bytes.Repeat([]byte{7}, 100))
	for name, database := range map[string][]byte{
		"empty":                edit(func(b []byte) []byte { return b[:0] }),
		"one byte":             edit(func(b []byte) []byte { return b[:1] }),
		"half a meta page":     edit(func(b []byte) []byte { return b[:2000] }),
		"one page":             edit(func(b []byte) []byte { return b[:4096] }),
		"the meta pages only":  edit(func(b []byte) []byte { return b[:2*4096] }),
		"cut in the middle":    edit(func(b []byte) []byte { return b[:40_000] }),
		"all zero":             make([]byte, len(sound)),
		"first page zero":      edit(func(b []byte) []byte { clear(b[:4096]); return b }),
		"second page zero":     edit(func(b []byte) []byte { clear(b[4096:8192]); return b }),
		"data pages zero":      edit(func(b []byte) []byte { clear(b[8192:]); return b }),
		"text":                 bytes.Repeat([]byte("this is no database\n"), 5000),
		"a bit of a value":     edit(func(b []byte) []byte { b[value] ^= 1; return b }),
		"all bits of a value":  edit(func(b []byte) []byte { b[value] ^= 0xff; return b }),
		"noise":                edit(func(b []byte) []byte { noise(b[8192:]); return b }),
		"noise from the start": edit(func(b []byte) []byte { noise(b); return b }),
	} {
		t.Run(name, func(t *testing.T) {
			err := openDamaged(t, dir, database)
			if !errors.Is(err, service.ErrCorrupt) {
				t.Fatalf("want ErrCorrupt, got %v", err)
			}
			for _, want := range []string{filepath.Join(dir, databaseFile), "restore", markerFile} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not tell %q", err, want)
				}
			}
		})
	}
}

// noise fills b with a reproducible sequence.
func noise(b []byte) {
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
}

// TestNoFlippedBitIsServed flips single bits all over the used pages. Each flip is found, or lies where nothing is
// stored: then the store reads exactly as before.
func TestNoFlippedBitIsServed(t *testing.T) {
	dir, sound := soundStore(t)
	want, err := contents(dir)
	if err != nil {
		t.Fatal(err)
	}
	meta, _ := newestMeta(sound)
	used := int(binary.NativeEndian.Uint64(sound[meta+40:])) * 4096
	const flips = 600
	refused, harmless := 0, 0
	for n := range flips {
		at, bit := n*used/flips+n%61, byte(1)<<(n%8)
		sound[at] ^= bit
		err := verifyOnly(sound)
		switch {
		case err != nil:
			refused++
		case harmless%10 == 0:
			readsAs(t, dir, sound, want)
			fallthrough
		default:
			harmless++
		}
		sound[at] ^= bit
	}
	t.Logf("%d flips refused, %d harmless", refused, harmless)
	if refused < flips/3 {
		t.Errorf("only %d of %d flips were refused", refused, flips)
	}
}

func readsAs(t *testing.T, dir string, database []byte, want []string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, databaseFile), database, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := contents(dir); err != nil || !slices.Equal(got, want) {
		t.Fatalf("a database verified as sound reads differently (%v)", err)
	}
}

func verifyOnly(database []byte) error {
	_, err := verifyFile(bytes.NewReader(database), int64(len(database)))
	return err
}

// contents reads all records with bbolt alone, without verifying anything.
func contents(dir string) ([]string, error) {
	db, err := bolt.Open(filepath.Join(dir, databaseFile), 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	var all []string
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(recordsBucket)).ForEach(func(k, v []byte) error {
			all = append(all, string(k)+"="+string(v))
			return nil
		})
	})
	return all, errors.Join(err, db.Close())
}

// TestLostAndStaleRecordsAreFound: every record is sound by itself, but they are not the ones last written.
func TestLostAndStaleRecordsAreFound(t *testing.T) {
	dir, sound := soundStore(t)
	for name, tamper := range map[string]func(*bolt.Bucket) error{
		"a record is gone":         func(b *bolt.Bucket) error { return b.Delete([]byte("k/010")) },
		"an older version is back": func(b *bolt.Bucket) error { return b.Put([]byte("k/010"), encodeRecord("k/010", 1, []byte("old"))) },
		"a deleted one is back":    func(b *bolt.Bucket) error { return b.Put([]byte("k/100"), encodeRecord("k/100", 2, []byte("old"))) },
		"one from the future":      func(b *bolt.Bucket) error { return b.Put([]byte("k/010"), encodeRecord("k/010", 1<<40, []byte("x"))) },
		"one under another's key":  func(b *bolt.Bucket) error { return b.Put([]byte("k/010"), encodeRecord("k/011", 1, []byte("x"))) },
		"one cut short":            func(b *bolt.Bucket) error { return b.Put([]byte("k/010"), []byte("short")) },
		"a bucket among them":      func(b *bolt.Bucket) error { _, err := b.CreateBucket([]byte("nested")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, databaseFile), sound, 0o600); err != nil {
				t.Fatal(err)
			}
			tamperWith(t, dir, func(tx *bolt.Tx) error { return tamper(tx.Bucket([]byte(recordsBucket))) })
			if _, err := OpenStore(t.Context(), StoreOptions{Dir: dir}); !errors.Is(err, service.ErrCorrupt) {
				t.Errorf("want ErrCorrupt, got %v", err)
			}
		})
	}
}

func tamperWith(t *testing.T, dir string, change func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, databaseFile), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestForeignAndNewerDatabasesAreRefused(t *testing.T) {
	t.Run("another program's", func(t *testing.T) {
		dir, _ := soundStore(t)
		tamperWith(t, dir, func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
		if _, err := OpenStore(t.Context(), StoreOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "theirs") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a newer format", func(t *testing.T) {
		dir, _ := soundStore(t)
		tamperWith(t, dir, func(tx *bolt.Tx) error {
			b := encodeState(state{})
			b[0]++
			sum := recordChecksum(nil, b[:len(b)-checksumSize])
			binary.BigEndian.PutUint32(b[len(b)-checksumSize:], sum)
			return tx.Bucket([]byte(stateBucket)).Put([]byte(stateKey), b)
		})
		_, err := OpenStore(t.Context(), StoreOptions{Dir: dir})
		if err == nil || errors.Is(err, service.ErrCorrupt) || !strings.Contains(err.Error(), "format 2") {
			t.Errorf("got %v, want a refusal that names the format and does not call it damage", err)
		}
	})
}

// TestHostilePointersAreContained points the root of a sound tree at itself and at pages that do
// not exist, with sound checksums.
func TestHostilePointersAreContained(t *testing.T) {
	_, sound := soundStore(t)
	newest, root := newestMeta(sound)
	for name, damage := range map[string]func([]byte){
		"the root is no page":       func(b []byte) { setMeta(b, newest, 16, 1<<60) },
		"the root is a meta page":   func(b []byte) { setMeta(b, newest, 16, 1) },
		"the freelist is the root":  func(b []byte) { setMeta(b, newest, 32, root) },
		"the freelist is no page":   func(b []byte) { setMeta(b, newest, 32, 1<<40) },
		"the high water is too low": func(b []byte) { setMeta(b, newest, 40, 3) },
		"the high water is absurd":  func(b []byte) { setMeta(b, newest, 40, 1<<62) },
		"the root holds itself": func(b []byte) {
			page := b[root*4096:]
			binary.NativeEndian.PutUint16(page[8:], branchPage)
			binary.NativeEndian.PutUint16(page[10:], 1)
			binary.NativeEndian.PutUint32(page[16:], 16)
			binary.NativeEndian.PutUint32(page[20:], 0)
			binary.NativeEndian.PutUint64(page[24:], root)
		},
		"the root overflows":     func(b []byte) { binary.NativeEndian.PutUint32(b[root*4096+12:], 1<<31) },
		"the root counts wildly": func(b []byte) { binary.NativeEndian.PutUint16(b[root*4096+10:], 0xFFFF) },
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(sound)
			damage(b)
			if err := verifyOnly(b); !errors.Is(err, service.ErrCorrupt) {
				t.Errorf("want ErrCorrupt, got %v", err)
			}
		})
	}
}

// newestMeta is the offset of the meta in force and its root page.
func newestMeta(b []byte) (offset int, root uint64) {
	offset = pageHeaderSize
	if binary.NativeEndian.Uint64(b[4096+pageHeaderSize+48:]) > binary.NativeEndian.Uint64(b[pageHeaderSize+48:]) {
		offset += 4096
	}
	return offset, binary.NativeEndian.Uint64(b[offset+16:])
}

// setMeta changes one field of a meta and mends the checksum.
func setMeta(b []byte, meta, field int, to uint64) {
	binary.NativeEndian.PutUint64(b[meta+field:], to)
	sum := fnv.New64a()
	sum.Write(b[meta : meta+metaSize-8])
	binary.NativeEndian.PutUint64(b[meta+metaSize-8:], sum.Sum64())
}

// FuzzVerify looks for bytes that make verifying panic, hang or allocate without bound.
func FuzzVerify(f *testing.F) {
	dir := f.TempDir()
	path := filepath.Join(dir, databaseFile)
	if err := createEmpty(path, os.OpenFile); err != nil {
		f.Fatal(err)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sound[:4*4096], 0, byte(0))
	f.Add(sound[:4*4096], 8192, byte(1))
	f.Add(sound[:100], 16, byte(0xff))
	f.Fuzz(func(t *testing.T, b []byte, at int, with byte) {
		b = bytes.Clone(b)
		if at >= 0 && at < len(b) {
			b[at] ^= with
		}
		if len(b) >= 2*4096 {
			setMeta(b, pageHeaderSize, 8, uint64(binary.NativeEndian.Uint32(b[pageHeaderSize+8:])))
			setMeta(b, 4096+pageHeaderSize, 8, uint64(binary.NativeEndian.Uint32(b[4096+pageHeaderSize+8:])))
		}
		if s, err := verifyFile(bytes.NewReader(b), int64(len(b))); err != nil && s != (state{}) {
			t.Errorf("an error (%v) and a state (%+v)", err, s)
		}
	})
}

// TestARecordDamagedWhileRunningIsNotServed flips a bit of a value in the file of an open store, behind its back.
func TestARecordDamagedWhileRunningIsNotServed(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, StoreOptions{Dir: dir})
	value := strings.Repeat("precious ", 1000)
	revision := mustCommit(t, s, put("a/damaged", value))
	mustCommit(t, s, put("b/sound", "1"))
	path := filepath.Join(dir, databaseFile)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	for at := 0; ; {
		next := bytes.Index(content[at:], []byte(value))
		if next < 0 {
			break
		}
		at += next + len(value)
		if _, err := file.WriteAt([]byte("P"), int64(at-len(value))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(t.Context(), "a/damaged"); !errors.Is(err, service.ErrCorrupt) {
		t.Errorf("get: %v, want ErrCorrupt", err)
	}
	if _, _, err := s.List(t.Context(), "a/"); !errors.Is(err, service.ErrCorrupt) {
		t.Errorf("list: %v, want ErrCorrupt", err)
	}
	for name, txn := range map[string]service.Txn{
		"overwritten": put("a/damaged", "new"),
		"deleted":     {Deletes: []string{"a/damaged"}},
		"relied on":   {Checks: []service.Check{{Key: "a/damaged", Revision: revision}}, Puts: []service.Put{{Key: "c", Value: nil}}},
	} {
		if _, err := s.Commit(t.Context(), txn); !errors.Is(err, service.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
	if record, err := s.Get(t.Context(), "b/sound"); err != nil || string(record.Value) != "1" {
		t.Errorf("a sound record reads %q (%v)", record.Value, err)
	}
	mustCommit(t, s, put("b/sound", "2"))
}

// TestAFileCutWhileRunningIsAnErrorNotACrash: reading a mapped page beyond the end of its file is a fault.
func TestAFileCutWhileRunningIsAnErrorNotACrash(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, StoreOptions{Dir: dir})
	mustCommit(t, s, put("a", strings.Repeat("x", 100_000)))
	if err := os.Truncate(filepath.Join(dir, databaseFile), 2*4096); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, service.ErrCorrupt) {
		t.Errorf("get: %v, want ErrCorrupt", err)
	}
	if _, err := s.Commit(t.Context(), put("b", "1")); !errors.Is(err, service.ErrUnavailable) {
		t.Errorf("commit: %v, want ErrUnavailable", err)
	}
	if s.Health().Ready {
		t.Error("the store is ready")
	}
}

func TestCheckStoreReportsWhatIsThere(t *testing.T) {
	dir, database := soundStore(t)
	check, err := CheckStore(t.Context(), dir, time.Second)
	want := StoreCheck{Path: filepath.Join(dir, databaseFile), Bytes: int64(len(database)), Records: 798, Revision: 11}
	if err != nil || check != want {
		t.Errorf("got %+v (%v), want %+v", check, err, want)
	}
	database[bytes.Index(database, bytes.Repeat([]byte{7}, 100))] ^= 1
	if err := os.WriteFile(filepath.Join(dir, databaseFile), database, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckStore(t.Context(), dir, time.Second); !errors.Is(err, service.ErrCorrupt) {
		t.Errorf("want ErrCorrupt, got %v", err)
	}
	if _, err := CheckStore(t.Context(), filepath.Join(dir, "none"), time.Second); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("want ErrNotExist, got %v", err)
	}
}
