package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	excerptBytes = 1024
	// drainBytes of an answer are read so that its connection can be used again; bodyPatience bounds the time for it:
	// the status line has decided already, a dribbling body must not hold the slot.
	drainBytes       = 64 << 10
	bodyPatience     = time.Second
	maxErrorBytes    = 512
	maxAnswerHeaders = 64 << 10
)

// errCut ends attempts when stopping or when the term is lost: they were not made.
var errCut = errors.New("attempt cut off")

// client makes attempts. Its connections are shared by all endpoints.
type client struct {
	http      *http.Client
	timeout   time.Duration
	limit     time.Duration
	userAgent string
	now       func() time.Time
}

func newClient(o *Options, g guard) *client {
	dialer := &net.Dialer{Timeout: o.Timeout, KeepAlive: 30 * time.Second, Control: g.control}
	settings := o.TLS.Clone()
	if settings == nil {
		settings = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	settings.MinVersion = max(settings.MinVersion, tls.VersionTLS12)
	transport := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        settings,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    o.AttemptsPerEndpoint,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    o.Timeout,
		MaxResponseHeaderBytes: maxAnswerHeaders,
	}
	if o.Proxy != nil {
		transport.Proxy = http.ProxyURL(o.Proxy)
	}
	return &client{
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		timeout:   o.Timeout,
		limit:     o.RetryAfterLimit,
		userAgent: o.UserAgent,
		now:       o.Now,
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// send makes one attempt. It answers errCut when ctx was cut, and no other error: a failure is in the attempt.
func (c *client) send(ctx context.Context, ep *endpoint, d *delivery) (attempt, verdict, error) {
	started, at := time.Now(), c.now()
	answer, v, err := c.exchange(ctx, ep, d, at)
	if errors.Is(context.Cause(ctx), errCut) && answer.Status == 0 {
		return attempt{}, verdict{outcome: OutcomeCut}, errCut
	}
	answer.At = at
	answer.Duration = time.Since(started)
	if err != nil {
		answer.Error = escape(errorText(err), maxErrorBytes)
	}
	return answer, v, nil
}

func (c *client) exchange(ctx context.Context, ep *endpoint, d *delivery, at time.Time) (attempt, verdict, error) {
	failed := verdict{outcome: OutcomeError}
	timeout := fmt.Errorf("no answer within %s", c.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, timeout)
	defer cancel()
	req, err := c.request(ctx, ep, d, at)
	if err != nil {
		return attempt{}, failed, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return attempt{}, verdict{outcome: failureOutcome(ctx, err)}, cause(ctx, err, timeout)
	}
	defer resp.Body.Close()
	patience := time.AfterFunc(bodyPatience, cancel)
	defer patience.Stop()
	a := attempt{Status: resp.StatusCode, Response: excerpt(resp.Body)}
	v := c.judge(resp, at)
	a.RetryAfter = v.retryAfter
	if !v.success {
		return a, v, fmt.Errorf("the receiver answered %d%s", resp.StatusCode, hint(resp.StatusCode))
	}
	return a, v, nil
}

func (c *client) request(ctx context.Context, ep *endpoint, d *delivery, at time.Time) (*http.Request, error) {
	signature, err := signAll(ep.secrets(at), d.ID, at, d.Event)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ep.URL, bytes.NewReader(d.Event))
	if err != nil {
		return nil, fmt.Errorf("build request: %w", err)
	}
	req.Header.Set("User-Agent", c.userAgent)
	for name, value := range ep.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", d.ID)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
	return req, nil
}

func (c *client) judge(resp *http.Response, at time.Time) verdict {
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return verdict{outcome: OutcomeSuccess, success: true}
	case code == http.StatusGone:
		return verdict{outcome: OutcomeStatus, gone: true}
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		return verdict{outcome: OutcomeStatus, retryAfter: parseRetryAfter(resp.Header.Get("Retry-After"), at, c.limit)}
	}
	return verdict{outcome: OutcomeStatus}
}

func hint(status int) string {
	if status >= 300 && status < 400 {
		return "; redirects are not followed"
	}
	return ""
}

func failureOutcome(ctx context.Context, err error) Outcome {
	var refused *refusedError
	var network net.Error
	switch {
	case errors.As(err, &refused):
		return OutcomeRefused
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return OutcomeTimeout
	}
	return OutcomeError
}

// cause says "no answer within 15s" rather than "context deadline exceeded".
func cause(ctx context.Context, err, timeout error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return timeout
	}
	return err
}

// errorText leaves out the URL that net/http puts in front: it may carry credentials.
func errorText(err error) string {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err.Error()
	}
	return err.Error()
}

// excerpt reads the first kilobyte of an answer, and some of the rest.
func excerpt(body io.Reader) string {
	head, err := io.ReadAll(io.LimitReader(body, excerptBytes))
	if err == nil {
		_, _ = io.CopyN(io.Discard, body, drainBytes) // only for the connection's sake
	}
	return escape(string(head), excerptBytes)
}

// escape makes a receiver's text harmless to show: control, format and invalid characters become escapes. A rune that
// the cut at most bytes splits is dropped.
func escape(s string, most int) string {
	s = cutText(s, most)
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func cutText(s string, most int) string {
	if len(s) < most {
		return s
	}
	s = s[:most]
	for back := 1; back < utf8.UTFMax && back <= len(s); back++ {
		if tail := s[len(s)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				return s[:len(s)-back]
			}
			break
		}
	}
	return s
}
