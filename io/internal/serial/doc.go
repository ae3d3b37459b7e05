// SPDX-License-Identifier: MIT

// Package serial serializes work of goroutines.
//
//   - Mutex is a mutex whose Lock is bounded by a context.
//   - Calls merges overlapping calls of one function.
package serial
