// SPDX-License-Identifier: MIT

package memfd

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

// MapAligned maps limit bytes of fd, shared, at a multiple of align, a power of two. The file may
// still be smaller; memory beyond its end must not be accessed. The kernel allocates pages at the
// first access. b is a part of whole, which sys.Free unmaps.
func MapAligned(fd int, limit, align uint64) (whole, b []byte, err error) {
	const access, kind = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_NORESERVE
	if align <= uint64(unix.Getpagesize()) {
		if b, err = unix.Mmap(fd, 0, int(limit), access, kind); err != nil {
			return nil, nil, fmt.Errorf("map %d bytes of shared memory: %w", limit, err)
		}
		return b, b, nil
	}
	room := limit + align // address space without memory
	if whole, err = unix.Mmap(-1, 0, int(room), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE); err != nil {
		return nil, nil, fmt.Errorf("reserve %d bytes of address space: %w", room, err)
	}
	skip := -sys.AddrOf(whole) & (align - 1)
	b = whole[skip:][:limit:limit]
	if _, err = unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(limit), access, kind|unix.MAP_FIXED); err != nil {
		_ = sys.Free(whole)
		return nil, nil, fmt.Errorf("map %d bytes of shared memory at %#x: %w", limit, sys.AddrOf(b), err)
	}
	return whole, b, nil
}
