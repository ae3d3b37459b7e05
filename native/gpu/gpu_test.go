// SPDX-License-Identifier: MIT

package gpu

import (
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// run ends after two minutes at the latest.
func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(out), err
}

// compiler is what cgo compiles with.
func compiler() string {
	if cc := strings.Fields(os.Getenv("CC")); len(cc) > 0 {
		return cc[0]
	}
	return "gcc"
}

// TestDoor calls everything on the fake drivers under sanitizers, and sees that threads keep what
// is current.
func TestDoor(t *testing.T) {
	dir := t.TempDir()
	flags := []string{"-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"}
	sanitize := []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
	if !sanitizes(t, dir, sanitize) {
		sanitize = nil
	}
	sources, err := filepath.Glob("*.c")
	if err != nil {
		t.Fatal(err)
	}
	parts, _ := filepath.Glob(filepath.Join("testdata", "*"))
	for _, part := range parts { // read here, they are among what a cached result depends on
		if _, err := os.ReadFile(part); err != nil {
			t.Fatal(err)
		}
	}
	door := filepath.Join(dir, "door")
	args := slices.Concat(flags, sanitize, []string{"-o", door, filepath.Join("testdata", "door.c")}, sources, []string{"-ldl", "-lpthread"})
	if out, err := run(t, compiler(), args...); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	for define, vendor := range map[string]string{"-DFAKE_CUDA": "1", "-DFAKE_HIP=5": "2", "-DFAKE_HIP=6": "2", "-DFAKE_HIP=7": "2"} {
		lib := filepath.Join(dir, define+".so")
		if out, err := run(t, compiler(), slices.Concat(flags, []string{"-shared", "-fPIC", define, "-o", lib, filepath.Join("testdata", "fake.c")})...); err != nil {
			t.Fatalf("compile: %v\n%s", err, out)
		}
		out, err := run(t, door, vendor, lib)
		if err != nil || !strings.Contains(out, "left the thread as it was") {
			t.Errorf("%s: %v\n%s", define, err, out)
		}
		t.Log(out)
	}
}

