// SPDX-License-Identifier: MIT

package vm

import (
	"os"
	"sync/atomic"
	"syscall"

	"mori/core/internal/sys"
)

var (
	self = os.Getpid()

	// selfRefused is set once the kernel has refused process_vm_writev on this process, for example
	// because of a seccomp filter.
	selfRefused atomic.Bool
)

// CopySelf copies from src to dst, both in this process, with a system call, until one list ends.
// It is for memory that others own. A page that cannot be accessed results in EFAULT, whatever
// handles SIGSEGV here. If a page is slow to load (userfaultfd, a network file system), only the
// calling thread waits. A page fault in Go code would block the garbage collector, and with it the
// process. CopySelf modifies both lists. If the kernel refuses the call, CopySelf uses sys.Copy.
func CopySelf(dst, src []sys.Iovec) (moved int, err error) {
	if selfRefused.Load() {
		return sys.Copy(dst, src)
	}
	moved, err = Write(self, src, dst)
	if err == syscall.EPERM || err == syscall.ENOSYS {
		selfRefused.Store(true)
		return sys.Copy(dst, src)
	}
	return moved, err
}

// Load fills dst from memory at src that others own; see CopySelf.
func Load(dst []byte, src uint64) error {
	to := [1]sys.Iovec{{Addr: sys.AddrOf(dst), Len: uint64(len(dst))}}
	from := [1]sys.Iovec{{Addr: src, Len: uint64(len(dst))}}
	_, err := CopySelf(to[:], from[:])
	return err
}
