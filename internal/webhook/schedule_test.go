package webhook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNextAttemptFollowsTheSchedule(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	schedule := DefaultRetrySchedule()
	for i, wait := range schedule {
		at, again := nextAttempt(now, i+1, schedule, 0, 0)
		require.True(t, again)
		assert.Equal(t, now.Add(wait), at, "without jitter, after %d failures", i+1)
		at, _ = nextAttempt(now, i+1, schedule, 0, 0.999)
		assert.Greater(t, at, now.Add(wait+wait/20))
		assert.Less(t, at, now.Add(wait+wait/10))
	}
	_, again := nextAttempt(now, len(schedule)+1, schedule, 0, 0)
	assert.False(t, again, "the schedule is exhausted")
	_, again = nextAttempt(now, 1, []time.Duration{}, 0, 0)
	assert.False(t, again, "an empty schedule allows one attempt")
}

func TestRetryAfterOnlyLengthensTheWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	schedule := []time.Duration{10 * time.Second}
	for _, c := range []struct{ retryAfter, want time.Duration }{
		{0, 10 * time.Second},
		{time.Second, 10 * time.Second},
		{30 * time.Second, 30 * time.Second},
	} {
		at, again := nextAttempt(now, 1, schedule, c.retryAfter, 0)
		require.True(t, again)
		assert.Equal(t, now.Add(c.want), at, "Retry-After %s", c.retryAfter)
	}
}

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                                0,
		"0":                               0,
		" 120 ":                           2 * time.Minute,
		"3601":                            time.Hour,
		"99999999999999999999":            time.Hour,
		"-5":                              0,
		"1.5":                             0,
		"soon":                            0,
		"Tue, 01 Dec 2026 12:00:30 GMT":   30 * time.Second,
		"Tue, 01 Dec 2026 11:00:00 GMT":   0,
		"Tue, 01 Dec 2099 12:00:00 GMT":   time.Hour,
		"Tuesday, 01-Dec-26 12:01:00 GMT": time.Minute,
	} {
		assert.Equal(t, want, parseRetryAfter(header, now, time.Hour), "Retry-After: %q", header)
	}
}

func TestParseRetrySchedule(t *testing.T) {
	t.Parallel()
	got, err := ParseRetrySchedule("1s, 5s,2m")
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{time.Second, 5 * time.Second, 2 * time.Minute}, got)
	for _, bad := range []string{"", "1s,", "5", "0s", "-1s", "721h", "a"} {
		_, err := ParseRetrySchedule(bad)
		assert.ErrorContains(t, err, "retry schedule", "%q", bad)
	}
}

func TestFailingTooLongAtItsInstant(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	limit := 5 * 24 * time.Hour
	assert.False(t, failingTooLong(since.Add(limit-1), since, limit))
	assert.True(t, failingTooLong(since.Add(limit), since, limit))
	assert.True(t, failingTooLong(since.Add(limit+1), since, limit))
}

func TestEndpointIsDisabledAfterFiveDaysOfFailures(t *testing.T) {
	t.Parallel()
	const fiveDays, quiet = 5 * 24 * time.Hour, 48 * time.Hour
	start := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	type step struct {
		at      time.Duration
		success bool
		enabled bool
	}
	for name, steps := range map[string][]step{
		"failing all the time": {
			{0, false, true},
			{40 * time.Hour, false, true},
			{80 * time.Hour, false, true},
			{fiveDays - 1, false, true},
			{fiveDays, false, false},
		},
		"one success in between": {
			{0, false, true},
			{40 * time.Hour, false, true},
			{80 * time.Hour, true, true},
			{fiveDays, false, true},
			{fiveDays + 40*time.Hour, false, true},
		},
		"two failures long apart": {{0, false, true}, {10 * fiveDays, false, true}},
	} {
		ep := endpoint{ID: "wh_1", Enabled: true}
		for i, s := range steps {
			if s.success {
				ep.succeeded()
			} else {
				ep.failed(start.Add(s.at), fiveDays, quiet)
			}
			assert.Equal(t, s.enabled, ep.Enabled, "%s: step %d", name, i)
		}
		assert.Equal(t, !ep.Enabled, ep.Announce, name)
	}
}

func TestDisabledEventKeepsItsID(t *testing.T) {
	t.Parallel()
	ep := endpoint{ID: "wh_1", URL: "https://u:p@h/x?token=1"} //nolint:gosec // made up
	at := time.Date(2026, 12, 1, 12, 0, 0, 5, time.FixedZone("x", 3600))
	ep.disable(at, reasonGone, true)
	first := ep.disabledEvent(3)
	ep.DisabledAt = at.UTC()
	assert.Equal(t, first.ID, ep.disabledEvent(4).ID, "the next leader raises it under the same id")
	assert.Equal(t, "https://h/x", first.Data.URL)
	ep.disable(at.Add(time.Hour), reasonGone, true)
	assert.NotEqual(t, first.ID, ep.disabledEvent(3).ID)
}
