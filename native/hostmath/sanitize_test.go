// SPDX-License-Identifier: MIT

package hostmath

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// compiler is what cgo compiles with.
func compiler(t *testing.T) string {
	t.Helper()
	name := "gcc"
	if cc := strings.Fields(os.Getenv("CC")); len(cc) > 0 {
		name = cc[0]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("find the compiler that built this test: %v", err)
	}
	return path
}

// run ends after three minutes at the latest.
func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(out), err
}

// TestSanitizers runs all kernels of all variants over odd sizes and addresses under the address
// and undefined-behaviour sanitizers, with the floating point state as it is and as a library of
// -ffast-math leaves it.
func TestSanitizers(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for some seconds")
	}
	cc, dir := compiler(t), t.TempDir()
	flags := []string{"-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}

	// A compiler without its sanitizer libraries cannot link even an empty program.
	empty := filepath.Join(dir, "empty.c")
	if err := os.WriteFile(empty, []byte("int main(void) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, cc, append(flags, "-o", filepath.Join(dir, "empty"), empty)...); err != nil {
		t.Skipf("%s has no sanitizers: %v\n%s", cc, err, out)
	}

	sources, err := filepath.Glob("*.c")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sanitize")
	args := append(flags, "-o", program, filepath.Join("testdata", "sanitize.c"))
	if out, err := run(t, cc, append(args, sources...)...); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	out, err := run(t, program)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "portable, flush 1") {
		t.Errorf("not all ran:\n%s", out)
	}
	t.Log(out)
}
