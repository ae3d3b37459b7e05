// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

const head = "package p\n\nconst version = \"1.2.3\"\n\n"

func parse(body string) (*surface, error) {
	return parseSurface(fstest.MapFS{"p/p.go": {Data: []byte(head + body)}}, "p")
}

func TestStub(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"value", "// F does.\nfunc F(a, b uint64, s string) bool { return true }",
			"def pybind_F(a: int, b: int, s: str) -> bool:\n    \"\"\"F does.\"\"\"\n"},
		{"value and error", "// F does.\nfunc F(x float64) (int, error) { return 0, nil }",
			"def pybind_F(x: float) -> int:\n    \"\"\"F does.\"\"\"\n"},
		{"no result", "// F does.\n//\n// More.\nfunc F() {}",
			"def pybind_F() -> None:\n    \"\"\"F does.\n\n    More.\n    \"\"\"\n"},
		{"quotes and backslashes", "// F gives \"\\n\"\nfunc F() int { return 0 }",
			"def pybind_F() -> int:\n    \"\"\"F gives \"\\\\n\"\n    \"\"\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := parse(c.body)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.stub(); got != notice+"\n"+c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestLongSignaturesAreWrapped(t *testing.T) {
	s, err := parse("// F does.\nfunc F(" + strings.Repeat("a", 60) + ", " + strings.Repeat("b", 60) + " int) int { return 0 }")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(s.stub(), "\n") {
		if len(line) > lineWidth {
			t.Errorf("%d characters: %s", len(line), line)
		}
	}
}

func TestLeftOut(t *testing.T) {
	s, err := parse("type T int\n\nfunc f() {}\n\nfunc (T) F() {}\n\n//export Fast\nfunc Fast() {}\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.functions) != 0 {
		t.Errorf("got %v, want nothing", s.functions)
	}
	if s.version != "1.2.3" {
		t.Errorf("version is %q", s.version)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"slice", "// F does.\nfunc F(a []int) {}", "F: *ast.ArrayType cannot cross"},
		{"foreign type", "// F does.\nfunc F(a T) {}", "F: type T cannot cross"},
		{"bare error", "// F does.\nfunc F() error { return nil }", "results must be"},
		{"two values", "// F does.\nfunc F() (int, int) { return 0, 0 }", "results must be"},
		{"keyword", "// F does.\nfunc F(from int) {}", "parameter from is a Python keyword"},
		{"no comment", "func F() {}", "no doc comment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.body)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := parseSurface(fstest.MapFS{"p/p.go": {Data: []byte("package p\n")}}, "p"); err == nil {
		t.Error("a package without a version was accepted")
	}
}
