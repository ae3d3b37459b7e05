// SPDX-License-Identifier: MIT

package nic

import (
	"runtime"
	"testing"
	"unsafe"
)

// memory is zeros that begin on a cache line and stay until the test ends.
func memory(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n+63)
	t.Cleanup(func() { runtime.KeepAlive(b) })
	off := int(-addrOf(b) & 63)
	return b[off : off+n : off+n]
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
