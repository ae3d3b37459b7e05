// SPDX-License-Identifier: MIT

package sys

import (
	"sync/atomic"
	"unsafe"
)

// pointer turns an address into a pointer. It avoids vet's unsafeptr rule, which is about Go memory
// that moves or is freed; see the package comment for who keeps the memory alive.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// Bytes returns the memory of this process at addr as a slice. It is valid while its owner keeps
// the memory.
func Bytes(addr uint64, n int) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(addr)), n)
}

// escaped is never true. An assignment under it makes the compiler place the value on the heap.
var (
	escaped bool
	//lint:ignore U1000 only written
	sink []byte
)

// AddrOf returns the address of b's first byte. The caller keeps b alive. b escapes to the heap, so
// its address does not change.
func AddrOf(b []byte) uint64 {
	if escaped {
		sink = b
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Addresses of words must be aligned to their size.

// Load32 reads the word at addr atomically.
func Load32(addr uint64) uint32 { return atomic.LoadUint32((*uint32)(pointer(addr))) }

// Store32 writes the word at addr atomically.
func Store32(addr uint64, v uint32) { atomic.StoreUint32((*uint32)(pointer(addr)), v) }

// Swap32 writes the word at addr atomically and returns the previous value.
func Swap32(addr uint64, v uint32) uint32 { return atomic.SwapUint32((*uint32)(pointer(addr)), v) }

// Load64 reads the word at addr atomically.
func Load64(addr uint64) uint64 { return atomic.LoadUint64((*uint64)(pointer(addr))) }

// Store64 writes the word at addr atomically.
func Store64(addr uint64, v uint64) { atomic.StoreUint64((*uint64)(pointer(addr)), v) }

// Add64 adds delta to the word at addr atomically and returns the sum.
func Add64(addr, delta uint64) uint64 { return atomic.AddUint64((*uint64)(pointer(addr)), delta) }

// Add32 adds delta to the word at addr atomically and returns the sum.
func Add32(addr uint64, delta uint32) uint32 {
	return atomic.AddUint32((*uint32)(pointer(addr)), delta)
}

// Swap64 writes the word at addr atomically and returns the previous value.
func Swap64(addr, v uint64) uint64 { return atomic.SwapUint64((*uint64)(pointer(addr)), v) }

// And64 and Or64 change the word at addr atomically and return the previous value. And32 and Or32
// do so for 32-bit words.
func And64(addr, mask uint64) uint64        { return atomic.AndUint64((*uint64)(pointer(addr)), mask) }
func Or64(addr, mask uint64) uint64         { return atomic.OrUint64((*uint64)(pointer(addr)), mask) }
func And32(addr uint64, mask uint32) uint32 { return atomic.AndUint32((*uint32)(pointer(addr)), mask) }
func Or32(addr uint64, mask uint32) uint32  { return atomic.OrUint32((*uint32)(pointer(addr)), mask) }

// CompareAndSwap32 sets the word at addr to v atomically if it equals old, and reports whether it
// did.
func CompareAndSwap32(addr uint64, old, v uint32) bool {
	return atomic.CompareAndSwapUint32((*uint32)(pointer(addr)), old, v)
}

// CompareAndSwap64 sets the word at addr to v atomically if it equals old, and reports whether it
// did.
func CompareAndSwap64(addr, old, v uint64) bool {
	return atomic.CompareAndSwapUint64((*uint64)(pointer(addr)), old, v)
}
