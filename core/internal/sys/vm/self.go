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

	// selfRefused is set once the kernel has refused process_vm_writev on this very process, as a
	// seccomp filter may.
	selfRefused atomic.Bool
)

// CopySelf copies from src to dst, both in this process, by a system call, until one list ends. It
// is for memory that others own: a page that cannot be touched is EFAULT whatever handles SIGSEGV
// here, and while a page is long in coming (userfaultfd, a network file system) only the calling
// thread waits: a page fault in Go code would stop the garbage collector, and with it the process.
// Entries are used up. Where the kernel refuses the call, CopySelf is sys.Copy.
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

// Load fills dst from memory of others at src; see CopySelf.
func Load(dst []byte, src uint64) error {
	to := [1]sys.Iovec{{Addr: sys.AddrOf(dst), Len: uint64(len(dst))}}
	from := [1]sys.Iovec{{Addr: src, Len: uint64(len(dst))}}
	_, err := CopySelf(to[:], from[:])
	return err
}
