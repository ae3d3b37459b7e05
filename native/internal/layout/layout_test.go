// SPDX-License-Identifier: MIT

package layout

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var sample = Comparison{Ours: "testdata/ours.h", Guard: "OURS_H", Vendor: "testdata/vendor.h"}

func needCompiler(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath(Compiler()); err != nil {
		t.Skip(err)
	}
}

// TestDifferences: each difference is reported, and nothing that is the same.
func TestDifferences(t *testing.T) {
	needCompiler(t)
	got, err := sample.Run()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"WRONG_VALUE is 3, the vendor's is 4",
		"ours_alone is not in the vendor's header",
		"wrong_members.call is pointer to function(pointer to struct other, int32) of void at 16, " +
			"the vendor's is pointer to function(pointer to struct other, int32, int32) of void at 16",
		"wrong_members.list is array of 4 uint8 at 32, the vendor's is array of 8 uint8 at 32",
		"wrong_members.moved is uint32 at 0, the vendor's is uint32 at 4",
		"wrong_members.narrow is uint32 at 8, the vendor's is uint16 at 8",
		"wrong_members.pad is uint32 at 4, the vendor's is uint32 at 0",
		"wrong_members.renamed is not in the vendor's",
		"wrong_members.sign is int32 at 12, the vendor's is uint32 at 12",
		"wrong_size has 4 bytes, the vendor's has 8",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestGrowingStructs: one that the vendor has continued is as it was, and one that is shorter there
// is not.
func TestGrowingStructs(t *testing.T) {
	needCompiler(t)
	all, err := sample.Run()
	if err != nil {
		t.Fatal(err)
	}
	growing := sample
	growing.Growing = []string{"wrong_size"}
	got, err := growing.Run()
	if err != nil || len(got) != len(all)-1 || slices.Contains(got, "wrong_size has 4 bytes, the vendor's has 8") {
		t.Errorf("%q, %v", got, err)
	}
	shrunk := Comparison{Ours: sample.Vendor, Vendor: sample.Ours, Growing: growing.Growing}
	ours, err := read(shrunk.Ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := read(shrunk.Vendor, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "wrong_size has 8 bytes, the vendor's has 4"
	if got := shrunk.sizes("wrong_size", ours.types["wrong_size"], theirs.types["wrong_size"]); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestUnknownConstant: a constant that the vendor's header does not have is named.
func TestUnknownConstant(t *testing.T) {
	needCompiler(t)
	other := Comparison{Ours: sample.Vendor, Vendor: sample.Ours}
	if wrong, err := other.Run(); err == nil || !strings.Contains(err.Error(), "THEIRS_ALONE") {
		t.Errorf("%q, %v", wrong, err)
	}
}

// TestCompile: a source is compiled with the vendor's declarations, and one that contradicts them
// is refused.
func TestCompile(t *testing.T) {
	needCompiler(t)
	if err := sample.Missing(); err != nil {
		t.Error(err)
	}
	if err := sample.Compile("testdata/uses.c"); err != nil {
		t.Error(err)
	}
	if err := sample.Compile("testdata/uses.c", "-DPROTOTYPE=int use(struct other *)"); err == nil || !strings.Contains(err.Error(), "conflicting types") {
		t.Error(err)
	}
	if err := (Comparison{Vendor: "testdata/none.h"}).Missing(); err == nil || !strings.Contains(err.Error(), "none.h") {
		t.Error(err)
	}
}
