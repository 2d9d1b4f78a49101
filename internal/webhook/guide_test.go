package webhook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const guide = "../../docs/guides/webhooks.md"

// guideSnippet is the code of one language in the receiver guide.
func guideSnippet(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile(guide)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n```"+language+"\n")
	require.True(t, found, "the guide has no %s", language)
	code, _, _ := strings.Cut(rest, "\n```\n")
	return code
}

// guideCase is a request for a snippet to judge.
type guideCase struct {
	Name    string            `json:"name"`
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	// Body is base64.
	Body string `json:"body"`
	Good bool   `json:"good"`
}

func guideCases(t *testing.T) []guideCase {
	t.Helper()
	newer, older := newSecret(), newSecret()
	body := []byte(`{"id":"evt_1","data":{"subscriptions":["ünïcode <1>"]}}`)
	make1 := func(name, secret string, at time.Time, body []byte, good bool, signers ...string) guideCase {
		signature, err := signAll(signers, "msg_1", at, []byte(`{"id":"evt_1","data":{"subscriptions":["ünïcode <1>"]}}`))
		require.NoError(t, err)
		return guideCase{name, secret, map[string]string{
			"webhook-id": "msg_1", "webhook-timestamp": strconv.FormatInt(at.Unix(), 10), "webhook-signature": signature,
		}, base64.StdEncoding.EncodeToString(body), good}
	}
	now := time.Now()
	bare := make1("no headers", newer, now, body, false, newer)
	bare.Headers = map[string]string{}
	return []guideCase{
		make1("as sent", newer, now, body, true, newer),
		make1("new secret of two", newer, now, body, true, newer, older),
		make1("old secret of two", older, now, body, true, newer, older),
		make1("another secret", newSecret(), now, body, false, newer, older),
		make1("another body", newer, now, append([]byte(" "), body...), false, newer),
		make1("too old", newer, now.Add(-10*time.Minute), body, false, newer),
		make1("too new", newer, now.Add(10*time.Minute), body, false, newer),
		bare,
	}
}

// runGuide writes a program into a directory, feeds it the cases as JSON and compares its verdicts.
func runGuide(t *testing.T, files map[string]string, command ...string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	cases := guideCases(t)
	input, err := json.Marshal(cases) //nolint:gosec // made-up secrets for a snippet to check
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(string(input))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var verdicts []bool
	require.NoError(t, json.Unmarshal(output, &verdicts))
	require.Len(t, verdicts, len(cases))
	for i, c := range cases {
		assert.Equal(t, c.Good, verdicts[i], c.Name)
	}
}

func TestGuideGo(t *testing.T) {
	t.Parallel()
	runGuide(t, map[string]string{
		"go.mod":               "module example\n\ngo 1.26\n",
		"receiver/receiver.go": guideSnippet(t, "go"),
		"main.go": `package main

import (
	"encoding/json"
	"net/http"
	"os"

	"example/receiver"
)

func main() {
	var cases []struct {
		Secret  string
		Headers map[string]string
		Body    []byte
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	verdicts := []bool{}
	for _, c := range cases {
		header := http.Header{}
		for k, v := range c.Headers {
			header.Set(k, v)
		}
		verdicts = append(verdicts, receiver.Verify(c.Secret, header, c.Body) == nil)
	}
	json.NewEncoder(os.Stdout).Encode(verdicts)
}
`,
	}, "go", "run", ".")
}

// The guide names the settings as they are.
func TestGuideNamesTheRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(guide)
	require.NoError(t, err)
	flat := strings.Join(strings.Fields(string(text)), " ")
	for _, rule := range []string{
		"after 1 s, 5 s, 15 s, 30 s, 1 min, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h",
		"within 15 seconds", "at most an hour", "for five days", "of 10,000 pending", "the newest 1,000 finished", "For 24 hours",
		"up to four are under way",
	} {
		assert.Contains(t, flat, rule)
	}
	o := Options{}.withDefaults()
	assert.Equal(t, DefaultRetrySchedule(), o.RetrySchedule)
	assert.Equal(t, []time.Duration{15 * time.Second, time.Hour, 120 * time.Hour, 24 * time.Hour},
		[]time.Duration{o.Timeout, o.RetryAfterLimit, o.DisableAfter, o.SecretOverlap})
	assert.Equal(t, []int{10_000, 1000, 4}, []int{o.QueueLimit, o.LogLimit, o.AttemptsPerEndpoint})
}
