// SPDX-License-Identifier: MIT

// Package gate finds out when a GPU has reached a point: an event or the end of what a stream was
// given.
//
//   - After names the point.
//   - Gate is that point as an event of the package's own, which the caller may not destroy.
//   - Set polls all gates of an engine in one goroutine, which runs only while gates are pending.
//   - Waiter is what waits for a gate.
package gate
