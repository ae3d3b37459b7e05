// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/memory"
)

// An AtomicOp is what an atomic does with the word that is there, x, and its value, v. The numbers are upstream's atomicType.
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

// atomicOps say how an op is done over the network, where an increment is a sum.
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

// Atomic changes the word of size bytes, 4 or 8, at the symmetric address dest of PE pe, in one step among all atomics of that size. It may
// return before that is done, which Quiet waits for.
func (w *World) Atomic(op AtomicOp, size int, dest, value uint64, pe int) error {
	if at := w.near(dest, uint64(size), pe); at != 0 && op >= AtomicInc && op <= AtomicSignalAdd && at&uint64(size-1) == 0 {
		switch {
		case size == 8:
			atomic64(op, at, value, 0)
			if w.waits(pe) {
				w.stir(pe)
			}
			return nil
		case size == 4 && op <= AtomicXor:
			atomic32(op, at, uint32(value), 0)
			if w.waits(pe) {
				w.stir(pe)
			}
			return nil
		}
	}
	_, err := w.atomic(op, AtomicInc, AtomicSignalAdd, size, dest, value, 0, pe)
	if err != nil {
		return atomicError(op, size, dest, pe, err)
	}
	return nil
}

// FetchAtomic changes a word like Atomic and returns what was there. compare is for AtomicCompareSwap.
func (w *World) FetchAtomic(op AtomicOp, size int, dest, value, compare uint64, pe int) (old uint64, err error) {
	if at := w.near(dest, uint64(size), pe); at != 0 && op >= AtomicFetch && op <= AtomicCompareSwap && at&uint64(size-1) == 0 {
		switch size {
		case 8:
			old = atomic64(op, at, value, compare)
			if w.waits(pe) {
				w.stir(pe)
			}
			return old, nil
		case 4:
			old = uint64(atomic32(op, at, uint32(value), uint32(compare)))
			if w.waits(pe) {
				w.stir(pe)
			}
			return old, nil
		}
	}
	old, err = w.atomic(op, AtomicFetch, AtomicCompareSwap, size, dest, value, compare, pe)
	if err != nil {
		return 0, atomicError(op, size, dest, pe, err)
	}
	return old, nil
}

// atomic does an op that is one of those from first to last.
func (w *World) atomic(op, first, last AtomicOp, size int, dest, value, compare uint64, pe int) (uint64, error) {
	if op < first || op > last {
		return 0, fmt.Errorf("the ops here are %d to %d: %w", first, last, ErrInvalid)
	}
	if size != 8 && (size != 4 || atomicOps[op].signal) {
		return 0, fmt.Errorf("of that size: %w", ErrInvalid)
	}
	if dest&uint64(size-1) != 0 {
		return 0, fmt.Errorf("the address is not aligned: %w", ErrInvalid)
	}
	if err := w.pes.HasPE(pe); err != nil {
		return 0, err
	}
	b, off, err := w.locate(dest, uint64(size))
	if err != nil {
		return 0, err
	}
	at := b.peers[pe].mapped
	if at == 0 {
		if op == AtomicInc || op == AtomicFetchInc {
			value = 1
		}
		if last == AtomicSignalAdd {
			return 0, w.net.update(pe, b, off, atomicOps[op].op, size, value)
		}
		if b.gpu && op == AtomicSwap {
			return 0, fmt.Errorf("a swap on the memory of a GPU that only a network reaches: %w", errors.ErrUnsupported)
		}
		return w.net.atomic(pe, b, off, atomicOps[op].op, size, value, compare)
	}
	old, err := b.mem.atomic(op, size, at+off, value, compare)
	if err == nil && op != AtomicFetch {
		w.stir(pe)
	}
	return old, err
}

// atomic64 does op on the word at addr and returns what was there.
func atomic64(op AtomicOp, addr, v, compare uint64) uint64 {
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

// atomic32 is atomic64 of half words.
func atomic32(op AtomicOp, addr uint64, v, compare uint32) uint32 {
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

func atomicError(op AtomicOp, size int, dest uint64, pe int, err error) error {
	return fmt.Errorf("atomic %v of %d bytes at %#x, PE %d: %w", op, size, dest, pe, err)
}
