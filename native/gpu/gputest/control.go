// SPDX-License-Identifier: MIT

package gputest

// static void call1(void *f, int a) { ((void (*)(int))f)(a); }
import "C"

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/native/internal/emulate"
)

// NeedEmulated skips a test where the GPU is real: it does what only an emulated one can be made
// to.
func NeedEmulated(tb testing.TB) {
	tb.Helper()
	if Real() {
		tb.Skip("the test needs an emulated GPU, but this one is real")
	}
	Need(tb)
}

// Hold keeps work on the GPUs of this process that has not begun from beginning, until release is
// called or the test ends. Calls that wait for such work, copies to pageable memory, then wait,
// too.
func Hold(tb testing.TB) (release func()) {
	tb.Helper()
	NeedEmulated(tb)
	hold(1)
	release = sync.OnceFunc(func() { hold(0) })
	tb.Cleanup(release)
	return release
}

func hold(on int) { C.call1(emulate.Symbol("fake_gpu_hold"), C.int(on)) }

// Fail has calls of the driver answer codes until the test ends or it is called with "":
// "cuMemAlloc_v2=2,cuStreamQuery=719". "work=719" loses the device when the turn of work comes that
// is queued now, for as long as the process lives.
func Fail(tb testing.TB, calls string) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv("FAKE_GPU", calls)
}

// Late keeps the last lane of each kernel that is launched from now on from beginning for so long,
// until the test ends: a kernel whose lanes do not decide alike then hangs.
func Late(tb testing.TB, d time.Duration) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv("FAKE_GPU_LATE", strconv.Itoa(int(d.Milliseconds())))
}

// MayWait is for Fail: what may wait until no kernel runs, or load code late: memory, pinned or
// not, modules, their functions, streams, peers.
var MayWait = strings.Join([]string{
	"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister_v2", "cuMemHostUnregister", "cuIpcOpenMemHandle_v2",
	"cuIpcCloseMemHandle", "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute", "cuStreamCreateWithPriority",
	"cuStreamDestroy_v2", "cuCtxEnablePeerAccess", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
}, "=999,") + "=999"

// Refuse has the driver refuse whatever it may do only once no kernel runs, until accept is called
// or the test ends: who has kernels wait for the host may ask for none of it.
func Refuse(tb testing.TB) (accept func()) {
	tb.Helper()
	Fail(tb, MayWait)
	return func() { Fail(tb, "") }
}

// Delay has work begin after random delays until the test ends, so that a wait which is missing
// shows.
func Delay(tb testing.TB, seed int) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv("FAKE_GPU_SEED", strconv.Itoa(seed))
}

// Idle has launches looked at and forgotten until the test ends, so that what is measured is their
// callers' share.
func Idle(tb testing.TB) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv("FAKE_GPU_IDLE", "1")
}

// Memory gives each GPU so many bytes until the test ends, so that they run out of it.
func Memory(tb testing.TB, bytes int64) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv("FAKE_GPU_BYTES", strconv.FormatInt(bytes, 10))
}
