package web

import (
	"math"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/web/static"
)

// Text needs 4.5:1 on what it stands on, marks and borders of controls 3:1 (WCAG 2.2 AA), in both themes.
func TestColoursHaveEnoughContrastInBothThemes(t *testing.T) {
	css, err := static.Files().ReadFile("app.css")
	require.NoError(t, err)
	colours := map[string][2]string{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`).FindAllStringSubmatch(string(css), -1) {
		colours[m[1]] = [2]string{m[2], m[3]}
	}
	pairs := []struct {
		text, on string
		least    float64
	}{
		{"line-strong", "surface", 3},
		{"line-strong", "paper", 3},
	}
	for _, on := range []string{"paper", "surface", "sunken"} {
		for _, text := range []string{"ink", "dim", "accent", "healthy", "draining", "stale", "terminated", "unknown", "alarm"} {
			pairs = append(pairs, struct {
				text, on string
				least    float64
			}{text, on, 4.5})
		}
	}
	for text, on := range map[string]string{"healthy": "healthy-bg", "draining": "draining-bg", "stale": "stale-bg", "dim": "quiet-bg", "alarm": "alarm-bg"} {
		for _, text := range []string{text, "ink"} {
			pairs = append(pairs, struct {
				text, on string
				least    float64
			}{text, on, 4.5})
		}
	}
	for _, p := range pairs {
		require.Contains(t, colours, p.text)
		require.Contains(t, colours, p.on)
		for theme := range 2 {
			got := contrast(t, colours[p.text][theme], colours[p.on][theme])
			assert.GreaterOrEqual(t, got, p.least, "%s on %s, theme %d", p.text, p.on, theme)
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex[1:], 16, 32)
	require.NoError(t, err)
	channel := func(shift int) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(16) + 0.7152*channel(8) + 0.0722*channel(0)
}
