package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// The log formats.
const (
	LogFormatText = "text"
	LogFormatJSON = "json"
)

// NewLogger writes records of at least level to w. Times are UTC, so that the logs of several machines sort.
func NewLogger(w io.Writer, format string, level slog.Leveler) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: utcTime}
	switch format {
	case LogFormatText:
		return slog.New(slog.NewTextHandler(w, options)), nil
	case LogFormatJSON:
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q is unknown, use %q or %q", format, LogFormatText, LogFormatJSON)
}

func utcTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.Time(a.Key, a.Value.Time().UTC())
	}
	return a
}
