// SPDX-License-Identifier: MIT

package memory

import "mori/core/internal/sys"

// Slice returns the n values of a type without pointers at addr, which must be aligned. It is valid
// while the owner keeps the memory.
func Slice[T any](addr uint64, n int) []T { return sys.Slice[T](addr, n) }
