//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A restart is the service's own trouble: nobody is reported dead for it, and nothing is told twice.
func TestARestartGivesEveryKnownPeerGrace(t *testing.T) {
	t.Parallel()
	dir, hook := t.TempDir(), newReceiver(t)
	s := serve(t, dir)
	hook.register(s, "*")
	s.beat("dead", object{"subscriptions": []string{"a"}})
	for _, id := range []string{"one", "two", "silent"} {
		s.beat(id, object{"subscriptions": []string{id}})
	}
	stopAll := func() {}
	for _, id := range []string{"one", "two", "silent"} {
		stop := s.keepBeating(id, always(object{"subscriptions": []string{id}}))
		stopAll = func(rest func()) func() { return func() { stop(); rest() } }(stopAll)
	}
	eventually(t, 6*time.Second, "the dead one's orphan is told", func() bool { return len(hook.deliveries("orphan.detected")) == 1 })
	stopAll()
	epoch, _ := s.get("/v1/leader")["epoch"].(float64)
	s.kill()

	began := time.Now()
	s = serve(t, dir)
	next, _ := s.get("/v1/leader")["epoch"].(float64)
	assert.Greater(t, next, epoch)
	for _, id := range []string{"one", "two", "silent", "dead"} {
		assert.Equal(t, "unknown", s.status(id), id)
	}
	orphans := items(t, s.get("/v1/orphans?state=open"))
	require.Len(t, orphans, 1, "the open orphan stays open")
	assert.Equal(t, "dead", orphans[0]["instance_id"])

	s.keepBeating("one", always(object{"subscriptions": []string{"one"}}))
	s.keepBeating("two", always(object{"subscriptions": []string{"two"}}))
	assert.Equal(t, "healthy", s.status("one"))
	eventually(t, 6*time.Second, "who stays silent turns stale", func() bool { return s.status("silent") == "stale" })
	assert.Greater(t, time.Since(began), 1900*time.Millisecond, "grace is a full timeout")
	eventually(t, 6*time.Second, "the new crash is told", func() bool {
		return slices.ContainsFunc(hook.deliveries("orphan.detected"), func(d delivery) bool { return d.event.Data.InstanceID == "silent" })
	})
	assert.Equal(t, "stale", s.status("dead"))
	assert.Empty(t, about(s.events("peer.stale"), "one"))
	// A delivery that was made just before the kill may be made again, as what it is: the same event.
	told := map[string]string{}
	for _, d := range hook.deliveries("orphan.detected") {
		told[d.event.ID] = d.event.Data.InstanceID
	}
	assert.ElementsMatch(t, []string{"dead", "silent"}, slices.Collect(maps.Values(told)))
	assertTold(t, hook.deliveries("*"))
}

// A paused service missed heartbeats itself; it must not hold that against its peers.
func TestNobodyTurnsStaleBecauseTheServiceWasPaused(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--heartbeat-timeout", "1s")
	stops := map[string]func(){}
	for _, id := range []string{"one", "two", "three"} {
		stops[id] = s.keepBeating(id, always(object{"subscriptions": []string{id}}))
	}
	for range 3 {
		s.signal(syscall.SIGSTOP)
		timer := time.NewTimer(2500 * time.Millisecond)
		<-timer.C
		s.signal(syscall.SIGCONT)
		deadline := time.Now().Add(1500 * time.Millisecond)
		for time.Now().Before(deadline) {
			for id := range stops {
				require.Equal(t, "healthy", s.status(id))
			}
		}
	}
	assert.Empty(t, s.events("peer.stale"))
	assert.Empty(t, s.events("orphan.detected"))
	stops["one"]()
	eventually(t, 5*time.Second, "a real crash is still noticed", func() bool { return s.status("one") == "stale" })
	assert.Equal(t, "healthy", s.status("two"))
}

