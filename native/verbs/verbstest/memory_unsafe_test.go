// SPDX-License-Identifier: MIT

package verbstest

import (
	"syscall"
	"unsafe"
)

// pages are n zeroed bytes outside of Go's heap, with their address.
func pages(n int) ([]byte, uint64, error) {
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	return b, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), err
}

func unmap(b []byte) error {
	if b == nil {
		return nil
	}
	return syscall.Munmap(b)
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
