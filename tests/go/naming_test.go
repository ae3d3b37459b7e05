// SPDX-License-Identifier: MIT

package repo

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cgoDirs are the only folders with hand-written import "C".
var cgoDirs = []string{"native", "pybind"}

// unsafeName is what a file that imports unsafe is called; a platform may follow.
var unsafeName = regexp.MustCompile(`_unsafe(_(linux|amd64|arm64|linux_amd64|linux_arm64))?(_test)?\.go$`)

func inCgoDir(dir string) bool {
	top, _, _ := strings.Cut(dir, "/")
	return slices.Contains(cgoDirs, top)
}

func TestUnsafeAndCgoAreFencedIn(t *testing.T) {
	for _, f := range goFiles(t) {
		imports := f.imports()
		usesC := slices.Contains(imports, "C")
		if usesC && !inCgoDir(f.dir) {
			t.Errorf(`%s has import "C": only %s may`, f.path, strings.Join(cgoDirs, " and "))
		}
		if slices.Contains(imports, "unsafe") && !unsafeName.MatchString(f.path) && !(usesC && inCgoDir(f.dir)) {
			t.Errorf("%s imports unsafe: its name must end in _unsafe.go", f.path)
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		documented[f.dir] = documented[f.dir] || f.ast.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment: write %s", dir, path.Join(dir, "doc.go"))
		}
	}
}

func TestEveryFileNamesItsLicense(t *testing.T) {
	const line = "// SPDX-License-Identifier: MIT"
	for _, f := range goFiles(t) {
		if len(f.ast.Comments) == 0 || f.ast.Comments[0].List[0].Text != line {
			t.Errorf("%s does not start with %q", f.path, line)
		}
	}
}
