// SPDX-License-Identifier: MIT

package io

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// buffer returns n bytes and their address. They lie outside of Go's heap: engines of one process
// write to each other's memory, which the race detector would report.
func buffer(t testing.TB, n int) ([]byte, uint64) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, max(n, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b[:n], uint64(uintptr(unsafe.Pointer(&b[0])))
}

// bytesAt returns a view of n bytes outside of Go's heap.
func bytesAt(addr uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}
