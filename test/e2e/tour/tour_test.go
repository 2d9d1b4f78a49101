//go:build e2e

package tour_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const root = "../../.."

// documented is the address in the README; the test serves on another, free one.
const documented = "127.0.0.1:8080"

func TestTheReadmesTourWorksAsPasted(t *testing.T) {
	t.Parallel()
	program := build(t)
	address := serve(t, program)
	script := strings.ReplaceAll(tour(t), documented, address)
	script = strings.ReplaceAll(script, "bin/coordsvc", program)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-s")
	shell.Env = append(os.Environ(), "COORDSVC_SERVER=http://"+address)
	shell.Stdin = strings.NewReader(script)
	// What the tour leaves in the background ends with it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.WaitDelay = time.Second
	var out bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &out
	if err := shell.Run(); err != nil {
		t.Fatalf("the tour ended with %v:\n%s", err, out.String())
	}

	rest := out.String()
	for _, want := range []string{
		`"status":"healthy"`,        // worker-1
		`"status":"healthy"`,        // worker-2
		`"secret":"whsec_`,          // the webhook
		`"status":"draining"`,       // worker-2 leaves
		`"subscription":"shipping"`, // an orphan
		`"fencing_token":1`,         // worker-1's claim
		`"ready":false`,             // not yet
		`"holder":"worker-1"`,       // worker-9 is refused
		`"status":"terminated"`,     // worker-2 finished early
		`"ready":true`,              // now
		`"resolution":"taken_over"`, // the claim is done
		`"type":"orphan.resolved"`,  // the page of events
		"event: peer.joined",        // the stream, from its start
		"event: orphan.resolved",    // to its end
		`"error":`,                  // nothing listens on the webhook's port
		`"status": "healthy"`,       // the program as a client prints indented
		`"status": "draining"`,      // and announces
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("no %s in what is left of the output:\n%s\nall of it:\n%s", want, rest, out.String())
		}
		rest = after
	}
	for _, problem := range regexp.MustCompile(`urn:coordsvc:problem:[a-z-]+`).FindAllString(out.String(), -1) {
		if problem != "urn:coordsvc:problem:claim-held" {
			t.Errorf("the tour met with %s:\n%s", problem, out.String())
		}
	}
}

// tour is every block of commands in the README's section, one after the other.
func tour(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## A tour\n")
	section, _, ended := strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	if !found || !ended || len(blocks) < 10 {
		t.Fatalf("the README's tour has %d blocks of commands: where is it?", len(blocks))
	}
	var script strings.Builder
	for _, block := range blocks {
		script.WriteString(block[1])
	}
	return script.String()
}

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "coordsvc")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/coordsvc")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// serve starts the program on a free port and returns its address, read from what it logs when it can be asked.
func serve(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.Command(program, "serve", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--log-format", "text") //nolint:noctx // ended by SIGTERM below, as in life
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		for lines.Scan() { // until it has ended
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	address := regexp.MustCompile(`\blisten=(127\.0\.0\.1:\d+)\b`)
	for lines.Scan() {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			return m[1]
		}
	}
	t.Fatalf("serve ended without an address: %v", lines.Err())
	return ""
}
