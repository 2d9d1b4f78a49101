package web

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/web/views"
)

const rfc3339Milli = "2006-01-02T15:04:05.000Z07:00"

func instant(t time.Time, text string) views.Instant {
	return views.Instant{RFC3339: t.UTC().Format(rfc3339Milli), Text: text}
}

// ageOf is an instant whose text is its age, so coarse that it seldom changes while nothing else does.
func ageOf(now, t time.Time) views.Instant { return instant(t, coarseAge(now.Sub(t))) }

func coarseAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "under a minute"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + " d"
}

// clockOf is an instant whose text is the time of day in UTC, with the date unless it is today's.
func clockOf(now, t time.Time) views.Instant {
	n, u := now.UTC(), t.UTC()
	if n.YearDay() == u.YearDay() && n.Year() == u.Year() {
		return instant(t, u.Format("15:04:05"))
	}
	return instant(t, u.Format("2 Jan 15:04"))
}

func optional(i views.Instant, t time.Time) *views.Instant {
	if t.IsZero() {
		return nil
	}
	return &i
}

// length is a duration for people: "850 ms", "5.2 s", "12 s", "3 min 20 s", "1 h 5 min".
func length(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(math.Round(d.Seconds()))) + " s"
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s")
	}
	return two(d, time.Hour, "h", time.Minute, "min")
}

func two(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	t := strconv.FormatInt(int64(d/big), 10) + " " + bigName
	if rest := d % big / small; rest > 0 {
		t += " " + strconv.FormatInt(int64(rest), 10) + " " + smallName
	}
	return t
}

func signed(d time.Duration) string {
	if d < 0 {
		return "−" + length(-d)
	}
	return "+" + length(d)
}

// grouped is a count with thousands separators.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// some joins the first names and counts the rest.
func some(names []string, limit int) string {
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:limit], ", ") + " and " + strconv.Itoa(len(names)-limit) + " more"
}

// elementID is a stable id for what the parts name, whatever characters they hold.
func elementID(prefix string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return prefix + "-" + hex.EncodeToString(sum[:6])
}
