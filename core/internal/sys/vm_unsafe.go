// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// VMRead copies from remote, memory of process pid, to local, in order, until one of the lists ends
// or a page on either side cannot be touched. It returns the exact number of bytes moved, with
// EFAULT for such a page, ESRCH when the process is gone, and EPERM when the kernel forbids it.
// Lists may have any length; entries are used up: an entry in which the kernel stopped is changed.
func VMRead(pid int, local, remote []Iovec) (int, error) {
	return vmCopy(unix.SYS_PROCESS_VM_READV, pid, local, remote)
}

// VMWrite copies from local to remote, memory of process pid; in all else it is [VMRead].
func VMWrite(pid int, local, remote []Iovec) (int, error) {
	return vmCopy(unix.SYS_PROCESS_VM_WRITEV, pid, local, remote)
}

// vmCopy repeats the call after every partial result. The manual promises results that do not split
// an entry; kernels do split at pages, so the rest is computed in bytes.
func vmCopy(trap uintptr, pid int, local, remote []Iovec) (int, error) {
	moved := 0
	for {
		local, remote = Advance(local, 0), Advance(remote, 0)
		if len(local) == 0 || len(remote) == 0 {
			return moved, nil
		}
		n, errno := vmCall(trap, pid, local[:min(len(local), IovMax)], remote[:min(len(remote), IovMax)])
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return moved, errno
		}
		if n == 0 {
			return moved, syscall.EFAULT
		}
		moved += n
		local, remote = Advance(local, uint64(n)), Advance(remote, uint64(n))
	}
}

func vmCall(trap uintptr, pid int, local, remote []Iovec) (int, syscall.Errno) {
	n, _, errno := unix.Syscall6(trap, uintptr(pid), uintptr(unsafe.Pointer(unsafe.SliceData(local))), uintptr(len(local)),
		uintptr(unsafe.Pointer(unsafe.SliceData(remote))), uintptr(len(remote)), 0)
	return int(n), errno
}
