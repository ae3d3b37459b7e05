// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait        = 0   // FUTEX_WAIT, linux/futex.h
	futexWake        = 1   // FUTEX_WAKE
	futexPrivateFlag = 128 // FUTEX_PRIVATE_FLAG
)

func futexOp(op uintptr, shared bool) uintptr {
	if shared {
		return op
	}
	return op | futexPrivateFlag
}

// FutexWait parks the calling thread (not only the goroutine) while the word at addr is val, until
// FutexWake or the timeout. shared is for words in memory that processes share. It returns nil when
// woken, EAGAIN when the word was not val, ETIMEDOUT, or EINTR: the caller looks at the word again
// in every case.
func FutexWait(addr uint64, val uint32, timeout time.Duration, shared bool) error {
	ts := unix.NsecToTimespec(max(int64(timeout), 0))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(addr), futexOp(futexWait, shared), uintptr(val), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// FutexWake wakes up to n threads that wait on the word at addr and returns how many.
func FutexWake(addr uint64, n int, shared bool) (int, error) {
	woken, _, errno := unix.Syscall(unix.SYS_FUTEX, uintptr(addr), futexOp(futexWake, shared), uintptr(n))
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	return int(woken), nil
}
