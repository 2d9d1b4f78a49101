package web

import (
	"bytes"
	"regexp"
)

var (
	contentHash = regexp.MustCompile(`\?v=[0-9a-f]{16}`)
	tagStart    = regexp.MustCompile(`><`)
)

// readable is a page for a golden: one element a line, and without the content hashes, which change with
// every edit of a static file.
func readable(page []byte) []byte {
	page = contentHash.ReplaceAll(page, []byte("?v=HASH"))
	return append(bytes.TrimSpace(tagStart.ReplaceAll(page, []byte(">\n<"))), '\n')
}
