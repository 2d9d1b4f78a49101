package engine

import (
	"strconv"
	"strings"
	"testing"
)

// Consul is a cluster of Consul servers, each of which is an agent for its clients as well. Nodes are counted from 1.
type Consul struct{ *instance }

// StartConsul starts a cluster of one or three nodes, which serves, and removes it when the test ends.
func StartConsul(tb testing.TB, nodes int) *Consul {
	tb.Helper()
	return &Consul{start(tb, "consul", nodes)}
}

// RunConsul is StartConsul for TestMain, which calls the function to remove the cluster.
func RunConsul(nodes int) (*Consul, func(), error) {
	i, stop, err := run("consul", nodes)
	return &Consul{i}, stop, err
}

// Addr is the host:port on which node n serves HTTP.
func (c *Consul) Addr(n int) string { return c.list("COORDSVC_TEST_CONSUL_NODES", n) }

// Token is the management token. Without a token everything is allowed; with it tests make tokens that are not.
func (c *Consul) Token() string { return c.env["COORDSVC_TEST_CONSUL_MANAGEMENT_TOKEN"] }

// Kill ends node n as a crash would (SIGKILL) and returns when it is gone. What it holds on disk stays.
func (c *Consul) Kill(n int) { c.node("kill", n) }

// Start starts node n again, under its address and with what it had on disk, and returns when its HTTP answers; Wait
// waits until it serves.
func (c *Consul) Start(n int) { c.node("start", n) }

// Pause stops node n in its tracks (SIGSTOP): connections stay, nothing is answered.
func (c *Consul) Pause(n int) { c.node("pause", n) }

// Resume lets a paused node go on.
func (c *Consul) Resume(n int) { c.node("resume", n) }

// Leader is the number of the node that leads the others; it fails when there is none.
func (c *Consul) Leader() int {
	out, err := c.services("call", c.name, "leader")
	if err != nil {
		c.fail("%v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		c.fail("the leader of consul is %q, not a number", out)
	}
	return n
}

// Wait returns when every node that was neither killed nor paused answers a consistent read: a leader holds a
// majority. It fails after a minute.
func (c *Consul) Wait() { c.wait() }