// sanitizes reports whether the compiler has these sanitizers, and programs with them run here.
func sanitizes(t *testing.T, dir string, flags []string) bool {
	t.Helper()
	empty := filepath.Join(dir, "empty.c")
	if err := os.WriteFile(empty, []byte("int main(void) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, compiler(), slices.Concat(flags, []string{"-o", filepath.Join(dir, "empty"), empty})...)
	if err == nil {
		out, err = run(t, filepath.Join(dir, "empty"))
	}
	if err != nil {
		t.Logf("%s with %v: %v\n%s", compiler(), flags, err, out)
	}
	return err == nil
}

// TestEmulatedDriver has threads use the emulated driver at once under sanitizers: it has no races
// of its own.
func TestEmulatedDriver(t *testing.T) {
	dir := t.TempDir()
	for _, sanitizer := range []string{"thread", "address,undefined"} {
		t.Run(sanitizer, func(t *testing.T) {
			flags := []string{"-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"}
			sanitize := []string{"-fsanitize=" + sanitizer, "-fno-sanitize-recover=all"}
			if !sanitizes(t, dir, sanitize) {
				t.Skip("it has no such sanitizer")
			}
			program := filepath.Join(dir, sanitizer)
			sources := []string{filepath.Join("testdata", "stress.c"), filepath.Join("testdata", "fake.c"), "-lpthread"}
			if out, err := run(t, compiler(), slices.Concat(flags, sanitize, []string{"-DFAKE_CUDA", "-o", program}, sources)...); err != nil {
				t.Fatalf("compile: %v\n%s", err, out)
			}
			for _, seed := range []string{"0", "3"} {
				t.Setenv("FAKE_GPU_SEED", seed)
				if out, err := run(t, program); err != nil || out != "every byte was right\n" {
					t.Errorf("seed %s: %v\n%s", seed, err, out)
				}
			}
		})
	}
}

// hipLibrary finds a real libamdhip64, without which the test is skipped, unless MORI_REQUIRE has
// hip in its list.
func hipLibrary(t *testing.T) string {
	for _, pattern := range []string{"/usr/lib/x86_64-linux-gnu/libamdhip64.so.[5-7]", "/opt/rocm/lib/libamdhip64.so.[5-7]", "/usr/lib64/libamdhip64.so.[5-7]"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	if slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), "hip") {
		t.Fatal("MORI_REQUIRE has hip: there is no libamdhip64")
	}
	t.Skip("there is no libamdhip64 (libamdhip64-5)")
	return ""
}

// notInHIP5 are what later versions brought, and what is another library's.
var notInHIP5 = []string{"hipGetDevicePropertiesR0600", "hipMemGetHandleForAddressRange", "hsa_amd_portable_export_dmabuf"}

// TestSymbolsOfHIP: a real library has all of the table, but for those.
func TestSymbolsOfHIP(t *testing.T) {
	path := hipLibrary(t)
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := make(map[string]bool)
	for _, s := range symbols {
		has[s.Name] = s.Section != elf.SHN_UNDEF
	}
	found := 0
	for _, s := range Symbols(HIP) {
		if has[s.Name] {
			found++
		}
		if !has[s.Name] && (s.Needed || !slices.Contains(notInHIP5, s.Name)) {
			t.Errorf("%s has no %s", path, s.Name)
		}
	}
	t.Logf("%s has %d of the %d symbols of the table", path, found, len(Symbols(HIP)))
}

// TestHIPWithoutDevice: a real library that finds no GPU says so.
func TestHIPWithoutDevice(t *testing.T) {
	hipLibrary(t)
	if _, err := os.Stat("/dev/kfd"); err == nil {
		t.Skip("there is an AMD GPU")
	}
	_, err := Open(HIP)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "no HIP device: ") || !strings.Contains(err.Error(), "libamdhip64") {
		t.Error(err)
	}
	again, err2 := Open(HIP)
	if again != nil || !errors.Is(err2, err) {
		t.Error("a conclusive answer was asked for again:", err2)
	}
	t.Log(err)
}

func TestWithoutLibrary(t *testing.T) {
	_, err := OpenFile(CUDA, "libcuda-that-is-not.so.1")
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "no CUDA device: libcuda-that-is-not.so.1: cannot open") {
		t.Error(err)
	}
	text := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(CUDA, text); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Error("a library that does not load is no conclusive answer:", err)
	}
	if _, err := OpenFile(Vendor(3), ""); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// TestTooOld: a library without the symbols is refused by name.
func TestTooOld(t *testing.T) {
	dir := t.TempDir()
	source, lib := filepath.Join(dir, "old.c"), filepath.Join(dir, "libold.so")
	if err := os.WriteFile(source, []byte("int cuInit(unsigned f) { return (int)f; }\nint cuDriverGetVersion(int *v) { return *v = 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, compiler(), "-shared", "-fPIC", "-o", lib, source); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	_, err := OpenFile(CUDA, lib)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), lib+" has no cuDeviceGetCount: it is too old") {
		t.Error(err)
	}
}

func TestErrorText(t *testing.T) {
	err := &Error{Vendor: HIP, Device: 3, Call: "hipMalloc", Code: 2, Name: "hipErrorOutOfMemory", Text: "out of memory"}
	if got, want := err.Error(), "hipMalloc on HIP device 3: hipErrorOutOfMemory (2): out of memory"; got != want || !errors.Is(err, ErrNoMemory) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := (&Error{Code: 12345}); errors.Unwrap(err) != nil {
		t.Error("a cause of nothing")
	}
	if Vendor(9).String() != "vendor 9" || CUDA.String() != "CUDA" {
		t.Error("vendors have other names")
	}
}
