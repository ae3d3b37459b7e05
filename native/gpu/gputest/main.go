// SPDX-License-Identifier: MIT

package gputest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"mori/native/gpu"
	"mori/native/internal/emulate"
)

// vendorEnv chooses whose driver is emulated: cuda, which is so if it is not set, or hip.
const vendorEnv = "MORI_EMULATE"

// parentEnv is set for the processes that tests start. Tests look for descriptors that are left
// after them, so the first process opens what the driver keeps before any test.
const parentEnv = "MORI_TEST_PARENT"

// queuesEnv is CUDA's: into how many queues streams go.
const queuesEnv = "CUDA_DEVICE_MAX_CONNECTIONS"

// drivers are what the emulated drivers of the vendors are called.
var drivers = map[string]string{"cuda": "libcuda.so.1", "hip": "libamdhip64.so.6"}

// emulated is the driver of a vendor.
func emulated(vendor string) emulate.Library {
	return emulate.Library{
		What: "emulated GPU", File: drivers[vendor], Folder: "MORI_EMULATED_GPU",
		Script: "native/gpu/testdata/emulator.sh", Sources: []string{"native/gpu/testdata", "native/include", "native/kernels", "native/examples", "examples/gpu"},
		Compilers: []emulate.Compiler{emulate.CC, emulate.CXX},
		Steering:  []string{"FAKE_GPU", "FAKE_GPU_BYTES", "FAKE_GPU_COUNT", "FAKE_GPU_SEED", "FAKE_GPU_IDLE", "FAKE_GPU_LATE", "FAKE_GPU_DRIVER", "FAKE_GPU_ARCH"},
	}
}

// absent is why there is no GPU to test on; nil if there is one.
var absent error

// Main is TestMain for packages whose tests use a GPU: it brings one up, runs the tests by run, by
// default m.Run, and exits.
func Main(m *testing.M, run ...func(*testing.M) int) { emulate.Main(m, Start, run...) }

// Start is what Main does before it runs tests, for a TestMain that does more. It comes before the
// first use of a driver.
func Start() {
	root, err := emulate.Root()
	if err != nil {
		absent = err
		return
	}
	if os.Getenv("MORI_KERNEL_DIR") == "" {
		_ = os.Setenv("MORI_KERNEL_DIR", filepath.Join(root, "python", "mori", "_kernels"))
	}
	if Real() {
		if os.Getenv(parentEnv) == "" { // a process that tests start leaves the GPUs alone until it uses them
			_ = os.Setenv(parentEnv, strconv.Itoa(os.Getpid()))
			defer warmOnce()
		}
		// Ranks of one process share GPUs where there are few, and their kernels wait for each other. A
		// GPU takes kernels from 8 queues, unless a variable sets more, and one that another waits for
		// may be behind it in the same.
		if os.Getenv(queuesEnv) == "" {
			_ = os.Setenv(queuesEnv, "32")
		}
		return
	}
	vendor := cmp.Or(os.Getenv(vendorEnv), "cuda")
	if drivers[vendor] == "" {
		absent = fmt.Errorf("%s is %q: it is cuda or hip", vendorEnv, vendor)
		return
	}
	absent = emulated(vendor).Start(vendor)
}

// Real reports whether the tests run on real GPUs, and nothing is emulated.
func Real() bool { return emulate.Required("gpu") }

// Need skips a test where there are fewer GPUs than it needs: one, if it says nothing. With
// MORI_REQUIRE=gpu it fails instead.
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

// warmOnce brings up contexts on all GPUs, which takes seconds.
var warmOnce = sync.OnceFunc(func() {
	if err := warm(); err != nil {
		fmt.Fprintln(os.Stderr, "use the GPUs for the first time:", err)
	}
})

// check returns why there are not n devices of one vendor.
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
		return fmt.Errorf("the test needs %[2]d GPUs, but the host has %[1]d", most, n)
	}
	return nil
}
