// SPDX-License-Identifier: MIT

package repo

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// TestTestsAreQuiet: test programs that can write mori's log call logtest.Quiet, so that the errors
// which tests provoke do not surround the one that counts.
func TestTestsAreQuiet(t *testing.T) {
	imports, tests := map[string][]string{}, map[string][]string{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.path, "_test.go") {
			tests[f.dir] = append(tests[f.dir], f.imports()...)
		} else {
			imports[f.dir] = append(imports[f.dir], f.imports()...)
		}
	}
	const logging = "core/logging"
	quiet := module + path.Join(logging, "logtest")
	for dir, paths := range tests {
		if strings.HasPrefix(dir, logging) || slices.Contains(paths, quiet) {
			continue
		}
		if reaches(append(slices.Clone(paths), imports[dir]...), imports, logging) {
			t.Errorf("the tests of %s can log and do not call logtest.Quiet in TestMain", dir)
		}
	}
}

// reaches reports whether the paths, or what they import in turn, include the package dir.
func reaches(paths []string, imports map[string][]string, dir string) bool {
	seen := map[string]bool{}
	for len(paths) > 0 {
		next, ours := strings.CutPrefix(paths[0], module)
		paths = paths[1:]
		if !ours || seen[next] {
			continue
		}
		if next == dir {
			return true
		}
		seen[next] = true
		paths = append(paths, imports[next]...)
	}
	return false
}