func TestStoppingIsOrderlyWithOpenStreamsAndAHangingWebhook(t *testing.T) {
	t.Parallel()
	dir, hook := t.TempDir(), newReceiver(t)
	s := serve(t, dir)
	hook.setHang(true)
	hook.register(s, "peer.joined")
	s.beat("w1", nil)
	cut := <-hook.came
	events, page := s.openStream("/v1/events"), s.openStream("/live")
	code, took := s.terminate()
	assert.Zero(t, code, s.logged())
	assert.Less(t, took, 10*time.Second)
	<-events.ended
	<-page.ended
	assert.Contains(t, s.logged(), `"msg":"stopped"`)

	// What was cut off is delivered after the next start, under the same id.
	hook.setHang(false)
	s = serve(t, dir)
	eventually(t, 10*time.Second, "the cut delivery is made", func() bool { return len(hook.deliveries("peer.joined")) > 0 })
	assert.Equal(t, cut, hook.deliveries("peer.joined")[0].id)
	code, _ = s.terminate()
	assert.Zero(t, code)
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	hook := newReceiver(t)
	s := serve(t, t.TempDir())
	hook.setHang(true)
	hook.register(s, "peer.joined")
	s.beat("w1", nil)
	<-hook.came
	s.signal(syscall.SIGINT)
	eventually(t, 5*time.Second, "stopping begins", func() bool {
		status, _, err := s.try(http.MethodGet, "/readyz", nil)
		return err != nil || status == http.StatusServiceUnavailable
	})
	s.signal(syscall.SIGINT)
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
		assert.Fail(t, "still there")
	}
}

func TestASecondProcessOnTheSameDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir)
	_, err := tryServe(t, dir)
	require.ErrorContains(t, err, "exit code 1")
	assert.ErrorContains(t, err, "open in another process")
	s.beat("w1", nil)
}

func TestADamagedStoreIsRefusedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, file string){
		"changed bytes in a record": func(t *testing.T, file string) {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			// Old copies lie about on free pages: damage all of them.
			damaged := bytes.ReplaceAll(content, []byte("damage-me"), []byte("damage-ME"))
			require.NotEqual(t, content, damaged)
			require.NoError(t, os.WriteFile(file, damaged, 0o600))
		},
		"cut short": func(t *testing.T, file string) {
			require.NoError(t, os.Truncate(file, int64(3*os.Getpagesize())))
		},
		"missing": func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
		"something else": func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, []byte("not a database"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := serve(t, dir)
			s.beat("damage-me", nil)
			s.call(http.StatusAccepted, http.MethodPost, "/v1/shutdowns", object{"instance_id": "damage-me", "intent": "graceful"})
			code, _ := s.terminate()
			require.Zero(t, code)
			file := databaseFile(t, dir)
			damage(t, file)
			before := fingerprint(t, file)
			_, err := tryServe(t, dir)
			require.ErrorContains(t, err, "exit code 1")
			assert.ErrorContains(t, err, dir, "the message names the place")
			assert.Equal(t, before, fingerprint(t, file))
		})
	}
}

// databaseFile is the largest file of the directory.
func databaseFile(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var largest string
	var size int64 = -1
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		if info.Size() > size {
			largest, size = filepath.Join(dir, e.Name()), info.Size()
		}
	}
	return largest
}

func fingerprint(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return "missing"
	}
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	return string(sum[:])
}

// A sender's clock orders its own heartbeats; it never decides who is alive.
func TestWrongClocksMakeNobodyStaleAndNobodyImmortal(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--heartbeat-timeout", "1s")
	offsets := map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour, "right": 0}
	stops := map[string]func(){}
	for id, offset := range offsets {
		stops[id] = s.keepBeating(id, func() object {
			return object{"subscriptions": []string{id}, "timestamp": time.Now().Add(offset).UTC().Format(time.RFC3339Nano)}
		})
	}
	began := time.Now()
	stops["stepping"] = s.keepBeating("stepping", func() object {
		stamp := time.Now()
		if time.Since(began) > time.Second {
			stamp = stamp.Add(-time.Hour)
		}
		return object{"subscriptions": []string{"stepping"}, "timestamp": stamp.UTC().Format(time.RFC3339Nano)}
	})
	for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline); {
		for id := range stops {
			require.Equal(t, "healthy", s.status(id), id)
		}
	}
	assert.InDelta(t, 3600, s.get("/v1/peers/ahead")["clock_skew_seconds"], 5)
	assert.InDelta(t, -3600, s.get("/v1/peers/behind")["clock_skew_seconds"], 5)
	s.keepBeating("witness", always(object{}))
	for id, stop := range stops {
		stop()
		eventually(t, 5*time.Second, id+" stopped", func() bool { return s.status(id) == "stale" })
	}
}

func TestItRunsReadyInTwoSeconds(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := serve(t, t.TempDir())
	s.beat("w1", nil)
	assert.Less(t, time.Since(began), 2*time.Second)
}
