// SPDX-License-Identifier: MIT

package access

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/memory"
)

// An AtomicOp is an atomic operation on the word x with the value v. The numbers are upstream's
// atomicType.
type AtomicOp int

// The ops of Atomic, then those of FetchAtomic, which return x.
const (
	AtomicInc       AtomicOp = 2  // x + 1
	AtomicSet       AtomicOp = 3  // v
	AtomicAdd       AtomicOp = 4  // x + v
	AtomicAnd       AtomicOp = 5  // x & v
	AtomicOr        AtomicOp = 6  // x | v
	AtomicXor       AtomicOp = 7  // x ^ v
	AtomicSignal    AtomicOp = 8  // v, 8 bytes
	AtomicSignalSet AtomicOp = 9  // v, 8 bytes
	AtomicSignalAdd AtomicOp = 10 // x + v, 8 bytes

	AtomicFetch       AtomicOp = 12 // x
	AtomicFetchInc    AtomicOp = 13 // x + 1
	AtomicFetchAdd    AtomicOp = 14 // x + v
	AtomicFetchAnd    AtomicOp = 15 // x & v
	AtomicFetchOr     AtomicOp = 16 // x | v
	AtomicFetchXor    AtomicOp = 17 // x ^ v
	AtomicSwap        AtomicOp = 18 // v
	AtomicCompareSwap AtomicOp = 19 // v if x equals the other value, else x
)

// atomicOps maps ops to those of core/fabric, where an increment is a sum.
var atomicOps = [...]struct {
	name   string
	op     fabric.AtomicOp
	signal bool
}{
	AtomicInc: {"inc", fabric.AtomicSum, false}, AtomicSet: {"set", fabric.AtomicWrite, false}, AtomicAdd: {"add", fabric.AtomicSum, false},
	AtomicAnd: {"and", fabric.AtomicBAnd, false}, AtomicOr: {"or", fabric.AtomicBOr, false}, AtomicXor: {"xor", fabric.AtomicBXor, false},
	AtomicSignal: {"signal", fabric.AtomicWrite, true}, AtomicSignalSet: {"signal_set", fabric.AtomicWrite, true},
	AtomicSignalAdd: {"signal_add", fabric.AtomicSum, true}, AtomicFetch: {"fetch", fabric.AtomicRead, false},
	AtomicFetchInc: {"fetch_inc", fabric.AtomicSum, false}, AtomicFetchAdd: {"fetch_add", fabric.AtomicSum, false},
	AtomicFetchAnd: {"fetch_and", fabric.AtomicBAnd, false}, AtomicFetchOr: {"fetch_or", fabric.AtomicBOr, false},
	AtomicFetchXor: {"fetch_xor", fabric.AtomicBXor, false}, AtomicSwap: {"swap", fabric.AtomicWrite, false},
	AtomicCompareSwap: {"compare_swap", fabric.AtomicCSwap, false},
}

// String is OpenSHMEM's name of the op, without shmem_atomic_.
func (op AtomicOp) String() string {
	if op < 0 || int(op) >= len(atomicOps) || atomicOps[op].name == "" {
		return fmt.Sprintf("atomic %d", int(op))
	}
	return atomicOps[op].name
}

// Fabric returns the operation of core/fabric that does op over a network.
func (op AtomicOp) Fabric() fabric.AtomicOp { return atomicOps[op].op }

// Signal reports whether op is an op on a signal, a word of 8 bytes.
func (op AtomicOp) Signal() bool { return atomicOps[op].signal }

// Atomic64 applies op to the word at addr and returns its previous value.
func Atomic64(op AtomicOp, addr, v, compare uint64) uint64 {
	switch op {
	case AtomicFetch:
		return memory.Load64(addr)
	case AtomicInc, AtomicFetchInc:
		return memory.Add64(addr, 1) - 1
	case AtomicAdd, AtomicSignalAdd, AtomicFetchAdd:
		return memory.Add64(addr, v) - v
	case AtomicAnd, AtomicFetchAnd:
		return memory.And64(addr, v)
	case AtomicOr, AtomicFetchOr:
		return memory.Or64(addr, v)
	case AtomicXor, AtomicFetchXor:
		return memory.Xor64(addr, v)
	case AtomicCompareSwap:
		for {
			if memory.CompareAndSwap64(addr, compare, v) {
				return compare
			}
			if old := memory.Load64(addr); old != compare {
				return old
			}
		}
	}
	return memory.Swap64(addr, v)
}

// Atomic32 is Atomic64 for 4-byte words.
func Atomic32(op AtomicOp, addr uint64, v, compare uint32) uint32 {
	switch op {
	case AtomicFetch:
		return memory.Load32(addr)
	case AtomicInc, AtomicFetchInc:
		return memory.Add32(addr, 1) - 1
	case AtomicAdd, AtomicFetchAdd:
		return memory.Add32(addr, v) - v
	case AtomicAnd, AtomicFetchAnd:
		return memory.And32(addr, v)
	case AtomicOr, AtomicFetchOr:
		return memory.Or32(addr, v)
	case AtomicXor, AtomicFetchXor:
		return memory.Xor32(addr, v)
	case AtomicCompareSwap:
		for {
			if memory.CompareAndSwap32(addr, compare, v) {
				return compare
			}
			if old := memory.Load32(addr); old != compare {
				return old
			}
		}
	}
	return memory.Swap32(addr, v)
}

// LoadWord loads a word of 4 or 8 bytes.
func LoadWord(at uint64, size int) uint64 {
	if size == 4 {
		return uint64(memory.Load32(at))
	}
	return memory.Load64(at)
}

// StoreWord stores a word of 4 or 8 bytes.
func StoreWord(at uint64, size int, v uint64) {
	if size == 4 {
		memory.Store32(at, uint32(v))
	} else {
		memory.Store64(at, v)
	}
}
