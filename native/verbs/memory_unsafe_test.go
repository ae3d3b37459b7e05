// SPDX-License-Identifier: MIT

package verbs_test

import (
	"syscall"
	"testing"
	"unsafe"
)

// memory is n zeroed bytes outside of Go's heap, with their address, until the test ends.
func memory(tb testing.TB, n int) ([]byte, uint64) {
	tb.Helper()
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			tb.Error(err)
		}
	})
	return b, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
