package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Proxy passes TCP connections on to one target and breaks the way to it on request. A new one passes everything.
type Proxy struct {
	target, addr string
	pairs        sync.WaitGroup

	mu sync.Mutex
	// changed is signalled when cut or a pair's end changes.
	changed   *sync.Cond
	cut       bool
	listener  net.Listener
	accepting chan struct{}
	open      map[*pair]bool
}

// NewProxy listens on a loopback port of its own until the test ends, when it resets what is still open.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{target: target, open: map[*pair]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.mu.Lock()
	err := p.listen()
	p.mu.Unlock()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Refuse()
		p.pairs.Wait()
	})
	return p
}

// Addr is the host:port to connect to instead of the target's.
func (p *Proxy) Addr() string { return p.addr }

// Cut turns the way into a black hole, as a cable that was pulled: connections stay, new ones are accepted, and nothing
// passes in either direction, neither data nor the end of a connection. What was read before may still arrive.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
}

// Reset ends all connections with RST at both ends. New ones are treated as before.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetAll()
}

// Refuse ends all connections with RST and refuses new ones, as a machine without the server does.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	listener, accepting := p.listener, p.accepting
	p.listener = nil
	p.mu.Unlock()
	if listener == nil {
		return
	}
	_ = listener.Close() // it is closed either way
	<-accepting
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetAll()
}

// Restore lets everything pass again. After Cut, what was held arrives late, as it would by retransmission.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	p.changed.Broadcast()
	if p.listener != nil {
		return
	}
	if err := p.listen(); err != nil {
		panic(err)
	}
}

// Ports of proxies lie between those of scripts/services and those that the system gives to outgoing connections, so
// that a port that is refused is still free when it is wanted back.
const firstPort, portCount = 30000, 2700

func (p *Proxy) listen() error {
	var config net.ListenConfig
	for range 200 {
		addr := p.addr
		if addr == "" {
			addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(portCount))) //nolint:gosec // a port is no secret
		}
		listener, err := config.Listen(context.Background(), "tcp", addr)
		if err == nil {
			p.addr, p.listener, p.accepting = addr, listener, make(chan struct{})
			go p.accept(listener, p.accepting)
			return nil
		}
		if p.addr != "" || !errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("the proxy to %s cannot listen: %w", p.target, err)
		}
	}
	return fmt.Errorf("the proxy to %s found no free port", p.target)
}

func (p *Proxy) accept(listener net.Listener, done chan<- struct{}) {
	defer close(done)
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a client that went away before it was accepted
		}
		ends := &pair{client: client}
		p.mu.Lock()
		p.open[ends] = true
		p.mu.Unlock()
		p.pairs.Go(func() { p.serve(ends) })
	}
}

func (p *Proxy) resetAll() {
	for ends := range p.open {
		ends.reset()
		delete(p.open, ends)
	}
	p.changed.Broadcast()
}

// passes waits while the way is cut; false means that the connection was reset meanwhile.
func (p *Proxy) passes(ends *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cut && p.open[ends] {
		p.changed.Wait()
	}
	return p.open[ends]
}

func (p *Proxy) serve(ends *pair) {
	orderly := p.connect(ends) && p.exchange(ends)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, ends)
	if orderly {
		ends.close()
	} else {
		ends.reset()
	}
}

// connect dials the target once the way is not cut.
func (p *Proxy) connect(ends *pair) bool {
	if !p.passes(ends) {
		return false
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	server, err := dialer.DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ends.server = server
	return p.open[ends]
}

// exchange forwards both ways until both have ended, and reports whether they ended in order.
func (p *Proxy) exchange(ends *pair) bool {
	var back sync.WaitGroup
	var backOrderly bool
	back.Go(func() { backOrderly = p.forward(ends, ends.server, ends.client) })
	orderly := p.forward(ends, ends.client, ends.server)
	back.Wait()
	return orderly && backOrderly
}

// forward copies one way until its end and passes the end on; when the way breaks, so does the way back.
func (p *Proxy) forward(ends *pair, from, to net.Conn) (orderly bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.passes(ends) {
			return false
		}
		if n > 0 {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		switch tcp, ok := to.(*net.TCPConn); {
		case err == nil:
		case ok && errors.Is(err, io.EOF):
			return tcp.CloseWrite() == nil
		default:
			p.breakOff(ends)
			return false
		}
	}
}

func (p *Proxy) breakOff(ends *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ends.reset()
}

// pair is a connection from a client and the one to the target that continues it; server is nil until it is dialled.
type pair struct{ client, server net.Conn }

func (e *pair) close() {
	for _, conn := range []net.Conn{e.client, e.server} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// reset ends both sides with RST.
func (e *pair) reset() {
	for _, conn := range []net.Conn{e.client, e.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	e.close()
}
