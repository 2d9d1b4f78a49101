//go:build load

package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const connections = 64

// requests are n heartbeats of different peers, as bytes on the wire: making them must cost the run nothing.
func requests(address string, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		body := fmt.Sprintf(`{"instance_id":"worker-%05d","group":"orders","subscriptions":["order-projection","inventory-sync","billing-export"],`+
			`"timestamp":"2026-07-27T12:00:00.123456+00:00","in_flight_count":5,"is_leader":false,"load_factor":0.75}`, i)
		all[i] = fmt.Appendf(nil, "POST /v1/heartbeats HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			address, len(body), body)
	}
	return all
}

// generate sends requests over keep-alive connections, one after another on each, for a while, and returns how many a
// second were answered with 200. It is as light as can be: it shares the processors with what it measures.
func generate(ctx context.Context, address string, all [][]byte, during time.Duration) (float64, error) {
	g, ctx := errgroup.WithContext(ctx)
	var answered atomic.Int64
	began := time.Now()
	end := began.Add(during)
	for c := range connections {
		g.Go(func() error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			answers := bufio.NewReaderSize(conn, 4096)
			n := int64(0)
			for i := c; time.Now().Before(end); i += connections {
				if _, err := conn.Write(all[i%len(all)]); err != nil {
					return err
				}
				if err := readAnswer(answers); err != nil {
					return err
				}
				n++
			}
			answered.Add(n)
			return conn.Close()
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return float64(answered.Load()) / time.Since(began).Seconds(), nil
}

// readAnswer reads one answer of known length and wants it to be a 200.
func readAnswer(r *bufio.Reader) error {
	status, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("answer: %s", bytes.TrimSpace(status))
	}
	length := -1
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		if name, value, _ := bytes.Cut(line, []byte(": ")); bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return io.ErrUnexpectedEOF
	}
	_, err = r.Discard(length)
	return err
}
