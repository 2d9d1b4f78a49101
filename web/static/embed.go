// Package static embeds the dashboard's files, so that the binary needs nothing beside it.
//
// htmx (2.0.11) and its morphing extension idiomorph (0.8.0) are vendored unchanged, with their licences
// (Zero-Clause BSD). Everything else here is this project's own.
package static

import "embed"

// Files holds every file by its name.
//
//go:embed *.css *.js *.svg *.txt
var files embed.FS

// Files returns the embedded files by name.
func Files() embed.FS { return files }
