package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// jitterShare is the largest share of a wait that jitter adds: enough to spread a herd, never earlier than promised.
const jitterShare = 0.1

// nextAttempt says when to try again after failed attempts of the current series have been made, or that the schedule is
// exhausted. A receiver's Retry-After can only make the wait longer: a load balancer's constant "Retry-After: 1" must
// not use the whole schedule up in seconds.
func nextAttempt(now time.Time, failed int, schedule []time.Duration, retryAfter time.Duration, random float64) (time.Time, bool) {
	if failed < 1 || failed > len(schedule) {
		return time.Time{}, false
	}
	wait := max(schedule[failed-1], retryAfter) //nolint:gosec // the index is checked above
	return now.Add(wait + time.Duration(random*jitterShare*float64(wait))), true
}

// parseRetryAfter reads the header's two forms, seconds and HTTP date, and caps the wait; 0 when there is none.
func parseRetryAfter(header string, now time.Time, limit time.Duration) time.Duration {
	header = strings.TrimSpace(header)
	if header == "" {
		return 0
	}
	if isDigits(header) {
		seconds, err := strconv.ParseInt(header, 10, 64)
		if err != nil || seconds > int64(limit/time.Second) {
			return limit
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), limit)
}

func isDigits(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return s != ""
}
