package web

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/web/views"
)

// The drawing: at most 32 bars, 3 units each, newest at the right. Its height is the timeout; an interval beyond it
// makes room for itself, up to half as much again, so that one long silence does not flatten all others.
const (
	sparkBars   = 32
	sparkStep   = 3
	sparkWidth  = sparkBars * sparkStep
	sparkHeight = 18
)

func sparkline(intervals []time.Duration, timeout time.Duration) *views.Spark {
	if len(intervals) == 0 {
		return nil
	}
	intervals = intervals[max(0, len(intervals)-sparkBars):]
	top := max(slices.Max(intervals), timeout, time.Millisecond)
	if timeout > 0 {
		top = min(top, timeout+timeout/2)
	}
	var ok, late bars
	x := sparkWidth - sparkStep*len(intervals) + 1
	for _, d := range intervals {
		if timeout > 0 && d > timeout {
			late.add(x, height(d, top))
		} else {
			ok.add(x, height(d, top))
		}
		x += sparkStep
	}
	s := &views.Spark{Path: ok.path.String(), Late: late.path.String(), Width: strconv.Itoa(sparkWidth), Label: sparkText(intervals)}
	if timeout > 0 {
		s.Limit = strconv.FormatFloat(max(0.5, float64(sparkHeight-height(timeout, top))), 'f', -1, 64)
	}
	return s
}

// height is a bar's, in whole units: finer is not seen, and costs bytes in every row.
func height(d, top time.Duration) int {
	h := int(math.Round(sparkHeight * float64(d) / float64(top)))
	return min(max(h, 1), sparkHeight)
}

// bars is a path of vertical strokes, written relative to the last one.
type bars struct {
	path    strings.Builder
	x, tall int
}

func (b *bars) add(x, h int) {
	if b.path.Len() == 0 {
		b.path.WriteString("M" + strconv.Itoa(x) + " " + strconv.Itoa(sparkHeight))
	} else {
		b.path.WriteString("m" + strconv.Itoa(x-b.x) + " " + strconv.Itoa(b.tall))
	}
	b.path.WriteString("v-" + strconv.Itoa(h))
	b.x, b.tall = x, h
}

func sparkText(intervals []time.Duration) string {
	sorted := slices.Sorted(slices.Values(intervals))
	return "median " + length(sorted[len(sorted)/2]) + ", longest " + length(sorted[len(sorted)-1])
}
