package standalone

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A test that needs a process of its own re-executes the test binary with these set.
const (
	childRole = "COORDSVC_STANDALONE_CHILD"
	childDir  = "COORDSVC_STANDALONE_DIR"
)

// The roles of a child process.
const (
	roleHold   = "hold"
	roleWrite  = "write"
	roleSyncs  = "syncs"
	roleLimits = "limits"
)

func runChild(role string) int {
	run, known := map[string]func(context.Context, string) error{
		roleHold:   holdStore,
		roleWrite:  writeForever,
		roleSyncs:  commitWithBrokenSync,
		roleLimits: commitBeyondTheLimit,
	}[role]
	if !known {
		fmt.Fprintln(os.Stderr, "unknown role", role)
		return 2
	}
	if err := run(context.Background(), os.Getenv(childDir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is a re-executed test binary; lines are what it prints.
type child struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr *strings.Builder
}

func startChild(t *testing.T, role, dir string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.CommandContext(t.Context(), self), stderr: &strings.Builder{}}
	c.cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir)
	c.cmd.Stderr = c.stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// line is the next line; it fails the test when the child ended.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.lines.Scan() {
		_ = c.cmd.Wait()
		t.Fatalf("the child ended: %s", c.stderr)
	}
	return c.lines.Text()
}

// say prints a line for the parent.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }

// untilStdinEnds returns when the parent closes its end or dies.
func untilStdinEnds() { bufio.NewScanner(os.Stdin).Scan() }
