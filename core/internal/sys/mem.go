// SPDX-License-Identifier: MIT

package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Alloc maps n bytes of zeroed memory outside Go's heap, page-aligned. Free unmaps it.
func Alloc(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return b, nil
}

// Free unmaps memory of Alloc or of package memfd. b must be the slice that they returned.
func Free(b []byte) error {
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(b), err)
	}
	return nil
}

// CloseFD closes a descriptor of this package.
func CloseFD(fd int) error { return unix.Close(fd) }
