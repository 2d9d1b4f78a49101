//go:build integration

package engine_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/test/engine"
)

// ask makes one call to a Consul and answers the status with the body, or 0 when there was no answer in time.
func ask(t *testing.T, method, addr, path, token, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("X-Consul-Token", token)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(answer)
}

func put(t *testing.T, addr, key, value string) {
	t.Helper()
	status, body := ask(t, http.MethodPut, addr, "/v1/kv/"+key, "", value)
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, "true", strings.TrimSpace(body))
}

func requireValue(t *testing.T, addr, key, value string) {
	t.Helper()
	status, body := ask(t, http.MethodGet, addr, "/v1/kv/"+key+"?consistent", "", "")
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, base64.StdEncoding.EncodeToString([]byte(value)))
}

func TestConsulKeepsWhatItCommittedOverKillAndStart(t *testing.T) {
	t.Parallel()
	consul := engine.StartConsul(t, 1)
	addr := consul.Addr(1)
	put(t, addr, "k", "v")
	consul.Kill(1)
	status, why := ask(t, http.MethodGet, addr, "/v1/status/leader", "", "")
	require.Zero(t, status, "a killed node answers")
	require.Contains(t, why, "refused")
	consul.Start(1)
	consul.Wait()
	require.Equal(t, addr, consul.Addr(1))
	requireValue(t, addr, "k", "v")
}

func TestConsulAllowsEverythingButWhatATokenIsDenied(t *testing.T) {
	t.Parallel()
	consul := engine.StartConsul(t, 1)
	addr := consul.Addr(1)
	put(t, addr, "free", "v")
	status, body := ask(t, http.MethodPut, addr, "/v1/acl/policy", consul.Token(),
		`{"Name": "none", "Rules": "key_prefix \"\" { policy = \"deny\" }"}`)
	require.Equal(t, http.StatusOK, status, body)
	const secret = "11111111-2222-4333-8444-555555555555"
	status, body = ask(t, http.MethodPut, addr, "/v1/acl/token", consul.Token(),
		`{"SecretID": "`+secret+`", "Policies": [{"Name": "none"}]}`)
	require.Equal(t, http.StatusOK, status, body)
	status, body = ask(t, http.MethodPut, addr, "/v1/kv/denied", secret, "v")
	require.Equal(t, http.StatusForbidden, status, body)
}

func TestConsulPausedAnswersNothingAndGoesOn(t *testing.T) {
	t.Parallel()
	consul := engine.StartConsul(t, 1)
	put(t, consul.Addr(1), "k", "v")
	consul.Pause(1)
	client := http.Client{Timeout: 300 * time.Millisecond}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+consul.Addr(1)+"/v1/kv/k", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	require.ErrorContains(t, err, "Client.Timeout")
	client.CloseIdleConnections()
	consul.Resume(1)
	consul.Wait()
	requireValue(t, consul.Addr(1), "k", "v")
}

func TestConsulElectsAnotherLeaderAmongThree(t *testing.T) {
	t.Parallel()
	consul := engine.StartConsul(t, 3)
	first := consul.Leader()
	put(t, consul.Addr(1), "k", "v")
	consul.Kill(first)
	consul.Wait()
	second := consul.Leader()
	require.NotEqual(t, first, second)
	requireValue(t, consul.Addr(second), "k", "v")
	put(t, consul.Addr(second), "k", "w")
	consul.Start(first)
	consul.Wait()
	requireValue(t, consul.Addr(first), "k", "w")
}

func TestTwoEnginesOfOneTestAreStrangers(t *testing.T) {
	t.Parallel()
	one, other := engine.StartConsul(t, 1), engine.StartConsul(t, 1)
	put(t, one.Addr(1), "k", "v")
	status, body := ask(t, http.MethodGet, other.Addr(1), "/v1/kv/k", "", "")
	require.Equal(t, http.StatusNotFound, status, body)
	one.Kill(1)
	put(t, other.Addr(1), "k", "v")
}

// connect opens a channel to a broker, closed with the test.
func connect(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	require.NoError(t, err)
	return channel
}

// publish returns when the broker has the message on disk.
func publish(t *testing.T, channel *amqp.Channel, queue, body string) {
	t.Helper()
	require.NoError(t, channel.Confirm(false))
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, true, false,
		amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
	require.NoError(t, err)
	acked, err := confirmation.WaitContext(t.Context())
	require.NoError(t, err)
	require.True(t, acked)
}

