// SPDX-License-Identifier: MIT

// Package futex parks and wakes threads on words of memory (futex(2)).
package futex

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	opWait           = 0   // FUTEX_WAIT, linux/futex.h
	opWake           = 1   // FUTEX_WAKE
	futexPrivateFlag = 128 // FUTEX_PRIVATE_FLAG
)

func operation(op uintptr, shared bool) uintptr {
	if shared {
		return op
	}
	return op | futexPrivateFlag
}

// Wait parks the calling thread (not only the goroutine) while the word at addr is val, until Wake
// or the timeout. shared is for words in memory that processes share. Wait returns nil when woken,
// EAGAIN if the word was not val, ETIMEDOUT, or EINTR. In every case the caller reads the word
// again.
func Wait(addr uint64, val uint32, timeout time.Duration, shared bool) error {
	ts := unix.NsecToTimespec(max(int64(timeout), 0))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(addr), operation(opWait, shared), uintptr(val), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Wake wakes up to n threads that wait on the word at addr and returns their number.
func Wake(addr uint64, n int, shared bool) (int, error) {
	woken, _, errno := unix.Syscall(unix.SYS_FUTEX, uintptr(addr), operation(opWake, shared), uintptr(n))
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	return int(woken), nil
}

// WordAddr returns the address of w, for C code of this process. Go's heap does not move; the
// caller keeps w alive.
func WordAddr(w *atomic.Uint32) uint64 { return uint64(uintptr(unsafe.Pointer(w))) }

// WakeWord wakes every thread of this process that waits on w with FUTEX_WAIT_PRIVATE.
func WakeWord(w *atomic.Uint32) { _, _ = Wake(WordAddr(w), 1<<30, false) }
