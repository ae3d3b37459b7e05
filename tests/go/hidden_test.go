// SPDX-License-Identifier: MIT

package repo

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// noRace is what says in a package whether the race detector is there.
var noRace = []string{"raceEnabled", "raceBuild"}

// TestHiddenTestsAreInTheMakefile: what the race detector hides runs without it, too, by the names in the Makefile. That is each test whose
// file is not of a build with the detector, or that reads one of noRace, itself or by functions of its package; or a case of a suite that does.
func TestHiddenTestsAreInTheMakefile(t *testing.T) {
	tests, cases, packages := hiddenByMakefile(t)
	found := 0
	for dir, files := range testFiles(t) {
		if slices.Contains(packages, "./"+dir) {
			continue
		}
		for _, name := range hiddenTests(files) {
			if found++; !tests.MatchString(name) && (strings.HasPrefix(name, "Test") || !cases.MatchString(name)) {
				t.Errorf("%s: %q is another with the race detector, and HIDDEN in the Makefile does not match it", dir, name)
			}
		}
	}
	for _, f := range goFiles(t) {
		if !strings.HasSuffix(f.path, "_test.go") && !strings.HasSuffix(f.dir, "test") && withoutRace(f.ast) && !slices.Contains(packages, "./"+f.dir) {
			t.Errorf("%s is not there with the race detector: HIDDEN_PACKAGES in the Makefile wants ./%s", f.path, f.dir)
		}
	}
	if found == 0 {
		t.Error("the race detector hides nothing: nobody reads any more what noRace names")
	}
}

// hiddenByMakefile is what make test-hidden runs: tests, cases of suites, and packages.
func hiddenByMakefile(t *testing.T) (tests, cases *regexp.Regexp, packages []string) {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	variable := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindSubmatch(makefile)
		if found == nil {
			t.Fatalf("the Makefile has no %s", name)
		}
		return string(found[1])
	}
	var whole, parts []string
	for _, way := range strings.Split(variable("HIDDEN"), "|") {
		if slash := strings.LastIndex(way, "/"); slash >= 0 {
			parts = append(parts, way[slash+1:])
		} else {
			whole = append(whole, way)
		}
	}
	return regexp.MustCompile(strings.Join(whole, "|")), regexp.MustCompile(strings.Join(parts, "|")), strings.Fields(variable("HIDDEN_PACKAGES"))
}

// testFiles parses what tests are made of, by folder: test files, and all files of packages that are for tests.
func testFiles(t *testing.T) map[string][]*ast.File {
	t.Helper()
	byDir := map[string][]*ast.File{}
	for _, f := range goFiles(t) {
		if !strings.HasSuffix(f.path, "_test.go") && !strings.HasSuffix(f.dir, "test") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f.path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		byDir[f.dir] = append(byDir[f.dir], parsed)
	}
	return byDir
}

// hiddenTests are the tests and cases of one folder that are others with the race detector.
func hiddenTests(files []*ast.File) (names []string) {
	hidden := slices.Clone(noRace)
	grows := func(d *ast.FuncDecl) bool {
		return d.Body != nil && !slices.Contains(hidden, d.Name.Name) && mentions(d.Body, hidden)
	}
	for grew := true; grew; {
		grew = false
		for _, d := range functions(files) {
			if grows(d) {
				hidden, grew = append(hidden, d.Name.Name), true
			}
		}
	}
	for _, f := range files {
		without := withoutRace(f)
		for _, d := range functions([]*ast.File{f}) {
			if name := d.Name.Name; strings.HasPrefix(name, "Test") && name != "TestMain" && d.Recv == nil && (without || slices.Contains(hidden, name)) {
				names = append(names, name)
			}
		}
		names = append(names, hiddenCases(f, hidden)...)
	}
	return names
}

func functions(files []*ast.File) (all []*ast.FuncDecl) {
	for _, f := range files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				all = append(all, d)
			}
		}
	}
	return all
}

func mentions(n ast.Node, names []string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && slices.Contains(names, id.Name)
		return !found
	})
	return found
}

// hiddenCases are the names in values like {"name", function} whose function is hidden.
func hiddenCases(f *ast.File, hidden []string) (names []string) {
	for _, d := range f.Decls {
		if _, ok := d.(*ast.GenDecl); !ok {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			value, ok := n.(*ast.CompositeLit)
			if !ok || len(value.Elts) != 2 {
				return true
			}
			if name, ok := value.Elts[0].(*ast.BasicLit); ok && name.Kind == token.STRING && mentions(value.Elts[1], hidden) {
				text, _ := strconv.Unquote(name.Value)
				names = append(names, text)
			}
			return true
		})
	}
	return names
}

// withoutRace reports whether a file is only of builds without the race detector.
func withoutRace(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if expr, err := constraint.Parse(c.Text); err == nil && c.Pos() < f.Package {
				return !expr.Eval(func(string) bool { return true }) && expr.Eval(func(tag string) bool { return tag != "race" })
			}
		}
	}
	return false
}
