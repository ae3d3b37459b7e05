// SPDX-License-Identifier: MIT

package sys

import "unsafe"

// Slice is the n values of a type without pointers that lie at addr, aligned to it. It is valid
// while the memory's owner keeps it.
func Slice[T any](addr uint64, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(pointer(addr)), n)
}
