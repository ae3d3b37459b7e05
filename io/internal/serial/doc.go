// SPDX-License-Identifier: MIT

// Package serial lets one goroutine at a time do something.
//
//   - Mutex is a mutex whose wait ends with a context.
//   - Calls merges overlapping calls of one function.
package serial
