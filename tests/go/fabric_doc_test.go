// SPDX-License-Identifier: MIT

package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mori/core/fabric/fabrictest"
)

var groupName = regexp.MustCompile("^`([a-z]+)`$")

// TestFabricDocHasEveryGroup holds the table of interfaces in docs/design/fabric.md against the
// conformance suite: each group of cases stands in one row, and each row names a group or a test
// file that exists.
func TestFabricDocHasEveryGroup(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs/design/fabric.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, line := range strings.Split(string(doc), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| kOFI") {
			continue
		}
		cells := strings.Split(line, "|")
		last := strings.TrimSpace(cells[len(cells)-2])
		if m := groupName.FindStringSubmatch(last); m != nil {
			rows[m[1]]++
			continue
		}
		for _, file := range strings.Split(last, ", ") {
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("row %q: neither a group nor a test: %v", cells[1], err)
			}
		}
	}
	cases := map[string]int{}
	for _, c := range fabrictest.Cases() {
		group, _, _ := strings.Cut(c, "/")
		cases[group]++
	}
	for group, n := range rows {
		if n != 1 || cases[group] == 0 {
			t.Errorf("group %s stands in %d rows and has %d cases", group, n, cases[group])
		}
	}
	for group := range cases {
		if rows[group] == 0 {
			t.Errorf("group %s stands in no row of docs/design/fabric.md", group)
		}
	}
	if len(rows) < 10 {
		t.Errorf("%d rows were found", len(rows))
	}
}
