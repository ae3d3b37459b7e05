// SPDX-License-Identifier: MIT

package repo

import (
	"debug/elf"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mayNeed matches the libraries that every glibc system has.
var mayNeed = regexp.MustCompile(`^(lib(c|m|dl|pthread|rt)\.so\.\d+|ld-linux-[a-z0-9-]+\.so\.\d+)$`)

// TestExtensionLinksNothing looks at what make dev has built.
func TestExtensionLinksNothing(t *testing.T) {
	built, err := filepath.Glob(filepath.Join(root, "python/mori/_native/_moricore.*.so"))
	if err != nil {
		t.Fatal(err)
	}
	if len(built) == 0 {
		t.Skip("no extension is built: run make dev")
	}
	for _, name := range built {
		t.Run(filepath.Base(name), func(t *testing.T) { checkExtension(t, name) })
	}
}

func checkExtension(t *testing.T, name string) {
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range libraries {
		if !mayNeed.MatchString(lib) {
			t.Errorf("needs %s", lib)
		}
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		if paths, _ := f.DynString(tag); len(paths) != 0 {
			t.Errorf("%v is %s", tag, strings.Join(paths, ":"))
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && s.Name != "PyInit__moricore" {
			t.Errorf("shows the symbol %s: two Go runtimes in one process would share it", s.Name)
		}
	}
}
