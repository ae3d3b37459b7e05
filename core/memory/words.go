// SPDX-License-Identifier: MIT

package memory

import (
	"time"

	"mori/core/internal/sys"
)

// The layers above the transports hold addresses, not pointers. These are the ways to what is there. Words must be aligned.

// Bytes is the memory of this process at addr, valid while its owner keeps it.
func Bytes(addr uint64, n uint64) []byte { return sys.Bytes(addr, int(n)) }

// AddrOf is where b begins; the caller keeps b alive.
func AddrOf(b []byte) uint64 { return sys.AddrOf(b) }

// Copy copies n bytes between two places of this process.
func Copy(dst, src, n uint64) { copy(sys.Bytes(dst, int(n)), sys.Bytes(src, int(n))) }

// Load64 reads a word atomically, Store64 writes it, Add64 adds to it and returns the sum.
func Load64(addr uint64) uint64       { return sys.Load64(addr) }
func Store64(addr uint64, v uint64)   { sys.Store64(addr, v) }
func Add64(addr, delta uint64) uint64 { return sys.Add64(addr, delta) }

// Load32 and Store32 are the same for half words.
func Load32(addr uint64) uint32     { return sys.Load32(addr) }
func Store32(addr uint64, v uint32) { sys.Store32(addr, v) }

// FutexWait parks until somebody wakes addr, its value is not v, or timeout is over. The word may be in shared memory.
func FutexWait(addr uint64, v uint32, timeout time.Duration) error {
	return sys.FutexWait(addr, v, timeout, true)
}

// FutexWake wakes up to n that are parked at addr, in any process.
func FutexWake(addr uint64, n int) { _, _ = sys.FutexWake(addr, n, true) }
