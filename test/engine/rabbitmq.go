package engine

import "testing"

// RabbitMQ is a cluster of RabbitMQ brokers. Nodes are counted from 1.
type RabbitMQ struct{ *instance }

// StartRabbitMQ starts a cluster of one or three nodes, which serves, and removes it when the test ends. Three nodes
// take twenty seconds.
func StartRabbitMQ(tb testing.TB, nodes int) *RabbitMQ {
	tb.Helper()
	return &RabbitMQ{start(tb, "rabbitmq", nodes)}
}

// RunRabbitMQ is StartRabbitMQ for TestMain, which calls the function to remove the cluster.
func RunRabbitMQ(nodes int) (*RabbitMQ, func(), error) {
	i, stop, err := run("rabbitmq", nodes)
	return &RabbitMQ{i}, stop, err
}

// URL is the amqp:// URL of node n, with the credentials of an administrator.
func (r *RabbitMQ) URL(n int) string { return r.list("COORDSVC_AMQP_URL", n) }

// Kill ends node n as a crash would (SIGKILL) and returns when it is gone. What it holds on disk stays.
func (r *RabbitMQ) Kill(n int) { r.node("kill", n) }

// Start starts node n again, under its address and with what it had on disk. It serves some seconds later: see Wait.
func (r *RabbitMQ) Start(n int) { r.node("start", n) }

// Pause stops node n in its tracks (SIGSTOP): connections stay, nothing is answered.
func (r *RabbitMQ) Pause(n int) { r.node("pause", n) }

// Resume lets a paused node go on.
func (r *RabbitMQ) Resume(n int) { r.node("resume", n) }

// Wait returns when every node that was neither killed nor paused accepts clients. It fails after a minute and a half.
func (r *RabbitMQ) Wait() { r.wait() }

// Ctl runs rabbitmqctl on the first node that runs and answers what it printed; a call takes about a second.
func (r *RabbitMQ) Ctl(args ...string) (string, error) {
	return r.services(append([]string{"call", r.name, "ctl"}, args...)...)
}
