// SPDX-License-Identifier: MIT

package memory

import (
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/futex"
	"mori/core/internal/sys/pages"
	"mori/core/internal/sys/thread"
)

// The layers above the transports hold addresses, not pointers. These are the ways to what is
// there. Words must be aligned.

// Bytes is the memory of this process at addr, valid while its owner keeps it.
func Bytes(addr uint64, n uint64) []byte { return sys.Bytes(addr, int(n)) }

// AddrOf is where b begins; the caller keeps b alive.
func AddrOf(b []byte) uint64 { return sys.AddrOf(b) }

// Copy copies n bytes between two places of this process.
func Copy(dst, src, n uint64) { sys.CopyRange(dst, src, n) }

// Move is Copy of memory that may not be there: EFAULT.
func Move(dst, src, n uint64) error { return sys.Move(dst, src, n) }

// MoveStrided moves count elements of size bytes each, one after the other, dstep bytes apart at
// dst and sstep apart at src.
func MoveStrided(dst, dstep, src, sstep, size, count uint64) error {
	return sys.MoveStrided(dst, dstep, src, sstep, size, count)
}

// Fence makes stores before it visible to all before loads and stores after it are done.
func Fence() { sys.Fence() }

// Load64 reads a word atomically, Store64 writes it, Add64 adds to it and returns the sum.
func Load64(addr uint64) uint64       { return sys.Load64(addr) }
func Store64(addr uint64, v uint64)   { sys.Store64(addr, v) }
func Add64(addr, delta uint64) uint64 { return sys.Add64(addr, delta) }

// Swap64 writes a word atomically; And64, Or64 and Xor64 change its bits. They return what was
// there. CompareAndSwap64 writes it if it is old, and reports whether it was.
func Swap64(addr, v uint64) uint64              { return sys.Swap64(addr, v) }
func And64(addr, mask uint64) uint64            { return sys.And64(addr, mask) }
func Or64(addr, mask uint64) uint64             { return sys.Or64(addr, mask) }
func CompareAndSwap64(addr, old, v uint64) bool { return sys.CompareAndSwap64(addr, old, v) }

func Xor64(addr, mask uint64) uint64 {
	for {
		if old := sys.Load64(addr); sys.CompareAndSwap64(addr, old, old^mask) {
			return old
		}
	}
}

// The same for half words.
func Load32(addr uint64) uint32                        { return sys.Load32(addr) }
func Store32(addr uint64, v uint32)                    { sys.Store32(addr, v) }
func Add32(addr uint64, delta uint32) uint32           { return sys.Add32(addr, delta) }
func Swap32(addr uint64, v uint32) uint32              { return sys.Swap32(addr, v) }
func And32(addr uint64, mask uint32) uint32            { return sys.And32(addr, mask) }
func Or32(addr uint64, mask uint32) uint32             { return sys.Or32(addr, mask) }
func CompareAndSwap32(addr uint64, old, v uint32) bool { return sys.CompareAndSwap32(addr, old, v) }

func Xor32(addr uint64, mask uint32) uint32 {
	for {
		if old := sys.Load32(addr); sys.CompareAndSwap32(addr, old, old^mask) {
			return old
		}
	}
}

// FutexWait parks until somebody wakes addr, its value is not v, or timeout is over. The word may
// be in shared memory.
func FutexWait(addr uint64, v uint32, timeout time.Duration) error {
	return futex.Wait(addr, v, timeout, true)
}

// FutexWake wakes up to n that are parked at addr, in any process.
func FutexWake(addr uint64, n int) { _, _ = futex.Wake(addr, n, true) }

// Yield lets other threads of the machine have the core.
func Yield() { thread.Yield() }

// Mapped reports whether all of n bytes at addr are memory of this process. It does not say whether
// they may be written.
func Mapped(addr, n uint64) bool { return pages.Mapped(addr, n) }

// CheckMapped returns an error that names the first page of n bytes at addr that this process may
// not both read and write. No page is touched.
func CheckMapped(addr, n uint64) error { return pages.Check(addr, n) }
