// SPDX-License-Identifier: MIT

package sys

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Alloc maps n bytes of zeroed memory outside Go's heap, on page boundaries. Free gives it back.
func Alloc(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return b, nil
}

// Free unmaps memory of Alloc or MapShared, the slice as it came from there.
func Free(b []byte) error {
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(b), err)
	}
	return nil
}

// seals forbid to change the size of a memfd, and to lift that.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Memfd makes an anonymous file of size bytes that two processes can map; its size cannot change.
// The caller closes it with CloseFD.
func Memfd(name string, size int) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make memfd %s: %w", name, err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("size memfd %s to %d: %w", name, size, err)
	}
	return fd, nil
}

// MapShared maps the memfd fd, which must be exactly size bytes and sealed: a file that its maker
// could shrink would kill us with SIGBUS. The mapping does not need fd any more. Free unmaps.
func MapShared(fd, size int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat shared memory: %w", err)
	}
	if st.Size != int64(size) {
		return nil, fmt.Errorf("shared memory of %d bytes, want %d: %w", st.Size, size, syscall.EINVAL)
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("get seals of shared memory: %w", err)
	}
	if got&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("shared memory is not sealed against shrinking: %w", syscall.EINVAL)
	}
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	return b, nil
}

// CloseFD closes a descriptor of this package.
func CloseFD(fd int) error { return unix.Close(fd) }

var pageSize = uint64(os.Getpagesize())

// PageMap is the room that Resident needs. It must be in the heap, as what is part of a larger
// object is: the system call knows it by its address.
type PageMap [32]byte

// Resident reports whether the pages of iov are in memory, so that a system call that reads them
// does not wait for a page. It is false for entries of more than 32 pages, and true for memory that
// is not mapped, which a system call refuses at once. It takes 0.4 us an entry.
func Resident(iov []Iovec, pages *PageMap) bool {
	for _, v := range iov {
		if v.Len == 0 {
			continue
		}
		start := v.Addr &^ (pageSize - 1)
		n := (v.Addr + v.Len - start + pageSize - 1) / pageSize
		if n > uint64(len(pages)) {
			return false
		}
		_, _, errno := unix.RawSyscall(unix.SYS_MINCORE, uintptr(start), uintptr(n)*uintptr(pageSize), uintptr(AddrOf(pages[:])))
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
