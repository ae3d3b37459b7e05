// SPDX-License-Identifier: MIT

package gputest

import "unsafe"

// bytesAt are n bytes of host memory. Emulated device memory is some, too, but tests do not look:
// no GPU lets them.
func bytesAt(addr uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// at returns the value at an address.
func at[T any](addr uint64) *T { return (*T)(unsafe.Pointer(&bytesAt(addr, 1)[0])) }
