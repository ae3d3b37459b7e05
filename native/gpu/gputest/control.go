// SPDX-License-Identifier: MIT

package gputest

// static void call1(void *f, int a) { ((void (*)(int))f)(a); }
import "C"

import (
	"strconv"
	"sync"
	"testing"

	"mori/native/internal/emulate"
)

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

func hold(on int) { C.call1(emulate.Symbol("fake_gpu_hold"), C.int(on)) }

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
