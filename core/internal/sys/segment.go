// SPDX-License-Identifier: MIT

package sys

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// growSeals forbid to make a memfd smaller.
const growSeals = unix.F_SEAL_SHRINK

// MemfdGrowing makes an anonymous file of size bytes that Truncate makes larger, and nobody
// smaller.
func MemfdGrowing(name string, size uint64) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make memfd %s: %w", name, err)
	}
	if err = Truncate(fd, size); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, growSeals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("make memfd %s of %d bytes: %w", name, size, err)
	}
	return fd, nil
}

// Truncate sets the size of a file.
func Truncate(fd int, size uint64) error {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return fmt.Errorf("resize to %d bytes: %w", size, err)
	}
	return nil
}

// SizeOf is the size of a file, which must be sealed against shrinking: who maps a file that its
// maker could shrink may be killed by SIGBUS.
func SizeOf(fd int) (uint64, error) {
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
