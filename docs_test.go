package coordsvc_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	fence    = regexp.MustCompile("(?s)(?m:^) *```.*?\n *```(?m:$)")
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	link     = regexp.MustCompile(`!?\[[^\]]*\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	// A code span is a path when it starts in one of these rooms, or is a bare name of a kind of file we write.
	room     = regexp.MustCompile(`^(cmd|internal|web|test|docs|scripts|\.ci)(/[\w.*{}-]+)+/?$`)
	fileName = regexp.MustCompile(`^[\w.-]+\.(go|md|yaml|yml|templ|mod|sum)$`)
)

// documents are the markdown files of the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	root := os.DirFS(".")
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (p == "bin" || d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if filepath.Ext(p) != ".md" {
			return nil
		}
		raw, err := fs.ReadFile(root, p)
		docs[p] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if docs["README.md"] == "" {
		t.Fatal("no README.md among the documents")
	}
	return docs
}

func TestPathsNamedInDocumentsExist(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		names[filepath.Base(p)] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for doc, text := range documents(t) {
		for _, m := range codeSpan.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			span := m[1]
			switch {
			case room.MatchString(span):
				found, err := filepath.Glob(strings.TrimSuffix(span, "/"))
				if err != nil || len(found) == 0 {
					t.Errorf("%s names `%s`, which does not exist", doc, span)
				}
			case fileName.MatchString(span):
				if !names[span] {
					t.Errorf("%s names `%s`; no file of the repository is called that", doc, span)
				}
			default:
				continue
			}
			checked++
		}
	}
	if checked == 0 {
		t.Fatal("no path found in any document: the pattern is broken")
	}
}

func TestLinksInDocumentsResolve(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	for doc, text := range docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := doc
			if target != "" {
				to = filepath.Join(filepath.Dir(doc), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(docs[to]), anchor) {
				t.Errorf("%s links to %s; there is no such heading", doc, m[1])
			}
		}
	}
}

// anchors are the headings as links name them: lower case, hyphens for spaces, punctuation gone.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return all
}

// The README's commands are targets of the Makefile, and every target that a document names exists.
func TestMakeTargetsNamedInDocumentsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile("(?m)(?:`|^\\s*)make ([a-z0-9][a-z0-9-]*)")
	for doc, text := range documents(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s names `make %s`; the Makefile has no such target", doc, m[1])
			}
		}
	}
}

// A promise is worth its test: whatever test a document names exists.
func TestTestsNamedInDocumentsExist(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	root := os.DirFS(".")
	err := fs.WalkDir(root, ".", func(p string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		raw, err := fs.ReadFile(root, p)
		sources.Write(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)`")
	for doc, text := range documents(t) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(sources.String(), "\nfunc "+m[1]+"(") {
				t.Errorf("%s names %s; there is no such test", doc, m[1])
			}
		}
	}
}

// Every library that the program or its tests import stands in the table of docs/architecture.md, in the version of go.mod.
func TestEveryLibraryIsAccountedFor(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Path}} {{.Version}}", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		versions[name] = version
	}
	imported := map[string]bool{}
	for _, p := range packages(t) {
		for _, in := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if name := moduleOf(in, versions); name != "" && name != module {
				imported[name] = true
			}
		}
	}
	for name := range imported {
		if !strings.Contains(string(table), "\n| `"+name+"` | "+versions[name]+" |") {
			t.Errorf("docs/architecture.md: the table has no row for `%s` | %s", name, versions[name])
		}
	}
	required, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ ]+) ").FindAllStringSubmatch(string(table), -1) {
		if !strings.Contains(string(required), "\t"+row[1]+" "+row[2]) {
			t.Errorf("docs/architecture.md: the table has a row for `%s` | %s, which go.mod does not require", row[1], row[2])
		}
	}
}

// Every family of records in the store stands in the architecture, with who may write it.
func TestEveryRecordFamilyIsDescribed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("internal/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	families := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*(?:family|key)\w+ += "([a-z]+/)"`).FindAllStringSubmatch(string(source), -1) {
			families++
			if !strings.Contains(string(text), "\n| `"+m[1]+"` |") {
				t.Errorf("%s: docs/architecture.md does not describe the records under %s", file, m[1])
			}
		}
	}
	if families < 10 {
		t.Fatalf("found %d families: the pattern is broken", families)
	}
}

// moduleOf is the module that holds an imported package: the longest one of its prefixes; "" for the standard library.
func moduleOf(in string, versions map[string]string) string {
	for ; in != "." && in != "/"; in = path.Dir(in) {
		if _, ok := versions[in]; ok {
			return in
		}
	}
	return ""
}
