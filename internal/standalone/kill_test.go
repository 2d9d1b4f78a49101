package standalone

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
)

// writeForever commits from several goroutines and says what was acknowledged: writer, counter, revision.
func writeForever(ctx context.Context, dir string) error {
	s, err := OpenStore(ctx, StoreOptions{Dir: dir})
	if err != nil {
		return err
	}
	say("open")
	const writers = 4
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() { errs[w] = writeInLoop(ctx, s, w) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// writeInLoop keeps a counter and a pile of records of mixed sizes in step, in one transaction each.
func writeInLoop(ctx context.Context, s *Store, writer int) error {
	key := fmt.Sprintf("writer/%d", writer)
	record, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, service.ErrNoRecord) {
		return err
	}
	n, _ := strconv.Atoi(string(record.Value))
	for {
		n++
		pile := fmt.Sprintf("pile/%d/%d", writer, n%50)
		txn := put(key, strconv.Itoa(n))
		txn.Puts = append(txn.Puts, service.Put{Key: pile, Value: []byte(strings.Repeat(strconv.Itoa(n), 1+n%700))})
		revision, err := s.Commit(ctx, txn)
		if err != nil {
			return err
		}
		say("%d %d %d", writer, n, revision)
	}
}

// TestKillLosesNothingAcknowledged kills a writing process at random instants and reopens what it left.
// COORDSVC_KILLS sets how often (20).
func TestKillLosesNothingAcknowledged(t *testing.T) {
	kills := 20
	if set := os.Getenv("COORDSVC_KILLS"); set != "" {
		n, err := strconv.Atoi(set)
		if err != nil || n < 1 {
			t.Fatalf("COORDSVC_KILLS is %q, want a positive number", set)
		}
		kills = n
	}
	dir := t.TempDir()
	acknowledged := map[string]int{}
	var newest uint64
	for range kills {
		newest = max(newest, writeUntilKilled(t, dir, acknowledged))
		s, err := OpenStore(t.Context(), StoreOptions{Dir: dir})
		if err != nil {
			t.Fatalf("open after the kill: %v", err)
		}
		checkAcknowledged(t, s, acknowledged, newest)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d revisions, counters %v", kills, newest, acknowledged)
}

func writeUntilKilled(t *testing.T, dir string, acknowledged map[string]int) (newest uint64) {
	t.Helper()
	c := startChild(t, roleWrite, dir)
	if line := c.line(t); line != "open" {
		t.Fatalf("the child says %q", line)
	}
	timer := time.AfterFunc(time.Duration(rand.Int64N(int64(60*time.Millisecond))), func() {
		_ = c.cmd.Process.Signal(syscall.SIGKILL)
	})
	defer timer.Stop()
	for c.lines.Scan() {
		var writer, n int
		var revision uint64
		// The last line may be cut by the kill: then nobody has read the acknowledgement.
		if _, err := fmt.Sscanf(c.lines.Text()+"\n", "%d %d %d\n", &writer, &n, &revision); err == nil {
			acknowledged[fmt.Sprintf("writer/%d", writer)] = n
			newest = max(newest, revision)
		}
	}
	if err := c.cmd.Wait(); err == nil || c.stderr.Len() > 0 {
		t.Fatalf("the child was not killed (%v): %s", err, c.stderr)
	}
	return newest
}

func checkAcknowledged(t *testing.T, s *Store, acknowledged map[string]int, newest uint64) {
	t.Helper()
	for key, n := range acknowledged {
		record, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatalf("%s was acknowledged at %d: %v", key, n, err)
		}
		// One more may have become durable before its acknowledgement was read.
		got, err := strconv.Atoi(string(record.Value))
		if err != nil || got < n {
			t.Fatalf("%s is at %q, %d was acknowledged", key, record.Value, n)
		}
		pile, err := s.Get(t.Context(), fmt.Sprintf("pile/%s/%d", strings.TrimPrefix(key, "writer/"), got%50))
		if err != nil || string(pile.Value) != strings.Repeat(strconv.Itoa(got), 1+got%700) {
			t.Fatalf("%s is at %d, but its other record is %d bytes (%v): half a transaction", key, got, len(pile.Value), err)
		}
		if pile.Revision != record.Revision {
			t.Fatalf("one transaction has revisions %d and %d", record.Revision, pile.Revision)
		}
	}
	if _, revision, err := s.List(t.Context(), "none"); err != nil || revision < newest {
		t.Fatalf("the store is at revision %d (%v), %d was acknowledged", revision, err, newest)
	}
}
