package main

import (
	"fmt"
	"io"
	"strings"
)

// streams is what the process was given by its caller.
type streams struct {
	out, err io.Writer
	environ  []string
}

func (s *streams) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...) // a reader that went away is its own fault
}

func (s *streams) getenv(name string) string {
	for _, entry := range s.environ {
		if text, found := strings.CutPrefix(entry, name+"="); found {
			return text
		}
	}
	return ""
}
