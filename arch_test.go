package coordsvc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/coordsvc/coordsvc"

// rule says which packages of this module one package may import, each with the reason.
type rule struct {
	// imports are allowed everywhere in the package, tests in its tests too.
	imports, tests map[string]string
}

// rules is the import policy: coordination ← service ← adapters ← app ← cmd; adapters never import one another.
// A package without a rule fails the test, and so does a rule that names a package which is gone.
var rules = map[string]rule{
	".":                     {},
	"internal/coordination": {},
	"internal/service": {
		imports: map[string]string{"internal/coordination": "it owns the core"},
		tests:   map[string]string{"internal/standalone": "a real store, elector and bus"},
	},
	"internal/standalone": {
		imports: map[string]string{
			"internal/coordination": "the bus carries its messages",
			"internal/service":      "it implements the ports",
		},
		tests: map[string]string{"internal/conformance": "the suites that every adapter passes"},
	},
	"internal/consulstore": {
		imports: map[string]string{"internal/service": "it implements the store's port"},
		tests: map[string]string{
			"internal/conformance": "the suite that every adapter passes",
			"test/engine":          "a real Consul",
		},
	},
	"internal/webhook": {
		imports: map[string]string{
			"internal/coordination": "its events are the payloads",
			"internal/service":      "the store, the journal's types and the fence",
		},
		tests: map[string]string{"internal/standalone": "a real store and a real elector"},
	},
	"internal/api": {
		imports: map[string]string{
			"internal/api/apigen":   "types and routes, generated",
			"internal/coordination": "the messages it decodes, the sentinels it maps",
			"internal/service":      "what it calls",
		},
		tests: map[string]string{
			"internal/standalone": "a real store, elector and bus",
			"internal/webhook":    "real webhooks",
		},
	},
	"internal/api/apigen": {},
	"internal/conformance": {
		imports: map[string]string{
			"internal/coordination": "the messages that a bus must carry",
			"internal/service":      "the ports that it tests",
		},
	},
	"internal/web": {
		imports: map[string]string{
			"internal/coordination": "the names of statuses and events",
			"internal/service":      "what it shows",
			"internal/web/views":    "how it looks",
			"web/static":            "the files that pages load",
		},
	},
	"internal/web/views": {},
	"internal/telemetry": {},
	"internal/demo":      {},
	"internal/app": {
		imports: map[string]string{
			".":                     "it hands the contract to the API",
			"internal/api":          "it builds the parts, all of them",
			"internal/coordination": "the core's settings",
			"internal/service":      "it builds the parts, all of them",
			"internal/standalone":   "it builds the parts, all of them",
			"internal/telemetry":    "it builds the parts, all of them",
			"internal/web":          "it builds the parts, all of them",
			"internal/webhook":      "it builds the parts, all of them",
		},
	},
	"web/static": {},
	// The end-to-end tests know the program, not its packages.
	"test/e2e": {},
	"test/load": {
		tests: map[string]string{"internal/app": "it measures the whole service"},
	},
	"test/e2e/browser": {},
	// Engines for tests know scripts, not packages.
	"test/engine":   {},
	"test/e2e/tour": {},
	"cmd/coordsvc": {
		imports: map[string]string{
			"internal/app":     "it turns flags, environment and file into app.Options",
			"internal/demo":    "the simulated fleet of `coordsvc demo`",
			"internal/webhook": "the written form of a retry schedule",
		},
	},
}

// impure is barred from the core: it is told the time, keeps no goroutine and does no I/O.
var impure = []string{"context", "sync", "net", "os", "log", "syscall", "math/rand", "runtime", "testing"}

type goPackage struct {
	ImportPath, Dir, Name              string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

// rel is the path inside the module, "." for the root.
func (p goPackage) rel() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-tags", "e2e,integration,load", "-e", "-json", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
}