func TestRabbitMQKeepsWhatItConfirmedOverKillAndStart(t *testing.T) {
	t.Parallel()
	rabbit := engine.StartRabbitMQ(t, 1)
	url := rabbit.URL(1)
	channel := connect(t, url)
	_, err := channel.QueueDeclare("q", true, false, false, false, nil)
	require.NoError(t, err)
	publish(t, channel, "q", "kept")
	lost := channel.NotifyClose(make(chan *amqp.Error, 1))
	rabbit.Kill(1)
	select {
	case reason := <-lost:
		require.NotNil(t, reason)
	case <-time.After(soon):
		t.Fatal("the client did not notice that the broker was killed")
	}
	rabbit.Start(1)
	rabbit.Wait()
	require.Equal(t, url, rabbit.URL(1))
	message, ok, err := connect(t, url).Get("q", true)
	require.NoError(t, err)
	require.True(t, ok, "the confirmed message is gone")
	require.Equal(t, "kept", string(message.Body))

	out, err := rabbit.Ctl("list_queues", "name", "--no-table-headers")
	require.NoError(t, err)
	require.Equal(t, "q\n", out)
	_, err = rabbit.Ctl("no_such_command")
	require.Error(t, err)

	rabbit.Pause(1)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimSuffix(url[strings.Index(url, "@")+1:], "/"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "AMQP\x00\x00\x09\x01")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(silence)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a paused broker answered")
	rabbit.Resume(1)
	rabbit.Wait()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(soon)))
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
}

func TestRabbitMQGoesOnWithoutOneOfThree(t *testing.T) {
	t.Parallel()
	rabbit := engine.StartRabbitMQ(t, 3)
	channel := connect(t, rabbit.URL(2))
	_, err := channel.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	require.NoError(t, err)
	publish(t, channel, "q", "kept")
	rabbit.Kill(1)
	rabbit.Wait()
	publish(t, channel, "q", "and this")
	rabbit.Start(1)
	rabbit.Wait()
	publish(t, connect(t, rabbit.URL(1)), "q", "and that")
}

// A test process that is killed cannot remove its engines. The process that is run here starts one and is killed; the
// next one that starts an engine must remove what was left.
func TestEnginesOfAKilledTestAreRemovedByTheNext(t *testing.T) {
	if os.Getenv("ENGINE_TEST_CHILD") != "" {
		consul := engine.StartConsul(t, 1)
		_, _ = fmt.Fprintln(os.Stdout, "started", consul.Addr(1))
		select {} // until it is killed
	}
	t.Parallel()
	temp := t.TempDir()
	addr := childStarts(t, temp, func(child *exec.Cmd) { require.NoError(t, child.Process.Kill()) })
	left, err := filepath.Glob(filepath.Join(temp, "coordsvc-engine-*"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	status, body := ask(t, http.MethodGet, addr, "/v1/status/leader", "", "")
	require.Equal(t, http.StatusOK, status, body)

	childStarts(t, temp, func(child *exec.Cmd) {
		require.NoDirExists(t, left[0])
		status, _ := ask(t, http.MethodGet, addr, "/v1/status/leader", "", "")
		require.Zero(t, status, "the engine of the killed test still answers")
		require.NoError(t, child.Process.Kill())
	})
	// Its own is removed by hand, for no other comes after it.
	left, err = filepath.Glob(filepath.Join(temp, "coordsvc-engine-*"))
	require.NoError(t, err)
	for _, dir := range left {
		down := exec.CommandContext(t.Context(), "../../scripts/services", "down")
		down.Env = append(os.Environ(), "TMPDIR="+temp, "SERVICES_DIR="+dir)
		out, err := down.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	left, err = filepath.Glob(filepath.Join(temp, "coordsvc-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// childStarts runs this test in a process of its own until it has started an engine, whose address it answers.
func childStarts(t *testing.T, temp string, then func(*exec.Cmd)) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), "ENGINE_TEST_CHILD=1", "TMPDIR="+temp)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() { _ = child.Wait() }() // it was killed
	var addr string
	_, err = fmt.Fscanf(out, "started %s\n", &addr)
	require.NoError(t, err)
	then(child)
	return addr
}
