// SPDX-License-Identifier: MIT

package memory

import (
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/futex"
	"mori/core/internal/sys/pages"
	"mori/core/internal/sys/thread"
)

// The layers above the transports use addresses instead of pointers. These functions access memory
// by address. Words must be aligned.

// Bytes returns the memory of this process at addr, valid while its owner keeps it.
func Bytes(addr uint64, n uint64) []byte { return sys.Bytes(addr, int(n)) }

// AddrOf returns the address of b, which the caller keeps alive.
func AddrOf(b []byte) uint64 { return sys.AddrOf(b) }

// Copy copies n bytes within this process.
func Copy(dst, src, n uint64) { sys.CopyRange(dst, src, n) }

// Move is Copy that returns EFAULT if memory is not mapped.
func Move(dst, src, n uint64) error { return sys.Move(dst, src, n) }

// MoveStrided moves count elements of size bytes each, one after the other, dstep bytes apart at
// dst and sstep apart at src.
func MoveStrided(dst, dstep, src, sstep, size, count uint64) error {
	return sys.MoveStrided(dst, dstep, src, sstep, size, count)
}

// Fence orders all stores before it ahead of loads and stores after it.
func Fence() { sys.Fence() }

// Load64 reads a word atomically, Store64 writes it, Add64 adds to it and returns the sum.
func Load64(addr uint64) uint64       { return sys.Load64(addr) }
func Store64(addr uint64, v uint64)   { sys.Store64(addr, v) }
func Add64(addr, delta uint64) uint64 { return sys.Add64(addr, delta) }

// Swap64 writes a word atomically; And64, Or64 and Xor64 change its bits. They return its previous
// value. CompareAndSwap64 writes it if it equals old, and reports whether it did.
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

// The same for 4-byte words.
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

// FutexWait parks while the word at addr is v, until a wakeup or the timeout. The word may be in
// shared memory.
func FutexWait(addr uint64, v uint32, timeout time.Duration) error {
	return futex.Wait(addr, v, timeout, true)
}

// FutexWake wakes up to n threads parked at addr, in any process.
func FutexWake(addr uint64, n int) { _, _ = futex.Wake(addr, n, true) }

// Yield lets other threads run on this core.
func Yield() { thread.Yield() }

// Mapped reports whether all of n bytes at addr are mapped in this process. They may be read-only.
func Mapped(addr, n uint64) bool { return pages.Mapped(addr, n) }

// CheckMapped returns an error that names the first page of n bytes at addr that this process may
// not both read and write. It accesses no page.
func CheckMapped(addr, n uint64) error { return pages.Check(addr, n) }
