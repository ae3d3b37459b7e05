// SPDX-License-Identifier: MIT

package vm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

// Read copies from remote, memory of process pid, to local, in order, until one of the lists ends
// or a page on either side cannot be accessed. It returns the exact number of bytes copied, with
// EFAULT for such a page, ESRCH if the process does not exist, and EPERM if the kernel forbids the
// access. Lists may have any length. Read modifies both; it changes an entry in which the kernel
// stopped.
func Read(pid int, local, remote []sys.Iovec) (int, error) {
	return transfer(unix.SYS_PROCESS_VM_READV, pid, local, remote)
}

// Write copies from local to remote, memory of process pid; otherwise it is like [Read].
func Write(pid int, local, remote []sys.Iovec) (int, error) {
	return transfer(unix.SYS_PROCESS_VM_WRITEV, pid, local, remote)
}

// transfer repeats the call after every partial result. The manual says that partial results do not
// split an entry, but kernels split at pages, so transfer counts bytes.
func transfer(trap uintptr, pid int, local, remote []sys.Iovec) (int, error) {
	moved := 0
	for {
		local, remote = sys.Advance(local, 0), sys.Advance(remote, 0)
		if len(local) == 0 || len(remote) == 0 {
			return moved, nil
		}
		n, errno := call(trap, pid, local[:min(len(local), sys.IovMax)], remote[:min(len(remote), sys.IovMax)])
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
		local, remote = sys.Advance(local, uint64(n)), sys.Advance(remote, uint64(n))
	}
}

func call(trap uintptr, pid int, local, remote []sys.Iovec) (int, syscall.Errno) {
	n, _, errno := unix.Syscall6(trap, uintptr(pid), uintptr(unsafe.Pointer(unsafe.SliceData(local))), uintptr(len(local)),
		uintptr(unsafe.Pointer(unsafe.SliceData(remote))), uintptr(len(remote)), 0)
	return int(n), errno
}
