// SPDX-License-Identifier: MIT

package shmem

import (
	"log/slog"
	"time"
)

// A Mode is how the symmetric heap is made.
type Mode int

// The modes, MORI_SHMEM_MODE.
const (
	StaticHeap Mode = iota // one block of HeapSize
	VMMHeap                // grows in chunks up to HeapSize
	Isolation              // each allocation is a block of its own
)

// Config shapes a World. All PEs have the same Mode, HeapSize and ChunkSize.
type Config struct {
	Mode       Mode
	HeapSize   uint64        // bytes: of the heap, of what it may grow to, of all blocks together
	ChunkSize  uint64        // bytes by which a VMMHeap grows
	DisableP2P bool          // map no peer's memory: go through core/fabric even on one host
	NodeID     string        // PEs with equal ids map each other's memory
	Host       string        // address that PEs of other hosts reach this one at
	Timeout    time.Duration // of collective calls and waits, 0 = none
	Log        *slog.Logger  // nil: none

	// Interrupt is asked every now and then by a call that waits, on the goroutine that called. An error ends the wait. A collective
	// call that it ends leaves the PEs out of step. Nil: none.
	Interrupt func() error
}
