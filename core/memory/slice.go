// SPDX-License-Identifier: MIT

package memory

import "mori/core/internal/sys"

// Slice is the n values of a type without pointers that lie at addr, aligned to it; valid while the
// memory's owner keeps it.
func Slice[T any](addr uint64, n int) []T { return sys.Slice[T](addr, n) }
