package web

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCoarseAge(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "under a minute"},
		{time.Minute - 1, "under a minute"},
		{time.Minute, "1 min"},
		{time.Hour - 1, "59 min"},
		{time.Hour, "1 h"},
		{48*time.Hour - 1, "47 h"},
		{48 * time.Hour, "2 d"},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, coarseAge(test.d), test.d.String())
	}
}

func TestLengths(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "0 ms"},
		{850 * time.Millisecond, "850 ms"},
		{5200 * time.Millisecond, "5.2 s"},
		{12400 * time.Millisecond, "12 s"},
		{3*time.Minute + 20*time.Second, "3 min 20 s"},
		{time.Hour, "1 h"},
		{26*time.Hour + 5*time.Minute, "26 h 5 min"},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, length(test.d), test.d.String())
	}
	assert.Equal(t, "+1 h", signed(time.Hour))
	assert.Equal(t, "−2.5 s", signed(-2500*time.Millisecond))
}

func TestCounts(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		assert.Equal(t, want, grouped(n))
	}
	assert.Equal(t, "1 orphan", counted(1, "orphan", "orphans"))
	assert.Equal(t, "0 orphans", counted(0, "orphan", "orphans"))
	assert.Equal(t, "a, b and 2 more", some([]string{"a", "b", "c", "d"}, 2))
	assert.Equal(t, "a · b", joined("", "a", "", "b"))
}

func TestClockShowsTheDateUnlessItIsTodays(t *testing.T) {
	assert.Equal(t, "00:00:00", clockOf(now, now.Truncate(24*time.Hour)).Text)
	assert.Equal(t, "13 Mar 23:59", clockOf(now, now.Truncate(24*time.Hour).Add(-1)).Text)
	assert.Equal(t, "14 Mar 12:03", clockOf(now, now.AddDate(-1, 0, 0)).Text)
	elsewhere := now.In(time.FixedZone("", 5*3600))
	assert.Equal(t, "12:03:11", clockOf(now, elsewhere).Text)
}

func TestSparkline(t *testing.T) {
	assert.Nil(t, sparkline(nil, time.Second))
	s := sparkline([]time.Duration{5 * time.Second, 15 * time.Second, 16 * time.Second, time.Hour}, 15*time.Second)
	assert.Equal(t, "M85 18v-4m3 4v-12", s.Path)
	assert.Equal(t, "M91 18v-13m3 13v-18", s.Late, "at the timeout is not late; far beyond it is cut off")
	assert.Equal(t, "6", s.Limit)
	assert.Equal(t, "median 16 s, longest 1 h", s.Label)
	long := sparkline(beats(100, 5*time.Second, 1), 15*time.Second)
	assert.Equal(t, sparkline(beats(100, 5*time.Second, 1)[68:], 15*time.Second).Path, long.Path)
	assert.Equal(t, 31, strings.Count(long.Path, "m"), "32 bars at most")
	assert.Empty(t, sparkline([]time.Duration{0}, 0).Limit)
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{"": false, "gzip": true, "br, GZIP": true, "gzip;q=0": false, "gzip; q=0.0": false, "gzip;q=0.1": true, "gzip;q=x": false, "xgzip": false} {
		assert.Equal(t, want, acceptsGzip(header), header)
	}
}
