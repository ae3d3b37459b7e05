// SPDX-License-Identifier: MIT

package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MapAligned maps limit bytes of fd, shared, at a multiple of align, a power of two. The file may
// be smaller for now: what lies behind its end must not be touched. Pages come into being when they
// are touched. Free unmaps whole, of which b is a part.
func MapAligned(fd int, limit, align uint64) (whole, b []byte, err error) {
	const access, kind = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_NORESERVE
	if align <= uint64(unix.Getpagesize()) {
		if b, err = unix.Mmap(fd, 0, int(limit), access, kind); err != nil {
			return nil, nil, fmt.Errorf("map %d bytes of shared memory: %w", limit, err)
		}
		return b, b, nil
	}
	room := limit + align // of addresses: no memory is behind them
	if whole, err = unix.Mmap(-1, 0, int(room), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE); err != nil {
		return nil, nil, fmt.Errorf("reserve %d bytes of address space: %w", room, err)
	}
	skip := -AddrOf(whole) & (align - 1)
	b = whole[skip:][:limit:limit]
	if _, err = unix.MmapPtr(fd, 0, pointer(AddrOf(b)), uintptr(limit), access, kind|unix.MAP_FIXED); err != nil {
		_ = Free(whole)
		return nil, nil, fmt.Errorf("map %d bytes of shared memory at %#x: %w", limit, AddrOf(b), err)
	}
	return whole, b, nil
}

// Mapped reports whether all of n bytes at addr are mapped: msync looks, and MS_ASYNC has it do
// nothing else.
func Mapped(addr, n uint64) bool {
	page := uint64(unix.Getpagesize())
	begin := addr &^ (page - 1)
	_, _, errno := unix.Syscall(unix.SYS_MSYNC, uintptr(begin), uintptr(addr+n-begin), unix.MS_ASYNC)
	return errno == 0
}
