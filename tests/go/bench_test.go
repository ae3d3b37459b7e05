// SPDX-License-Identifier: MIT

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// benchFile matches the only files of the extension that may have entry points for benchmarks.
var benchFile = regexp.MustCompile(`^bench\.(go|c|h)$`)

// benchUser matches the Python package that may call them.
var benchUser = regexp.MustCompile(`^python/mori/_bench/`)

// TestBenchmarkEntryPointsHaveTheirOwnFile checks that the extension's other files contain no entry
// point or C function that only benchmarks call.
func TestBenchmarkEntryPointsHaveTheirOwnFile(t *testing.T) {
	product, bench := pythonSources(t)
	dir := filepath.Join(root, "pybind")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		text, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case e.IsDir():
			continue
		case err != nil:
			t.Fatal(err)
		case !benchFile.MatchString(name) && strings.Contains(string(text), "mori_bench"):
			t.Errorf("pybind/%s names mori_bench: only pybind/bench.* may", name)
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, fn := range exported(t, filepath.Join(dir, name), text) {
			called := func(source string) bool { return strings.Contains(source, `"`+fn+`"`) }
			if benchFile.MatchString(name) {
				if !strings.HasPrefix(fn, "Bench") || called(product) || !called(bench) {
					t.Errorf("pybind/%s: %s must be named Bench… and be called by mori._bench alone", name, fn)
				}
			} else if strings.HasPrefix(fn, "Bench") || called(bench) && !called(product) {
				t.Errorf("pybind/%s: only benchmarks call %s: move it to pybind/bench.go", name, fn)
			}
		}
	}
}

// exported returns the names of a file's exported functions.
func exported(t *testing.T, path string, text []byte) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.IsExported() {
			names = append(names, fn.Name.Name)
		}
	}
	return names
}

// pythonSources returns the text of the Python package without benchmarks, and that of benchmarks.
func pythonSources(t *testing.T) (product, bench string) {
	t.Helper()
	var texts [2]strings.Builder
	err := filepath.WalkDir(filepath.Join(root, "python/mori"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".py" {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		at := 0
		if benchUser.MatchString(filepath.ToSlash(rel)) {
			at = 1
		}
		texts[at].Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts[0].String(), texts[1].String()
}