func TestImportsFollowThePolicy(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	all := packages(t)
	for _, p := range all {
		exists[p.rel()] = true
	}
	for _, p := range all {
		r, ok := rules[p.rel()]
		tested := ours(slices.Concat(p.TestImports, p.XTestImports))
		if !ok {
			t.Errorf("%s has no rule in arch_test.go: say what it may import and why", p.rel())
			continue
		}
		for _, in := range ours(p.Imports) {
			if r.imports[in] == "" {
				t.Errorf("%s imports %s, which its rule does not allow", p.rel(), in)
			}
		}
		for _, in := range tested {
			if in != p.rel() && r.imports[in] == "" && r.tests[in] == "" {
				t.Errorf("the tests of %s import %s, which its rule does not allow", p.rel(), in)
			}
		}
		for in := range r.imports {
			if !slices.Contains(ours(p.Imports), in) {
				t.Errorf("the rule for %s allows %s, which it does not import", p.rel(), in)
			}
		}
		for in := range r.tests {
			if !slices.Contains(tested, in) {
				t.Errorf("the rule for %s allows its tests %s, which they do not import", p.rel(), in)
			}
		}
	}
	for name, r := range rules {
		if !exists[name] {
			t.Errorf("there is a rule for %s, which is gone", name)
		}
		for _, in := range slices.Concat(slices.Collect(maps.Keys(r.imports)), slices.Collect(maps.Keys(r.tests))) {
			if !exists[in] {
				t.Errorf("the rule for %s names %s, which is gone", name, in)
			}
		}
	}
}

// ours are the packages of this module among imports, relative to it, without duplicates.
func ours(imports []string) []string {
	var in []string
	for _, i := range imports {
		if i == module {
			in = append(in, ".")
		} else if s, ok := strings.CutPrefix(i, module+"/"); ok {
			in = append(in, s)
		}
	}
	slices.Sort(in)
	return slices.Compact(in)
}

func TestTheCoreIsPure(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.rel() != "internal/coordination" {
			continue
		}
		for _, in := range p.Imports {
			if strings.Contains(strings.Split(in, "/")[0], ".") {
				t.Errorf("internal/coordination imports %s: standard library only", in)
			}
			for _, bad := range impure {
				if in == bad || strings.HasPrefix(in, bad+"/") {
					t.Errorf("internal/coordination imports %s: the core is told everything it knows", in)
				}
			}
		}
		for _, name := range p.GoFiles {
			eachNode(t, filepath.Join(p.Dir, name), func(pos token.Position, n ast.Node) {
				if _, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s: the core starts no goroutine", pos)
				}
				if f := timeFunction(n); clock[f] {
					t.Errorf("%s: time.%s: the core takes the time as an argument", pos, f)
				}
			})
		}
	}
}

// clock are the functions of package time that read or wait for the clock.
var clock = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"NewTimer": true, "NewTicker": true, "Tick": true,
}

// timeFunction names the function when n is time.Name, else "".
func timeFunction(n ast.Node) string {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "time" {
		return ""
	}
	return sel.Sel.Name
}

func eachNode(t *testing.T, file string, visit func(token.Position, ast.Node)) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if n != nil {
			visit(fset.Position(n.Pos()), n)
		}
		return true
	})
}

// A test that sleeps hopes. In a synctest bubble time.Sleep only moves the fake clock: there it is the way.
func TestNoTestSleepsOutsideABubble(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			file := filepath.Join(p.Dir, name)
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				sleeps, bubble := false, false
				ast.Inspect(d, func(n ast.Node) bool {
					if timeFunction(n) == "Sleep" {
						sleeps = true
					}
					if x, ok := n.(*ast.Ident); ok && x.Name == "synctest" {
						bubble = true
					}
					return true
				})
				if sleeps && !bubble {
					t.Errorf("%s: time.Sleep outside a synctest bubble: wait on a condition", fset.Position(d.Pos()))
				}
			}
		}
	}
}

// Every package says what it is for, what it promises and what it does not do, in the same place.
func TestEveryPackageHasADocFile(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name := "doc.go"
		if len(p.GoFiles) == 1 {
			name = p.GoFiles[0]
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s has no doc.go", p.rel())
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if f.Doc == nil || len(strings.Fields(f.Doc.Text())) < 15 {
			t.Errorf("%s/%s does not say what the package is for", p.rel(), name)
		}
	}
}
