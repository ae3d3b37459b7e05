// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"

	"mori/shmem/internal/access"
)

// An AtomicOp is what an atomic does with the word that is there, x, and its value, v.
type AtomicOp = access.AtomicOp

// The ops of Atomic, then those of FetchAtomic, which return x.
const (
	AtomicInc       = access.AtomicInc       // x + 1
	AtomicSet       = access.AtomicSet       // v
	AtomicAdd       = access.AtomicAdd       // x + v
	AtomicAnd       = access.AtomicAnd       // x & v
	AtomicOr        = access.AtomicOr        // x | v
	AtomicXor       = access.AtomicXor       // x ^ v
	AtomicSignal    = access.AtomicSignal    // v, 8 bytes
	AtomicSignalSet = access.AtomicSignalSet // v, 8 bytes
	AtomicSignalAdd = access.AtomicSignalAdd // x + v, 8 bytes

	AtomicFetch       = access.AtomicFetch       // x
	AtomicFetchInc    = access.AtomicFetchInc    // x + 1
	AtomicFetchAdd    = access.AtomicFetchAdd    // x + v
	AtomicFetchAnd    = access.AtomicFetchAnd    // x & v
	AtomicFetchOr     = access.AtomicFetchOr     // x | v
	AtomicFetchXor    = access.AtomicFetchXor    // x ^ v
	AtomicSwap        = access.AtomicSwap        // v
	AtomicCompareSwap = access.AtomicCompareSwap // v if x equals the other value, else x
)

// Atomic changes the word of size bytes, 4 or 8, at the symmetric address dest of PE pe, in one
// step among all atomics of that size. It may return before that is done, which Quiet waits for.
func (w *World) Atomic(op AtomicOp, size int, dest, value uint64, pe int) error {
	if at := w.heap.Near(dest, uint64(size), pe); at != 0 && op >= AtomicInc && op <= AtomicSignalAdd && at&uint64(size-1) == 0 {
		switch {
		case size == 8:
			access.Atomic64(op, at, value, 0)
			if w.waiter.Sleeps(pe) {
				w.waiter.WakeHeap(pe)
			}
			return nil
		case size == 4 && op <= AtomicXor:
			access.Atomic32(op, at, uint32(value), 0)
			if w.waiter.Sleeps(pe) {
				w.waiter.WakeHeap(pe)
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

// FetchAtomic changes a word like Atomic and returns what was there. compare is for
// AtomicCompareSwap.
func (w *World) FetchAtomic(op AtomicOp, size int, dest, value, compare uint64, pe int) (old uint64, err error) {
	if at := w.heap.Near(dest, uint64(size), pe); at != 0 && op >= AtomicFetch && op <= AtomicCompareSwap && at&uint64(size-1) == 0 {
		switch size {
		case 8:
			old = access.Atomic64(op, at, value, compare)
			if w.waiter.Sleeps(pe) {
				w.waiter.WakeHeap(pe)
			}
			return old, nil
		case 4:
			old = uint64(access.Atomic32(op, at, uint32(value), uint32(compare)))
			if w.waiter.Sleeps(pe) {
				w.waiter.WakeHeap(pe)
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
	if size != 8 && (size != 4 || op.Signal()) {
		return 0, fmt.Errorf("of that size: %w", ErrInvalid)
	}
	if dest&uint64(size-1) != 0 {
		return 0, fmt.Errorf("the address is not aligned: %w", ErrInvalid)
	}
	if err := w.pes.HasPE(pe); err != nil {
		return 0, err
	}
	b, off, err := w.heap.Locate(dest, uint64(size))
	if err != nil {
		return 0, err
	}
	at := b.At(pe)
	if at == 0 {
		if op == AtomicInc || op == AtomicFetchInc {
			value = 1
		}
		if last == AtomicSignalAdd {
			return 0, w.net.Update(pe, b.Regions(), off, op.Fabric(), size, value)
		}
		if b.OnGPU && op == AtomicSwap {
			return 0, fmt.Errorf("a swap on the memory of a GPU that only a network reaches: %w", errors.ErrUnsupported)
		}
		return w.net.Atomic(pe, b.Regions(), off, op.Fabric(), size, value, compare)
	}
	old, err := b.Mem.Atomic(op, size, at+off, value, compare)
	if err == nil && op != AtomicFetch {
		w.waiter.WakeHeap(pe)
	}
	return old, err
}

func atomicError(op AtomicOp, size int, dest uint64, pe int, err error) error {
	return fmt.Errorf("atomic %v of %d bytes at %#x, PE %d: %w", op, size, dest, pe, err)
}
