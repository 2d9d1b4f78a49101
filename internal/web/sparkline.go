package web

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/web/views"
)

// The drawing: at most 32 bars, 3 units each, newest at the right; its height is the timeout, or the longest
// interval when that is longer.
const (
	sparkBars   = 32
	sparkStep   = 3.0
	sparkWidth  = sparkBars * sparkStep
	sparkHeight = 18.0
)

func sparkline(intervals []time.Duration, timeout time.Duration) *views.Spark {
	if len(intervals) == 0 {
		return nil
	}
	intervals = intervals[max(0, len(intervals)-sparkBars):]
	longest := slices.Max(intervals)
	top := max(longest, timeout, time.Millisecond)
	var ok, late strings.Builder
	x := sparkWidth - sparkStep*float64(len(intervals)) + sparkStep/2
	for _, d := range intervals {
		b := &ok
		if timeout > 0 && d > timeout {
			b = &late
		}
		b.WriteString("M" + unit(x) + " 18V" + unit(min(height(d, top), sparkHeight-0.5)))
		x += sparkStep
	}
	s := &views.Spark{Path: ok.String(), Late: late.String(), Width: unit(sparkWidth), Label: sparkText(intervals)}
	if timeout > 0 {
		s.Limit = unit(max(height(timeout, top), 0.5))
	}
	return s
}

// height is where a bar of d ends, from above.
func height(d, top time.Duration) float64 {
	return sparkHeight - sparkHeight*float64(d)/float64(top)
}

// unit rounds to halves: finer is not seen, and costs bytes.
func unit(f float64) string {
	return strconv.FormatFloat(float64(int(f*2+0.5))/2, 'f', -1, 64)
}

func sparkText(intervals []time.Duration) string {
	sorted := slices.Sorted(slices.Values(intervals))
	return "median " + length(sorted[len(sorted)/2]) + ", longest " + length(sorted[len(sorted)-1])
}
