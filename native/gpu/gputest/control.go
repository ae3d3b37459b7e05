// SPDX-License-Identifier: MIT

package gputest

// #include <dlfcn.h>
// #include <stdlib.h>
//
// static int hold(const char *name, int on) {
//	void (*call)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, name);
//	if (call)
//		call(on);
//	return call != 0;
// }
import "C"

import (
	"os"
	"strconv"
	"sync"
	"testing"
	"unsafe"
)

// steering are the variables by which the driver is told what to do. They are there from the start: C code may read the environment while a
// test changes variables that exist, and not while it adds some.
var steering = []string{"FAKE_GPU", "FAKE_GPU_BYTES", "FAKE_GPU_COUNT", "FAKE_GPU_SEED", "FAKE_GPU_DRIVER", "FAKE_GPU_ARCH"}

func prepareSteering() {
	for _, name := range steering {
		if _, ok := os.LookupEnv(name); !ok {
			_ = os.Setenv(name, "")
		}
	}
}

// NeedEmulated skips a test where the GPU is real: it does what only an emulated one can be made to.
func NeedEmulated(tb testing.TB) {
	tb.Helper()
	if Real() {
		tb.Skip("an emulated GPU is needed, and this one is real")
	}
	Need(tb)
}

// Hold keeps work on the GPUs of this process that has not begun from beginning, until release is called or the test ends.
// Calls that wait for such work, copies to pageable memory, then wait, too.
func Hold(tb testing.TB) (release func()) {
	tb.Helper()
	NeedEmulated(tb)
	hold(1)
	release = sync.OnceFunc(func() { hold(0) })
	tb.Cleanup(release)
	return release
}

func hold(on int) {
	name := C.CString("fake_gpu_hold")
	defer C.free(unsafe.Pointer(name))
	if C.hold(name, C.int(on)) == 0 {
		panic("the emulated GPU has no fake_gpu_hold")
	}
}

// Fail has calls of the driver answer codes until the test ends or it is called with "": "cuMemAlloc_v2=2,cuStreamQuery=719".
// "work=719" loses the device when the turn of work comes that is queued now, for as long as the process lives.
func Fail(tb testing.TB, calls string) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv("FAKE_GPU", calls)
}

// Delay has work begin after random delays until the test ends, so that a wait which is missing shows.
func Delay(tb testing.TB, seed int) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv("FAKE_GPU_SEED", strconv.Itoa(seed))
}

// Memory gives each GPU so many bytes until the test ends, so that they run out of it.
func Memory(tb testing.TB, bytes int64) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv("FAKE_GPU_BYTES", strconv.FormatInt(bytes, 10))
}
