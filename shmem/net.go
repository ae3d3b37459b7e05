// SPDX-License-Identifier: MIT

package shmem

import (
	"time"

	"mori/core/fabric"
)

// A network reaches the PEs whose memory is not mapped here. Offsets are in b. What is queued starts at once and ends in any order.
// Errors name the PE. Safe for concurrent use.
type network interface {
	// put and get queue a transfer, whose local bytes stay untouched until quiet.
	put(pe int, b *block, off, src, n uint64) error
	get(pe int, b *block, off, dst, n uint64) error

	// putNow is put that returns when src may be used again. getNow returns when the bytes are there.
	putNow(pe int, b *block, off, src, n uint64) error
	getNow(pe int, b *block, off, dst, n uint64) error

	// atomic applies op to the word of size bytes at off, after what was put to the PE before a fence, and returns what was there.
	// An AtomicCSwap stores value if the word is compare.
	atomic(pe int, b *block, off uint64, op fabric.AtomicOp, size int, value, compare uint64) (old uint64, err error)

	// update queues an atomic that returns nothing.
	update(pe int, b *block, off uint64, op fabric.AtomicOp, size int, value uint64) error

	// fence makes what was put to a PE before visible there before what is put later. It does not wait.
	fence() error

	// quiet waits until all that was queued is done, and returns the first error of what could not be. A zero deadline is none. When it is
	// over, what is not done still owns its memory.
	quiet(deadline time.Time) error
}
