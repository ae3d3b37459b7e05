// SPDX-License-Identifier: MIT

package gputest

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"mori/native/gpu"
)

const (
	// folderEnv tells processes that a test starts where the emulated driver is.
	folderEnv = "MORI_EMULATED_GPU"
	// vendorEnv chooses whose driver is emulated: cuda, which is so if it is not set, or hip.
	vendorEnv = "MORI_EMULATE"
)

// libraries are what the emulated drivers of the vendors are called.
var libraries = map[string]string{"cuda": "libcuda.so.1", "hip": "libamdhip64.so.6"}

// absent is why there is no GPU to test on; nil if there is one.
var absent error

// Main is TestMain for packages whose tests use a GPU: it brings one up, runs the tests by run, or by m.Run if there is none, and
// exits.
func Main(m *testing.M, run ...func(*testing.M) int) {
	Start()
	code := 0
	if len(run) > 0 {
		code = run[0](m)
	} else {
		code = m.Run()
	}
	os.Exit(code)
}

// Start is what Main does before it runs tests, for a TestMain that does more. It comes before the first use of a driver.
func Start() {
	root, err := findRoot()
	if err != nil {
		absent = err
		return
	}
	if os.Getenv("MORI_KERNEL_DIR") == "" {
		_ = os.Setenv("MORI_KERNEL_DIR", filepath.Join(root, "python", "mori", "_kernels"))
	}
	if Real() {
		if err := warm(); err != nil {
			fmt.Fprintln(os.Stderr, "use the GPUs for the first time:", err)
		}
		return
	}
	prepareSteering()
	vendor := cmp.Or(os.Getenv(vendorEnv), "cuda")
	if libraries[vendor] == "" {
		absent = fmt.Errorf("%s is %q: it is cuda or hip", vendorEnv, vendor)
		return
	}
	dir := os.Getenv(folderEnv)
	if dir == "" {
		if dir, err = compile(root, vendor); err != nil {
			absent = err
			return
		}
		_ = os.Setenv(folderEnv, dir)
		_ = os.Setenv("LD_LIBRARY_PATH", strings.TrimSuffix(dir+":"+os.Getenv("LD_LIBRARY_PATH"), ":"))
	}
	absent = load(filepath.Join(dir, libraries[vendor]))
}

// Real tells whether the tests run on real GPUs, and nothing is emulated.
func Real() bool {
	return slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), "gpu")
}

// Need skips a test where there are fewer GPUs than it needs: one, if it says nothing. With MORI_REQUIRE=gpu it fails instead.
func Need(tb testing.TB, count ...int) {
	tb.Helper()
	n := 1
	if len(count) > 0 {
		n = count[0]
	}
	if err := check(n); err != nil {
		if Real() {
			tb.Fatalf("MORI_REQUIRE has gpu: %v", err)
		}
		tb.Skip(err)
	}
}

// check tells why there are not n devices of one vendor.
func check(n int) error {
	if absent != nil {
		return absent
	}
	most := 0
	var whys []error
	for _, v := range []gpu.Vendor{gpu.CUDA, gpu.HIP} {
		driver, err := gpu.Open(v)
		if err != nil {
			whys = append(whys, err)
			continue
		}
		has, err := driver.Count()
		if err != nil {
			whys = append(whys, err)
			continue
		}
		most = max(most, has)
	}
	if most == 0 {
		return errors.Join(whys...)
	}
	if most < n {
		return fmt.Errorf("%d GPUs are here, and %d are needed", most, n)
	}
	return nil
}

// findRoot is the folder of go.mod above the package that is tested.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return "", errors.Join(errors.New("no go.mod above the working directory: the emulated GPU is compiled from the source tree"), err)
}

// compile makes the emulated driver, or finds it made, and returns its folder.
func compile(root, vendor string) (string, error) {
	for variable, otherwise := range map[string]string{"CC": "gcc", "CXX": "g++"} {
		compiler := append(strings.Fields(os.Getenv(variable)), otherwise)[0]
		if _, err := exec.LookPath(compiler); err != nil {
			return "", fmt.Errorf("no GPU, and none can be emulated: %w", err)
		}
	}
	for _, dir := range []string{"gpu/testdata", "include", "kernels"} {
		read(filepath.Join(root, "native", dir))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(root, "native", "gpu", "testdata", "emulator.sh"), vendor)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		fmt.Fprintf(os.Stderr, "compile the emulated GPU: %v\n%s", err, complaint.String())
		os.Exit(2)
	}
	return strings.TrimSpace(string(out)), nil
}

// read opens the sources, so that they are among what a cached result of go test depends on.
func read(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_, _ = os.ReadFile(path)
		}
		return nil
	})
}

// load opens the driver for all of the process: package gpu then finds it by its name.
func load(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if C.dlopen(name, C.RTLD_NOW|C.RTLD_GLOBAL) == nil {
		return fmt.Errorf("load the emulated GPU: %s", C.GoString(C.dlerror()))
	}
	return nil
}
