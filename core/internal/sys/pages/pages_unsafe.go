// SPDX-License-Identifier: MIT

package pages

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

var pageSize = uint64(os.Getpagesize())

// Map is the room that Resident needs. It must be in the heap, as what is part of a larger
// object is: the system call knows it by its address.
type Map [32]byte

// Resident reports whether the pages of iov are in memory, so that a system call that reads them
// does not wait for a page. It is false for entries of more than 32 pages, and true for memory that
// is not mapped, which a system call refuses at once. It takes 0.4 us an entry.
func Resident(iov []sys.Iovec, pages *Map) bool {
	for _, v := range iov {
		if v.Len == 0 {
			continue
		}
		start := v.Addr &^ (pageSize - 1)
		n := (v.Addr + v.Len - start + pageSize - 1) / pageSize
		if n > uint64(len(pages)) {
			return false
		}
		_, _, errno := unix.RawSyscall(unix.SYS_MINCORE, uintptr(start), uintptr(n)*uintptr(pageSize), uintptr(sys.AddrOf(pages[:])))
		if errno == syscall.ENOMEM {
			continue
		}
		if errno != 0 {
			return false
		}
		for _, p := range pages[:n] {
			if p&1 == 0 {
				return false
			}
		}
	}
	return true
}

// Mapped reports whether all of n bytes at addr are mapped: msync looks, and MS_ASYNC has it do
// nothing else.
func Mapped(addr, n uint64) bool {
	page := uint64(unix.Getpagesize())
	begin := addr &^ (page - 1)
	_, _, errno := unix.Syscall(unix.SYS_MSYNC, uintptr(begin), uintptr(addr+n-begin), unix.MS_ASYNC)
	return errno == 0
}

// NUMANode asks the kernel for the NUMA node of the page at addr (get_mempolicy with MPOL_F_NODE
// and MPOL_F_ADDR, linux/mempolicy.h). The page is not touched on our side; -1 if the kernel does
// not say.
func NUMANode(addr uint64) int {
	var node int32 = -1
	const byNode, byAddr = 1, 2
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&node)), 0, 0, uintptr(addr), byNode|byAddr, 0)
	if errno != 0 {
		return -1
	}
	return int(node)
}
