// SPDX-License-Identifier: MIT

package verbs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// run ends after two minutes at the latest.
func run(t *testing.T, env, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// compiler is what cgo compiles with. Without one, or if the binary has left its folder, the
// test is skipped.
func compiler(tb testing.TB) string {
	tb.Helper()
	cc := append(strings.Fields(os.Getenv("CC")), "gcc")[0]
	if _, err := exec.LookPath(cc); err != nil {
		tb.Skip(err)
	}
	if _, err := os.Stat("testdata"); err != nil {
		tb.Skip(err)
	}
	return cc
}

// notInGuests skips a test that compiles in a guest with soft-RoCE.
func notInGuests(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMA_VM") != "" {
		t.Skip("what is compiled is the same on the host, and a guest compiles for a quarter of a minute")
	}
}

// door compiles the C side with testdata/door.c.
func door(t *testing.T) string {
	t.Helper()
	notInGuests(t)
	sources, err := filepath.Glob("*.c")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "door")
	args := append([]string{"-std=gnu11", "-g", "-Wall", "-Werror", "-o", program, filepath.Join("testdata", "door.c")}, sources...)
	run(t, "", compiler(t), append(args, "-ldl")...)
	return program
}

// library compiles a libibverbs.so.1 of which each function answers that there is nothing, and
// gives its folder.
func library(t *testing.T, names []string) string {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("#include <errno.h>\n")
	for _, name := range names {
		fmt.Fprintf(&b, "void *%s(void) { errno = ENOSYS; return 0; }\n", name)
	}
	source := filepath.Join(dir, "library.c")
	if err := os.WriteFile(source, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "", compiler(t), "-shared", "-fPIC", "-o", filepath.Join(dir, "libibverbs.so.1"), source)
	return "LD_LIBRARY_PATH=" + dir
}

// needed are the functions that a library must have, by door.h.
func needed(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("door.h")
	if err != nil {
		t.Skip(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`X\(\w+, (\w+), "IBVERBS_1.\d+", 1\)`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) < 20 {
		t.Fatalf("door.h needs only %q", names)
	}
	return names
}

// TestOldLibrary: one without versions and without what came later is used, and what it has not is
// not supported.
func TestOldLibrary(t *testing.T) {
	names, program := needed(t), door(t)
	none := int(syscall.EOPNOTSUPP)
	want := fmt.Sprintf("devices 0, 0\nopen %d\niova %d\ndmabuf %d\ntable %d\n", syscall.ENODEV, none, none, none)
	if out := run(t, library(t, names), program); out != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	out := run(t, library(t, names[:len(names)-1]), program)
	if !strings.Contains(out, "libibverbs.so.1 has no "+names[len(names)-1]+" of IBVERBS_1.") || !strings.Contains(out, "too old") {
		t.Error(out)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libibverbs.so.1"), []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "LD_LIBRARY_PATH="+broken, program); !strings.Contains(out, "libibverbs.so.1: ") || !strings.Contains(out, "install libibverbs1") {
		t.Error(out)
	}
}
