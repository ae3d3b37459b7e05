// SPDX-License-Identifier: MIT

package repo

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var shrink = flag.Bool("shrink", false, "lower the entries of "+exceptionsFile+" to what is measured")

// Limits of a package that can be read alone.
const (
	mostMethods = 25  // of a type
	mostFiles   = 20  // of a package, without tests
	mostColumns = 100 // of a line of comment
)

// exceptionsFile lists what is above a limit, as "kind name value". An entry may only shrink: the
// test fails when it is too high, too, and -shrink lowers it.
const exceptionsFile = "testdata/structure.txt"

// retired are words that have no meaning outside of this project; docs/glossary.md has the field's
// words.
var retired = regexp.MustCompile(`(?i)\b(inquests?|mourn(s|ing)?|partings?|last ?words|byes|heed(s|ed)?|rouse[sd]?|lenders?|borrowers?|stir(s|red)?|tells?|told|whoever|whom|loans?|seldom|desks?|fates?|for ever|mend(s|ed)?)\b`)

// retiredNames are words of the same kind that types, functions, files and tests are not named by.
// "InFlight" is the field's.
var retiredNames = regexp.MustCompile(`^(flights?|loans?|lends?|lent|lenders?|borrow(s|ed|ers?)?|greets?|greetings?|meets?|meeting|desks?|stamps?|boards?|fakes?|inquests?|mourning|partings?|byes|heeds?|rouse[sd]?|tells?|told|fates?)$`)

// nameWords are the words of an identifier or of a file's name.
var nameWords = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)

func retiredName(name string) bool {
	words := nameWords.FindAllString(name, -1)
	for i, w := range words {
		inFlight := i > 0 && strings.EqualFold(words[i-1], "in") && strings.EqualFold(w, "flight")
		if retiredNames.MatchString(strings.ToLower(w)) && !inFlight {
			return true
		}
	}
	return false
}

// A finding is something that is above its limit.
type finding struct{ kind, name string }

func TestStructure(t *testing.T) {
	found := measure(t)
	listed := exceptions(t)
	if *shrink {
		writeExceptions(t, found, listed)
		return
	}
	for f, n := range found {
		switch most := listed[f]; {
		case n > most && most > 0:
			t.Errorf("%s of %s: %d, and %s allows %d", f.kind, f.name, n, exceptionsFile, most)
		case n > most:
			t.Errorf("%s of %s: %d is above the limit (%s)", f.kind, f.name, n, limits[f.kind])
		}
	}
	for f, most := range listed {
		if n := found[f]; n < most {
			t.Errorf("%s of %s: %d is better than the %d in %s: go test ./tests/go -run Structure -shrink", f.kind, f.name, n, most, exceptionsFile)
		}
	}
}

var limits = map[string]string{
	"methods": fmt.Sprintf("%d methods of a type", mostMethods),
	"files":   fmt.Sprintf("%d files of a package, without tests", mostFiles),
	"columns": fmt.Sprintf("no comment beyond column %d", mostColumns),
	"words":   "no word that docs/glossary.md replaces",
	"names":   "no name with a word that docs/glossary.md replaces",
}

// measure returns all that is above a limit. Columns and words are counted in lines for each
// package, names for each area, all of them with the tests.
func measure(t *testing.T) map[finding]int {
	methods, files, found := map[string]int{}, map[string]int{}, map[finding]int{}
	for _, f := range goFiles(t) {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, filepath.Join(root, f.path), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(parsed) {
			continue
		}
		countComments(parsed, f.dir, found)
		countNames(parsed, f.path, finding{"names", area(f.dir)}, found)
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		files[f.dir]++
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[f.dir+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	for name, n := range methods {
		if n > mostMethods {
			found[finding{"methods", name}] = n
		}
	}
	for name, n := range files {
		if n > mostFiles {
			found[finding{"files", name}] = n
		}
	}
	return found
}

func countComments(f *ast.File, dir string, found map[finding]int) {
	for _, group := range f.Comments {
		for _, c := range group.List {
			for line := range strings.Lines(c.Text) {
				if utf8.RuneCountInString(strings.TrimSpace(line)) > mostColumns {
					found[finding{"columns", dir}]++
				}
				if retired.MatchString(line) {
					found[finding{"words", dir}]++
				}
			}
		}
	}
}

// countNames counts the types and functions of a file with a retired name, and the file itself.
func countNames(f *ast.File, path string, as finding, found map[finding]int) {
	names := []string{strings.TrimSuffix(filepath.Base(path), ".go")}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if t, ok := s.(*ast.TypeSpec); ok {
					names = append(names, t.Name.Name)
				}
			}
		}
	}
	for _, name := range names {
		if retiredName(name) {
			found[as]++
		}
	}
}

// area is the top folder of a package, with core's folders apart: names move between packages.
func area(dir string) string {
	parts := strings.Split(dir, "/")
	if parts[0] == "core" {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return parts[0]
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

func exceptions(t *testing.T) map[finding]int {
	b, err := os.ReadFile(exceptionsFile)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[finding]int{}
	for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
		words := strings.Fields(in.Text())
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		n, err := strconv.Atoi(words[len(words)-1])
		if len(words) != 3 || limits[words[0]] == "" || err != nil {
			t.Fatalf("%s: %q, want kind, name and value", exceptionsFile, in.Text())
		}
		listed[finding{words[0], words[1]}] = n
	}
	return listed
}

// writeExceptions lowers entries and drops those that are not needed. It raises and adds none.
func writeExceptions(t *testing.T, found, listed map[finding]int) {
	var lines []string
	for f, most := range listed {
		if n := min(found[f], most); n > 0 {
			lines = append(lines, fmt.Sprintf("%s %s %d\n", f.kind, f.name, n))
		}
	}
	slices.Sort(lines)
	head := "# What is above a limit of structure_test.go. Entries may only shrink.\n"
	if err := os.WriteFile(exceptionsFile, []byte(head+strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRetiredName(t *testing.T) {
	for name, want := range map[string]bool{
		"BorrowStream": true, "newFake": true, "fake_test": true, "Meet": true, "TestTransfersInFlight": false, "flightTable": true,
		"Dashboard": false, "stampede": false, "tellTale": true, "countMatrix": false,
	} {
		if got := retiredName(name); got != want {
			t.Errorf("%s: retired %v, want %v", name, got, want)
		}
	}
}
