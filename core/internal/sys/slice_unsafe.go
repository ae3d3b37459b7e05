// SPDX-License-Identifier: MIT

package sys

import "unsafe"

// Addr returns the address of a value in a result of Slice.
func Addr[T any](v *T) uint64 { return uint64(uintptr(unsafe.Pointer(v))) }

// Slice returns the n values at addr, which must be aligned. Their type must not contain pointers.
// The slice is valid while the memory's owner keeps it.
func Slice[T any](addr uint64, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(pointer(addr)), n)
}
