// SPDX-License-Identifier: MIT

package repo

import (
	"path"
	"strings"
	"testing"
)

// rank orders the layers: a package imports only layers of a lower rank. A
// folder that is not listed belongs to the nearest listed folder above it.
var rank = map[string]int{
	"core/decode": -1,
	"native":      0, "core/internal": 0, "core/config": 0, "core/logging": 0, "core/fabric": 0, "core/admission": 0,
	"core/device": 1, "core/memory": 1, "core/topology": 1, "core/bootstrap": 1, "core/limits": 1,
	"core/provider":        2,
	"core":                 3,
	"shmem/internal/arena": 4, "shmem/internal/reduceop": 4, "shmem/internal/peers": 4,
	"shmem/internal/access":    5,
	"shmem/internal/remote":    6,
	"shmem/internal/heap":      7,
	"shmem/internal/placement": 8, "shmem/internal/wait": 8,
	"shmem/internal/team": 9, "shmem/internal/gpu": 9, "shmem/internal/rma": 9,
	"shmem/internal/local": 10,
	"shmem":                11, "io": 11,
	"ep":       12,
	"pybind":   13,
	"tests/go": 14,
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

// TestUsersKnowNoTransport: io, shmem and ep see core/fabric, and providers only where core puts them together.
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
// native they see what only computes.
func TestUsersKnowNoDevice(t *testing.T) {
	const computes = module + "native/hostmath"
	for _, f := range goFiles(t) {
		if top, _, _ := strings.Cut(f.dir, "/"); top != "io" && top != "shmem" && top != "ep" || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, imported := range f.imports() {
			if strings.HasPrefix(imported, module+"native/") && imported != computes {
				t.Errorf("%s imports %s: devices are reached through core", f.path, imported)
			}
		}
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
		{"shmem", "shmem/internal/team", true},
		{"shmem/internal/team", "shmem/internal/wait", true},
		{"shmem/internal/wait", "shmem/internal/team", false},
		{"shmem/internal/team", "shmem/internal/rma", false},
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
