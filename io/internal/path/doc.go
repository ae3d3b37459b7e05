// SPDX-License-Identifier: MIT

// Package path has the connections that transfers use to reach a peer.
//
// A Path is one connected endpoint with its pending transfers. The flow of a transfer:
//
//	Start ─▶ (backlog while the endpoint's queue is full) ─▶ endpoint ─▶ completion queue ─▶
//	reap ─▶ opsEnded
//
// The goroutine that adds completions to the queue also reaps them. For ops that the provider
// finishes inline that is the submitting goroutine, else the provider's own. That saves two
// hand-overs between goroutines (8 bytes over TCP). Reaping never submits, because it may run
// inside Submit. It puts new submissions into a deferred list, for the next submit or the path's
// worker.
//
// The mutex of the backlog is held while submitting, and that of transfer.Order while statuses
// change.
package path
