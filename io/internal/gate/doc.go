// SPDX-License-Identifier: MIT

// Package gate detects when a GPU has reached a point: an event, or the end of the work queued on a
// stream.
//
//   - After names the point.
//   - Gate is that point as an event that the package owns, so the caller cannot destroy it.
//   - Set polls all gates of an engine in one goroutine, which runs only while gates are pending.
//   - Waiter is called when a gate opens.
package gate
