//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheDemonstrationShowsEverything(t *testing.T) {
	t.Parallel()
	cmd := command(t.Context(), "demo", "--listen", "127.0.0.1:0", "--heartbeat-timeout", "1s", "--rounds", "1")
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(t, cmd.Run(), "%s%s", out.String(), errOut.String())
	for _, want := range []string{
		"dashboard  http://127.0.0.1:", "billing-3 crashes", "is rolled", "is back as a new incarnation",
		"claims payments.card", "waits until its old owner is done", "fencing token 1",
		"peer.stale · billing-3", "orphan.detected · billing-3 · cause stale", "orphan.escalated", "ended as taken_over", "ended as recovered",
		"subscription.conflict · group search", "subscription.conflict_resolved", "group.mass_staleness · group billing", "its status is unknown",
	} {
		assert.Contains(t, out.String(), want)
	}
	assert.NotContains(t, out.String(), "signature is wrong")
	assert.NotContains(t, out.String(), "does not answer")
	assert.NotContains(t, errOut.String(), "level=ERROR")
}

func TestTheDemonstrationJoinsAServiceAndLeavesItClean(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	cmd := command(context.WithoutCancel(t.Context()), "demo", "--server", s.url, "--heartbeat-timeout", "2s")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	told := make(chan string, 1000)
	go func() {
		defer close(told)
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			told <- lines.Text()
		}
	}()
	deadline := time.After(20 * time.Second)
	for seen := false; !seen; {
		select {
		case line, open := <-told:
			require.True(t, open, "the demonstration ended")
			seen = strings.Contains(line, "is rolled")
		case <-deadline:
			require.Fail(t, "nobody is rolled")
		}
	}
	require.GreaterOrEqual(t, len(items(t, s.get("/v1/peers"))), 13)
	require.Len(t, items(t, s.get("/v1/webhooks")), 1)
	began := time.Now()
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	for range told {
	}
	require.NoError(t, cmd.Wait(), "Ctrl-C is a clean end")
	assert.Less(t, time.Since(began), 5*time.Second)
	assert.Empty(t, items(t, s.get("/v1/webhooks")), "its webhook is taken back")
}

func TestTheDemonstrationLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := command(context.WithoutCancel(t.Context()), "demo", "--listen", "127.0.0.1:0")
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	require.NoError(t, cmd.Start())
	eventually(t, 10*time.Second, "it has begun", func() bool {
		made, err := filepath.Glob(filepath.Join(dir, "coordsvc-demo-*", "*"))
		return err == nil && len(made) > 0
	})
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
