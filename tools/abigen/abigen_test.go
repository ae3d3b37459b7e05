// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"debug/dwarf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestCommittedFilesAreCurrent: package abi has the layouts that the compiler gives the headers of
// today.
func TestCommittedFilesAreCurrent(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, packageDir, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s/%s is not what the headers say: run make generate", packageDir, name)
		}
	}
}

// TestGPUCompilersAgree: the compilers of kernels lay structs out like the one of the host.
func TestGPUCompilersAgree(t *testing.T) {
	const compiler = "clang++-19"
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skip("kernels are compiled where clang-19 is installed")
	}
	l, err := read(filepath.Join(root, headerDir), shares)
	if err != nil {
		t.Fatal(err)
	}
	source := l.assertions()
	for _, target := range []string{"nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa"} {
		if out, err := check(compiler, target, source); err != nil {
			t.Errorf("%s: %v\n%s", target, err, out)
		}
	}
	wrong := source + "static_assert(sizeof(mori::ep::Op) == 1);\n"
	if _, err := check(compiler, "nvptx64-nvidia-cuda", wrong); err == nil {
		t.Error("a wrong size was accepted")
	}
}

func check(compiler, target, source string) ([]byte, error) {
	c := exec.Command(compiler, "--target="+target, "-std=c++17", "-ffreestanding", "-nogpulib", "-fsyntax-only",
		"-I"+filepath.Join(root, headerDir), "-x", "c++", "-")
	c.Stdin = strings.NewReader(source)
	return c.CombinedOutput()
}

// assertions returns a C++ source that compiles only with these layouts.
func (l *layouts) assertions() string {
	b := strings.Builder{}
	b.WriteString("#include <stddef.h>\n" + probe(slices.DeleteFunc(slices.Clone(shares), func(s share) bool { return s.structs == nil })))
	for _, r := range l.records {
		fmt.Fprintf(&b, "static_assert(sizeof(%s) == %d);\n", r.origin, r.size)
		for _, f := range r.fields {
			fmt.Fprintf(&b, "static_assert(offsetof(%s, %s) == %d);\n", r.origin, f.origin, f.offset)
		}
	}
	return b.String()
}

// TestStructsThatCannotBeShared: an error names what is wrong.
func TestStructsThatCannotBeShared(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "mori"), 0o755); err != nil {
		t.Fatal(err)
	}
	const header = "#include <stdint.h>\nnamespace mori::x { struct Inner { int a; }; struct Outer { Inner inner; double d; }; }\n"
	if err := os.WriteFile(filepath.Join(dir, "mori", "x.hpp"), []byte(header), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		structs, constants []string
		want               string
	}{
		{[]string{"Other"}, nil, "mori::x has no Other"},
		{[]string{"Outer"}, nil, "mori::x::Outer.inner"},
		{[]string{"Inner", "Outer"}, nil, "mori::x::Outer.d"},
		{[]string{"Inner"}, []string{"kNothing"}, "kNothing"},
	} {
		all := []share{{namespace: "x", headers: []string{"x.hpp"}, structs: c.structs, constants: c.constants}}
		if _, err := read(dir, all); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v: %v, want %q", c.structs, c.constants, err, c.want)
		}
	}
}

// TestPadding: Go's fields lie where C++ has them, also behind gaps.
func TestPadding(t *testing.T) {
	l := layouts{records: []record{{name: "A", origin: "mori::A", size: 16, fields: []field{
		{name: "B", goType: "uint32", offset: 0, size: 4}, {name: "C", goType: "uint8", offset: 8, size: 1},
	}}}, names: map[dwarf.Type]string{}}
	text, err := l.types()
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Join(strings.Fields(string(text)), " ")
	if want := "struct { B uint32 _ [4]byte C uint8 _ [7]byte }"; !strings.Contains(fields, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
}

func TestNames(t *testing.T) {
	for from, want := range map[string]string{
		"rowBytes": "RowBytes", "cqDbr": "CQDBR", "lkey": "LKey", "kMostRanks": "MostRanks", "kNoDbr": "NoDBR",
		"myPe": "MyPE", "nPes": "NPEs", "NicPeer": "NICPeer", "kept": "Kept", "topk": "TopK", "mlx5": "MLX5",
	} {
		if got := goName(from); got != want {
			t.Errorf("%s becomes %s, want %s", from, got, want)
		}
	}
}
