// SPDX-License-Identifier: MIT

package verbstest

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
import "C"

import (
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

	"mori/native/verbs"
)

// folderEnv tells processes that a test starts where the emulated library is.
const folderEnv = "MORI_EMULATED_VERBS"

// absent is why there is no device to test on; nil if there is one.
var absent error

// Main is TestMain for packages whose tests use RDMA devices: it brings some up, runs the tests by run, or by m.Run if there is none,
// and exits.
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

// Start is what Main does before it runs tests, for a TestMain that does more. It comes before the first use of package verbs.
func Start() {
	if Real() {
		return
	}
	if !verbs.Built() {
		absent = errors.New("no RDMA device, and none can be emulated: the tests were compiled without <infiniband/verbs.h> (libibverbs-dev)")
		return
	}
	prepareSteering()
	dir := os.Getenv(folderEnv)
	if dir == "" {
		var err error
		if dir, err = compile(); err != nil {
			absent = err
			return
		}
		_ = os.Setenv(folderEnv, dir)
		_ = os.Setenv("LD_LIBRARY_PATH", strings.TrimSuffix(dir+":"+os.Getenv("LD_LIBRARY_PATH"), ":"))
	}
	absent = load(filepath.Join(dir, "libibverbs.so.1"))
}

// Real tells whether the tests run on real devices, and nothing is emulated. Devices of soft-RoCE are real.
func Real() bool {
	return required("rdma")
}

// Need skips a test where there are no devices and none can be emulated, or fails it if MORI_REQUIRE has verbs in its list. It fails it, too, where
// fewer have a port that is up than it needs: one, if it says nothing.
func Need(tb testing.TB, count ...int) {
	tb.Helper()
	n := 1
	if len(count) > 0 {
		n = count[0]
	}
	needAny(tb)
	if err := check(n); err != nil {
		tb.Fatalf("the devices cannot be used (they are real: %v): %v", Real(), err)
	}
}

// NeedEmulated skips a test where the devices are real: it does what only emulated ones can be made to.
func NeedEmulated(tb testing.TB) {
	tb.Helper()
	if Real() {
		tb.Skip("an emulated RDMA device is needed, and these are real")
	}
	needAny(tb)
}

// needAny skips a test where there is no device and none can be emulated, or fails it if MORI_REQUIRE has verbs in its list.
func needAny(tb testing.TB) {
	tb.Helper()
	switch {
	case absent == nil:
	case required("verbs"):
		tb.Fatalf("MORI_REQUIRE has verbs: %v", absent)
	default:
		tb.Skip(absent)
	}
}

// required reports whether a test may not be skipped for want of what.
func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), what)
}

// check tells why there are not n devices with a port that is up.
func check(n int) error {
	devices, err := verbs.Devices()
	if err != nil {
		return err
	}
	up := 0
	for _, d := range devices {
		if err := active(d.Name); err != nil {
			fmt.Fprintln(os.Stderr, "RDMA device", d.Name+":", err)
			continue
		}
		up++
	}
	if up < n {
		return fmt.Errorf("%d of %d RDMA devices have a port that is up, and %d are needed", up, len(devices), n)
	}
	return nil
}

func active(name string) error {
	ctx, err := verbs.Open(name)
	if err != nil {
		return err
	}
	port, err := ctx.Port(1)
	if err == nil && port.State != verbs.PortActive {
		err = fmt.Errorf("port 1 is %v", port.State)
	}
	return errors.Join(err, ctx.Close())
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
	return "", errors.Join(errors.New("no go.mod above the working directory: the emulated libibverbs is compiled from the source tree"), err)
}

// compile makes the emulated library, with flags of the compiler if there are some, or finds it made, and returns its folder.
func compile(flags ...string) (string, error) {
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	compiler := append(strings.Fields(os.Getenv("CXX")), "g++")[0]
	if _, err := exec.LookPath(compiler); err != nil {
		return "", fmt.Errorf("no RDMA device, and none can be emulated: %w", err)
	}
	data := filepath.Join(root, "native", "verbs", "verbstest", "testdata")
	read(data)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{filepath.Join(data, "emulator.sh")}, flags...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		fmt.Fprintf(os.Stderr, "compile the emulated libibverbs: %v\n%s", err, complaint.String())
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

// load opens the library for all of the process: package verbs then finds it by its name.
func load(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if C.dlopen(name, C.RTLD_NOW|C.RTLD_GLOBAL) == nil {
		return fmt.Errorf("load the emulated libibverbs: %s", C.GoString(C.dlerror()))
	}
	return nil
}
