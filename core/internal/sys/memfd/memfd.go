// SPDX-License-Identifier: MIT

package memfd

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// New makes an anonymous file of size bytes that two processes can map. Its size is fixed. The
// caller closes it with sys.CloseFD.
func New(name string, size int) (int, error) {
	return create(name, uint64(size), unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
}

// NewGrowing makes an anonymous file of size bytes. Truncate can enlarge it; nothing can shrink it.
func NewGrowing(name string, size uint64) (int, error) {
	return create(name, size, unix.F_SEAL_SHRINK)
}

func create(name string, size uint64, seals int) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make memfd %s: %w", name, err)
	}
	if err = Truncate(fd, size); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("make memfd %s of %d bytes: %w", name, size, err)
	}
	return fd, nil
}

// Map maps the memfd fd, which must be sealed and exactly size bytes long. fd may be closed
// afterwards. sys.Free unmaps the memory.
func Map(fd, size int) ([]byte, error) {
	got, err := Size(fd)
	if err != nil {
		return nil, err
	}
	if got != uint64(size) {
		return nil, fmt.Errorf("shared memory of %d bytes, want %d: %w", got, size, syscall.EINVAL)
	}
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	return b, nil
}

// Truncate sets the size of a file.
func Truncate(fd int, size uint64) error {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return fmt.Errorf("resize to %d bytes: %w", size, err)
	}
	return nil
}

// Size returns the size of a file, which must be sealed against shrinking. If another process could
// shrink a mapped file, SIGBUS would kill the process that maps it.
func Size(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("stat shared memory: %w", err)
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("get seals of shared memory: %w", err)
	}
	if got&unix.F_SEAL_SHRINK == 0 {
		return 0, fmt.Errorf("shared memory is not sealed against shrinking: %w", syscall.EINVAL)
	}
	return uint64(st.Size), nil
}
