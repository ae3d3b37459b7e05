// SPDX-License-Identifier: MIT

package io

import (
	"runtime"
	"testing"
	"unsafe"
)

// buffer returns n bytes that stay where they are until the test ends, and their address.
func buffer(t testing.TB, n int) ([]byte, uint64) {
	t.Helper()
	b := make([]byte, max(n, 1))
	pin := new(runtime.Pinner)
	pin.Pin(&b[0])
	t.Cleanup(pin.Unpin)
	return b[:n], uint64(uintptr(unsafe.Pointer(&b[0])))
}
