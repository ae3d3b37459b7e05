// SPDX-License-Identifier: MIT

package verbs

import (
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAt maps n bytes of new memory, at an address if it is not 0: where nothing is, or in place of
// what is there.
func mapAt(at, n uint64, over bool) ([]byte, error) {
	how := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	switch {
	case over:
		how |= unix.MAP_FIXED
	case at != 0:
		how |= unix.MAP_FIXED_NOREPLACE
	}
	p, err := unix.MmapPtr(-1, 0, *(*unsafe.Pointer)(unsafe.Pointer(&at)), uintptr(n), unix.PROT_READ|unix.PROT_WRITE, how)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

func unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// forked makes a child that has all memory of this process and does nothing, until the test ends.
// Programs of Go start others without one moment of that; programs of Python do not.
func forked(tb testing.TB) {
	tb.Helper()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for { // nothing of Go's runtime works here
			_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	if errno != 0 {
		tb.Fatal(errno)
	}
	tb.Cleanup(func() {
		ok(tb, syscall.Kill(int(pid), syscall.SIGKILL))
		_, err := syscall.Wait4(int(pid), nil, 0, nil)
		ok(tb, err)
	})
}
