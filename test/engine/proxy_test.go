package engine_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/test/engine"
)

// silence is how long nothing must arrive for a way to count as cut; soon is more than anything here takes.
const (
	silence = 150 * time.Millisecond
	soon    = 10 * time.Second
)

// echo answers every byte and the end of what it gets.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: soon}).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// say sends a line; hear reads one, within the time.
func say(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	_, err := io.WriteString(conn, line+"\n")
	require.NoError(t, err)
}

func hear(conn net.Conn, within time.Duration) (string, error) {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func requireEcho(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	say(t, conn, line)
	got, err := hear(conn, soon)
	require.NoError(t, err)
	require.Equal(t, line, got)
}

func TestProxyPassesAllBytesAndTheEndOfEitherSide(t *testing.T) {
	t.Parallel()
	conn := dial(t, engine.NewProxy(t, echo(t)).Addr())
	sent := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB, more than the buffers between hold
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		tcp, _ := conn.(*net.TCPConn)
		wrote <- errors.Join(err, tcp.CloseWrite())
	}()
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	require.True(t, bytes.Equal(sent, got), "%d bytes came back of %d", len(got), len(sent))
}

func TestCutPassesNothingAndEndsNothing(t *testing.T) {
	t.Parallel()
	proxy := engine.NewProxy(t, echo(t))
	old := dial(t, proxy.Addr())
	requireEcho(t, old, "before")
	proxy.Cut()
	say(t, old, "held")
	_, err := hear(old, silence)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "neither data nor an end may come through")

	young := dial(t, proxy.Addr())
	say(t, young, "held, too")
	_, err = hear(young, silence)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	proxy.Restore()
	for conn, want := range map[net.Conn]string{old: "held", young: "held, too"} {
		got, err := hear(conn, soon)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestCutHidesThatTheTargetEnded(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	proxy := engine.NewProxy(t, listener.Addr().String())
	conn := dial(t, proxy.Addr())
	server, err := listener.Accept()
	require.NoError(t, err)
	proxy.Cut()
	require.NoError(t, server.Close())
	_, err = hear(conn, silence)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	proxy.Restore()
	_, err = hear(conn, soon)
	require.ErrorIs(t, err, io.EOF)
}

func TestResetEndsOpenConnectionsAndTakesNewOnes(t *testing.T) {
	t.Parallel()
	proxy := engine.NewProxy(t, echo(t))
	conn := dial(t, proxy.Addr())
	requireEcho(t, conn, "before")
	proxy.Reset()
	_, err := hear(conn, soon)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	requireEcho(t, dial(t, proxy.Addr()), "after")
}

func TestResetReachesConnectionsThatACutHolds(t *testing.T) {
	t.Parallel()
	proxy := engine.NewProxy(t, echo(t))
	conn := dial(t, proxy.Addr())
	requireEcho(t, conn, "before")
	proxy.Cut()
	say(t, conn, "held")
	proxy.Reset()
	_, err := hear(conn, soon)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestRefuseRefusesUntilRestoreUnderTheSameAddress(t *testing.T) {
	t.Parallel()
	proxy := engine.NewProxy(t, echo(t))
	conn := dial(t, proxy.Addr())
	requireEcho(t, conn, "before")
	for range 3 {
		proxy.Refuse()
		_, err := hear(conn, soon)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = (&net.Dialer{Timeout: soon}).DialContext(t.Context(), "tcp", proxy.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		proxy.Restore()
		conn = dial(t, proxy.Addr())
		requireEcho(t, conn, "after")
	}
}

func TestATargetThatIsAwayIsABrokenConnection(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	conn, err := (&net.Dialer{Timeout: soon}).DialContext(t.Context(), "tcp", engine.NewProxy(t, listener.Addr().String()).Addr())
	if err == nil { // the reset may come before the client has noticed that it is connected
		t.Cleanup(func() { _ = conn.Close() })
		_, err = hear(conn, soon)
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}
