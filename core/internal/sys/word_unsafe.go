// SPDX-License-Identifier: MIT

package sys

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WordAddr is the address of w, for C code of this process. Go's heap does not move; the caller
// keeps w alive.
func WordAddr(w *atomic.Uint32) uint64 { return uint64(uintptr(unsafe.Pointer(w))) }

// WakeWord wakes every thread of this process that waits on w with FUTEX_WAIT_PRIVATE.
func WakeWord(w *atomic.Uint32) { _, _ = FutexWake(WordAddr(w), 1<<30, false) }

// NUMANodeOf asks the kernel for the NUMA node of the page at addr (get_mempolicy with MPOL_F_NODE
// and MPOL_F_ADDR, linux/mempolicy.h). The page is not touched on our side; -1 if the kernel does
// not say.
func NUMANodeOf(addr uint64) int {
	var node int32 = -1
	const byNode, byAddr = 1, 2
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&node)), 0, 0, uintptr(addr), byNode|byAddr, 0)
	if errno != 0 {
		return -1
	}
	return int(node)
}
