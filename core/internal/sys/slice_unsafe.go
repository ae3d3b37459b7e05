// SPDX-License-Identifier: MIT

package sys

import "unsafe"

// Addr is the address of a value that Slice gave.
func Addr[T any](v *T) uint64 { return uint64(uintptr(unsafe.Pointer(v))) }

// Slice is the n values of a type without pointers that lie at addr, aligned to it. It is valid
// while the memory's owner keeps it.
func Slice[T any](addr uint64, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(pointer(addr)), n)
}
