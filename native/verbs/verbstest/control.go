// SPDX-License-Identifier: MIT

package verbstest

// #include <stdint.h>
// #include <stdlib.h>
//
// static void call2(void *f, int a, int b) { ((void (*)(int, int))f)(a, b); }
// static void call3(void *f, int a, int b, int c) { ((void (*)(int, int, int))f)(a, b, c); }
// static uint64_t bytes(void *f, int a) { return ((uint64_t (*)(int))f)(a); }
// static uint64_t most(void *f, const char *a) { return ((uint64_t (*)(const char *))f)(a); }
// static int objects(void *f) { return ((int (*)(void))f)(); }
import "C"

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"mori/native/internal/emulate"
	"mori/native/verbs"
)

func symbol(name string) unsafe.Pointer { return emulate.Symbol("fake_verbs_" + name) }

// set changes something of a device, which is 0 for emu0. undo changes it back, at the latest when
// the test ends.
func set(tb testing.TB, name string, device, on, off int) (undo func()) {
	tb.Helper()
	NeedEmulated(tb)
	f := symbol(name)
	C.call2(f, C.int(device), C.int(on))
	undo = sync.OnceFunc(func() { C.call2(f, C.int(device), C.int(off)) })
	tb.Cleanup(undo)
	return undo
}

// PortDown takes the link of a device's port away, until up is called or the test ends. Contexts
// hear EventPortErr, and EventPortActive then. What queue pairs of this process send by it, or
// others send to them, ends with StatusRetryExceeded after their timeout.
func PortDown(tb testing.TB, device int) (up func()) {
	tb.Helper()
	return set(tb, "port", device, 0, 1)
}

// Remove takes a device out: its contexts hear EventDeviceFatal, and all but their closing answers
// EIO, for good. When back is called, or the test ends, it may be opened again.
func Remove(tb testing.TB, device int) (back func()) {
	tb.Helper()
	return set(tb, "remove", device, 1, 0)
}

// Hold has nothing move on a device in this process until release is called or the test ends.
// Nothing times out meanwhile.
func Hold(tb testing.TB, device int) (release func()) {
	tb.Helper()
	return set(tb, "hold", device, 1, 0)
}

// DropGID takes an entry out of a device's GID table, until back is called or the test ends.
// Contexts hear EventGIDChange.
func DropGID(tb testing.TB, device, index int) (back func()) {
	tb.Helper()
	NeedEmulated(tb)
	f := symbol("gid")
	C.call3(f, C.int(device), C.int(index), 0)
	back = sync.OnceFunc(func() { C.call3(f, C.int(device), C.int(index), 1) })
	tb.Cleanup(back)
	return back
}

// FailNext has the next work request of this process with an opcode (verbs.OpWrite...) end with a
// status, without being done.
func FailNext(tb testing.TB, op uint8, status verbs.Status) {
	tb.Helper()
	NeedEmulated(tb)
	f := symbol("fail_next")
	C.call2(f, C.int(op), C.int(status))
	tb.Cleanup(func() { C.call2(f, -1, 0) })
}

// Bytes are those of the work requests of this process that a device has done.
func Bytes(tb testing.TB, device int) uint64 {
	tb.Helper()
	NeedEmulated(tb)
	return uint64(C.bytes(symbol("bytes"), C.int(device)))
}

// Most is the largest number of a name that this process has asked of the library since the last
// call for that name: the fields of struct ibv_qp_cap (max_send_wr...), cqe, sl, traffic_class,
// sgid_index, path_mtu (bytes), num_sge and length of a request to send, posted (requests of one
// call), access of a region, dmabuf (the bytes of a region that is of a dma-buf).
func Most(tb testing.TB, name string) uint64 {
	tb.Helper()
	NeedEmulated(tb)
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return uint64(C.most(symbol("most"), c))
}

// Objects are those of the library that this process has made and not closed, of all kinds.
func Objects(tb testing.TB) int {
	tb.Helper()
	NeedEmulated(tb)
	return int(C.objects(symbol("objects")))
}

// Fail has calls of the library answer errnos until the test ends or it is called with "":
// "ibv_reg_mr=12,ibv_poll_cq=5".
func Fail(tb testing.TB, calls string) { steer(tb, "FAKE_VERBS", calls) }

// Limit changes limits of the devices until the test ends, by their names in struct ibv_device_attr
// and ibv_port_attr, and max_inline: "max_mr_size=65536,max_qp_wr=16,active_mtu=2".
func Limit(tb testing.TB, limits ...string) {
	tb.Helper()
	steer(tb, "FAKE_VERBS_LIMITS", strings.Join(limits, ","))
}

// Delay has all that devices do begin after random delays until the test ends, so that a wait which
// is missing shows.
func Delay(tb testing.TB, seed int) { steer(tb, "FAKE_VERBS_SEED", strconv.Itoa(seed)) }

// Count changes how many devices there are until the test ends.
func Count(tb testing.TB, n int) { steer(tb, "FAKE_VERBS_COUNT", strconv.Itoa(n)) }

// Timeout changes until the test ends how long one try to reach a peer lasts at most: 50 ms
// otherwise, whatever a queue pair's timeout is.
func Timeout(tb testing.TB, ms int) { steer(tb, "FAKE_VERBS_TIMEOUT_MS", strconv.Itoa(ms)) }

// PeerMemory has a module until the test ends by which regions may be of an emulated GPU's memory,
// as nvidia_peermem is one. Dma-bufs need none.
func PeerMemory(tb testing.TB) { steer(tb, "FAKE_VERBS_PEERMEM", "1") }

func steer(tb testing.TB, name, value string) {
	tb.Helper()
	NeedEmulated(tb)
	tb.Setenv(name, value)
}
