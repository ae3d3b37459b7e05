// SPDX-License-Identifier: MIT

package hostmath

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// canary fills memory that a kernel must leave alone.
const canary = 0xa5

// guarded is n bytes that end at a page nobody may touch, off bytes before it, after and before
// which lie canaries. An odd off gives an odd address for an even n.
func guarded(t testing.TB, n, off int) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (n + off + 64 + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		t.Fatalf("map %d bytes: %v", size+page, err)
	}
	if err := syscall.Mprotect(m[size:], syscall.PROT_NONE); err != nil {
		t.Fatalf("protect the guard page: %v", err)
	}
	begin := size - off - n
	before, after := m[:begin], m[begin+n:size]
	for _, b := range [][]byte{before, after} {
		for i := range b {
			b[i] = canary
		}
	}
	t.Cleanup(func() {
		if bytes.Count(before, []byte{canary}) != len(before) || bytes.Count(after, []byte{canary}) != len(after) {
			t.Errorf("bytes around a buffer of %d were written", n)
		}
		if err := syscall.Munmap(m); err != nil {
			t.Errorf("unmap %d bytes: %v", len(m), err)
		}
	})
	return m[begin : begin+n : begin+n]
}

// addr is where b lies. b is memory of guarded, which does not move.
func addr(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
