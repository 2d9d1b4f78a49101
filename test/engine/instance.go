package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long one call of the script may take. Building Consul is the longest, once a checkout.
const patience = 10 * time.Minute

// logLines is how much of an engine's log the output of a failed test shows.
const logLines = 40

// instance is the nodes of one engine, in a directory of its own.
type instance struct {
	script, dir, name string
	nodes             int
	env               map[string]string
	// fail tells whoever uses the engine that it does not do what it should; it does not return.
	fail func(format string, args ...any)
}

// run starts an engine that belongs to no test.
func run(name string, nodes int) (*instance, func(), error) {
	script, err := findScript()
	if err != nil {
		return nil, nil, err
	}
	sweepOnce(script)
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		return nil, nil, fmt.Errorf("make a directory for %s: %w", name, err)
	}
	i := &instance{script: script, dir: dir, name: name, nodes: nodes, fail: func(format string, args ...any) {
		panic(fmt.Sprintf(format, args...))
	}}
	if _, err = i.services("up", "--nodes", strconv.Itoa(nodes), name); err == nil {
		i.env, err = i.readEnv()
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start %s: %w", name, err), i.remove())
	}
	return i, func() {
		if err := i.remove(); err != nil {
			panic(err)
		}
	}, nil
}

// start starts an engine that ends with the test.
func start(tb testing.TB, name string, nodes int) *instance {
	tb.Helper()
	i, _, err := run(name, nodes)
	if err != nil {
		tb.Fatal(err)
	}
	i.fail = tb.Fatalf
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the end of the log of %s:\n%s", name, i.lastLog())
		}
		if err := i.remove(); err != nil {
			tb.Error(err)
		}
	})
	return i
}

func (i *instance) remove() error {
	_, err := i.services("down", i.name)
	if err != nil {
		return fmt.Errorf("stop %s: %w", i.name, err)
	}
	return os.RemoveAll(i.dir)
}

// services calls the script and answers what it printed.
func (i *instance) services(args ...string) (string, error) { return call(i.script, i.dir, args...) }

func call(script, dir string, args ...string) (string, error) {
	// Engines are stopped after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Env = append(os.Environ(), "SERVICES_DIR="+dir)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A server that kept an output open would hold the wait for ever.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("scripts/services %s: %w\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// node has the driver do something to node n, or fails.
func (i *instance) node(do string, n int) {
	if n < 1 || n > i.nodes {
		i.fail("%s has nodes 1 to %d, there is no %d to %s", i.name, i.nodes, n, do)
	}
	if _, err := i.services("call", i.name, do, strconv.Itoa(n)); err != nil {
		i.fail("%v", err)
	}
}

func (i *instance) wait() {
	if _, err := i.services("wait", i.name); err != nil {
		i.fail("%v", err)
	}
}

// readEnv reads the "export NAME=value" lines.
func (i *instance) readEnv() (map[string]string, error) {
	out, err := i.services("env", i.name)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); ok {
			env[name] = value
		}
	}
	return env, nil
}

// list answers entry n, from 1, of a comma-separated variable.
func (i *instance) list(name string, n int) string {
	all := strings.Split(i.env[name], ",")
	if n < 1 || n > len(all) || all[n-1] == "" {
		i.fail("%s has nodes 1 to %d, there is no address of %d in %s=%s", i.name, i.nodes, n, name, i.env[name])
	}
	return all[n-1]
}

func (i *instance) lastLog() string {
	out, err := i.services("logs", i.name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}

// findScript goes up from the package's directory, in which a test runs, to the root of the checkout.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		script := filepath.Join(at, "scripts", "services")
		if _, err := os.Stat(script); err == nil {
			return script, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("there is no scripts/services in %s or above it", dir)
		}
	}
}

// prefix begins the names of the instances' directories; the process that owns one comes next.
const prefix = "coordsvc-engine-"

// sweepOnce sweeps at a process's first engine.
func sweepOnce(script string) { swept.Do(func() { sweep(script, os.TempDir()) }) }

var swept sync.Once //nolint:gochecknoglobals // once a process is what is meant

// sweep ends the engines of test processes that were killed before they could do so.
func sweep(script, temp string) {
	dirs, err := filepath.Glob(filepath.Join(temp, prefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		owner, err := strconv.Atoi(pid)
		if err != nil || owner <= 0 || !errors.Is(syscall.Kill(owner, 0), syscall.ESRCH) {
			continue
		}
		// Another user's are left to that user.
		if _, err := call(script, dir, "down"); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
}
