// SPDX-License-Identifier: MIT

package pages

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procmapQuery is struct procmap_query of linux/fs.h (Linux 6.11).
type procmapQuery struct {
	size, queryFlags, queryAddr               uint64
	begin, end, flags, pageSize, offset, node uint64
	devMajor, devMinor, nameSize, buildIDSize uint32
	nameAddr, buildIDAddr                     uint64
}

const (
	procmapQueryCall = 0xc0686611 // PROCMAP_QUERY
	procmapReadable  = 1
	procmapWritable  = 2
)

// queryMapping queries the mapping that contains addr. ENOENT: nothing is mapped there. ENOTTY: the
// kernel does not support the ioctl.
func queryMapping(maps int, addr uint64) (end uint64, readable, writable bool, err error) {
	q := procmapQuery{size: uint64(unsafe.Sizeof(procmapQuery{})), queryAddr: addr}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(maps), procmapQueryCall, uintptr(unsafe.Pointer(&q)))
	if errno != 0 {
		return 0, false, false, syscall.Errno(errno)
	}
	return q.end, q.flags&procmapReadable != 0, q.flags&procmapWritable != 0, nil
}
