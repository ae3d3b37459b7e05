// SPDX-License-Identifier: MIT

// Package path has the connections over which transfers travel to a peer.
//
// A Path is one connected endpoint, and what is in flight on it. Flow of a transfer:
//
//	Start ─▶ (backlog while the endpoint's queue is full) ─▶ endpoint ─▶ completion queue ─▶
//	reap ─▶ opsEnded
//
// The goroutine that adds completions to the queue reaps them: the submitting goroutine for what
// the provider finishes inline, else the provider's own. That saves two hand-overs between
// goroutines (8 bytes over TCP). Reaping never submits, because it may run inside Submit. It leaves
// new submissions in a deferred list, to the next submit or to the path's worker.
//
// The mutex of the backlog is held while submitting, and that of transfer.Order while statuses
// change.
package path
