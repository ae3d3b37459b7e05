// SPDX-License-Identifier: MIT

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rank orders the layers: a package imports only layers of a lower rank. A
// folder that is not listed belongs to the nearest listed folder above it.
var rank = map[string]int{
	"core/decode": -1,
	"native":      0, "core/internal": 0, "core/config": 0, "core/logging": 0, "core/fabric": 0, "core/admission": 0,
	"core/device": 1, "core/memory": 1, "core/topology": 1, "core/bootstrap": 1, "core/limits": 1,
	"core/provider": 2,
	"core":          3,
	"shmem":         4, "io": 4,
	"ep":       5,
	"pybind":   6,
	"tests/go": 7,
}

// beside lists the imports between layers of one rank that are allowed: the
// first may import the second.
var beside = map[[2]string]bool{
	{"core/fabric", "core/internal"}:  true,
	{"core/config", "core/internal"}:  true,
	{"core/logging", "core/internal"}: true,
	{"core/logging", "core/config"}:   true,
}

// layer returns the longest prefix of dir that has a rank, or "".
func layer(dir string) string {
	for p := dir; p != "."; p = path.Dir(p) {
		if _, ok := rank[p]; ok {
			return p
		}
	}
	return ""
}

// mayImport reports whether a package in folder from may import the one in folder to.
func mayImport(from, to string) bool {
	a, b := layer(from), layer(to)
	return a == "" || b == "" || a == b || rank[b] < rank[a] || beside[[2]string{a, b}]
}

// TestUsersKnowNoTransport: io, shmem and ep see core/fabric, and providers only where core puts
// them together.
func TestUsersKnowNoTransport(t *testing.T) {
	for _, f := range goFiles(t) {
		if top, _, _ := strings.Cut(f.dir, "/"); top != "io" && top != "shmem" && top != "ep" || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, imported := range f.imports() {
			if strings.HasPrefix(imported, module+"core/provider") {
				t.Errorf("%s imports %s: transports are chosen by hints", f.path, imported)
			}
		}
	}
}

// TestUsersKnowNoDevice: io, shmem and ep reach GPUs, NICs and vendor libraries through core. Of
// native they see what only computes, and the layouts that they share with kernels.
func TestUsersKnowNoDevice(t *testing.T) {
	pure := map[string]bool{module + "native/hostmath": true, module + "native/abi": true}
	for _, f := range goFiles(t) {
		if top, _, _ := strings.Cut(f.dir, "/"); top != "io" && top != "shmem" && top != "ep" || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, imported := range f.imports() {
			if strings.HasPrefix(imported, module+"native/") && !pure[imported] {
				t.Errorf("%s imports %s: devices are reached through core", f.path, imported)
			}
		}
	}
}

// TestNobodyNamesAProvider: packages above the providers iterate over those that are registered.
// The name tcp is left out, since it is a network of package net as well.
func TestNobodyNamesAProvider(t *testing.T) {
	names := regexp.MustCompile("^[\"`](shm|p2p|verbs|ofi|mem)([/:].*)?[\"`]$")
	for _, f := range goFiles(t) {
		if rank[layer(f.dir)] <= rank["core/provider"] || strings.HasPrefix(f.dir, "tests/") || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, filepath.Join(root, f.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && names.MatchString(lit.Value) {
				t.Errorf("%s names a provider: %s", fset.Position(lit.Pos()), lit.Value)
			}
			return true
		})
	}
}

func TestImportsPointDown(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, imported := range f.imports() {
			own, ok := strings.CutPrefix(imported, module)
			if ok && !mayImport(f.dir, own) {
				t.Errorf("%s imports %s: %s sits above or beside %s", f.path, imported, layer(own), layer(f.dir))
			}
		}
	}
}

// Providers know the words of the fabric and nothing of one another; what two of
// them share is in core/provider/internal.
func TestProvidersStandAlone(t *testing.T) {
	const providers = "core/provider/"
	for _, f := range goFiles(t) {
		mine, ok := strings.CutPrefix(f.dir, providers)
		if !ok || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		mine, _, _ = strings.Cut(mine, "/")
		for _, imported := range f.imports() {
			other, ok := strings.CutPrefix(imported, module+providers)
			other, _, _ = strings.Cut(other, "/")
			if ok && other != mine && other != "internal" {
				t.Errorf("%s imports %s: providers do not know one another", f.path, imported)
			}
		}
	}
}

func TestMayImport(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"core", "core/memory", true},
		{"core/memory", "core", false},
		{"core/provider/tcp", "core/fabric", true},
		{"core/provider/tcp", "core/provider/internal/ring", true},
		{"core/provider/tcp", "ep", false},
		{"core/fabric/fabrictest", "core/provider/mem", false},
		{"core/fabric/util", "core/internal/sys", true},
		{"io", "core/fabric", true},
		{"io", "shmem", false},
		{"shmem", "io", false},
		{"ep", "shmem", true},
		{"native", "core/fabric", false},
		{"pybind", "io", true},
		{"io", "pybind", false},
		{"tests/go/bench", "pybind", true},
		{"io", "sort", true},
	} {
		if got := mayImport(c.from, c.to); got != c.want {
			t.Errorf("mayImport(%s, %s) = %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

// inside orders the packages of the internal folders of shmem, io and ep: one imports only those of
// a lower rank.
var inside = map[string]map[string]int{
	"shmem/internal/": {
		"arena": 0, "reduceop": 0, "peers": 0,
		"access":    1,
		"remote":    2,
		"heap":      3,
		"placement": 4, "wait": 4,
		"team": 5, "gpu": 5, "rma": 5,
		"local": 6,
	},
	"io/internal/": {
		"errs": 0, "serial": 0, "identity": 0, "meter": 0, "health": 0, "gate": 0, "stall": 0,
		"descriptor": 1, "page": 1, "batch": 1, "watch": 1,
		"message": 2,
		"control": 3, "arrivals": 3,
		"transport": 4,
		"region":    5,
		"transfer":  6, "backend": 6,
		"path": 7,
		"peer": 8,
	},
	"ep/internal/": {
		"view":   0,
		"plan":   1,
		"launch": 2,
		"call":   3,
		"host":   4, "gpu": 4,
	},
}

func TestInternalImportsPointDown(t *testing.T) {
	for folder, order := range inside {
		seen := map[string]bool{}
		for _, f := range goFiles(t) {
			own, ok := strings.CutPrefix(f.dir, folder)
			if !ok {
				continue
			}
			own, _, _ = strings.Cut(own, "/")
			mine, known := order[own]
			if seen[own] = true; !known {
				t.Errorf("%s: %s of %s has no rank", f.path, own, folder)
			}
			for _, imported := range f.imports() {
				other, isInside := strings.CutPrefix(imported, module+folder)
				other, _, _ = strings.Cut(other, "/")
				if isInside && other != own && order[other] >= mine {
					t.Errorf("%s imports %s, which sits above or beside it", f.path, imported)
				}
			}
		}
		for name := range order {
			if !seen[name] {
				t.Errorf("%s%s has a rank and no files", folder, name)
			}
		}
	}
}
