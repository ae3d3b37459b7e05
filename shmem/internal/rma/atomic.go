// SPDX-License-Identifier: MIT

package rma

import (
	"errors"
	"fmt"

	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
)

// Atomic changes the word of size bytes, 4 or 8, at the symmetric address dest of PE pe, atomically
// towards all atomics of that size. It may return before the change is complete; Quiet waits for
// it.
func (r *RMA) Atomic(op access.AtomicOp, size int, dest, value uint64, pe int) error {
	if at := r.near(dest, uint64(size), pe); at != 0 && op >= access.AtomicInc && op <= access.AtomicSignalAdd && at&uint64(size-1) == 0 {
		switch {
		case size == 8:
			access.Atomic64(op, at, value, 0)
			if r.wake.Sleeps(pe) {
				r.wake.WakeHeap(pe)
			}
			return nil
		case size == 4 && op <= access.AtomicXor:
			access.Atomic32(op, at, uint32(value), 0)
			if r.wake.Sleeps(pe) {
				r.wake.WakeHeap(pe)
			}
			return nil
		}
	}
	_, err := r.atomic(op, access.AtomicInc, access.AtomicSignalAdd, size, dest, value, 0, pe)
	if err != nil {
		return atomicError(op, size, dest, pe, err)
	}
	return nil
}

// FetchAtomic changes a word like Atomic and returns its previous value. compare is for
// access.AtomicCompareSwap.
func (r *RMA) FetchAtomic(op access.AtomicOp, size int, dest, value, compare uint64, pe int) (old uint64, err error) {
	if at := r.near(dest, uint64(size), pe); at != 0 && op >= access.AtomicFetch && op <= access.AtomicCompareSwap && at&uint64(size-1) == 0 {
		switch size {
		case 8:
			old = access.Atomic64(op, at, value, compare)
			if r.wake.Sleeps(pe) {
				r.wake.WakeHeap(pe)
			}
			return old, nil
		case 4:
			old = uint64(access.Atomic32(op, at, uint32(value), uint32(compare)))
			if r.wake.Sleeps(pe) {
				r.wake.WakeHeap(pe)
			}
			return old, nil
		}
	}
	old, err = r.atomic(op, access.AtomicFetch, access.AtomicCompareSwap, size, dest, value, compare, pe)
	if err != nil {
		return 0, atomicError(op, size, dest, pe, err)
	}
	return old, nil
}

// atomic executes an op in the range first to last.
func (r *RMA) atomic(op, first, last access.AtomicOp, size int, dest, value, compare uint64, pe int) (uint64, error) {
	if op < first || op > last {
		return 0, fmt.Errorf("want an op from %d to %d: %w", first, last, peers.ErrInvalid)
	}
	if size != 8 && (size != 4 || op.Signal()) {
		return 0, fmt.Errorf("of that size: %w", peers.ErrInvalid)
	}
	if dest&uint64(size-1) != 0 {
		return 0, fmt.Errorf("the address is not aligned: %w", peers.ErrInvalid)
	}
	if err := r.pes.HasPE(pe); err != nil {
		return 0, err
	}
	b, off, err := r.heap.Locate(dest, uint64(size))
	if err != nil {
		return 0, err
	}
	at := b.At(pe)
	if at == 0 {
		if op == access.AtomicInc || op == access.AtomicFetchInc {
			value = 1
		}
		if last == access.AtomicSignalAdd {
			return 0, r.net.Update(pe, b.Regions(), off, op.Fabric(), size, value)
		}
		if b.OnGPU && op == access.AtomicSwap {
			return 0, fmt.Errorf("a swap on GPU memory that only a network reaches: %w", errors.ErrUnsupported)
		}
		return r.net.Atomic(pe, b.Regions(), off, op.Fabric(), size, value, compare)
	}
	old, err := b.Mem.Atomic(op, size, at+off, value, compare)
	if err == nil && op != access.AtomicFetch {
		r.wake.WakeHeap(pe)
	}
	return old, err
}

func atomicError(op access.AtomicOp, size int, dest uint64, pe int, err error) error {
	return fmt.Errorf("atomic %v of %d bytes at %#x, PE %d: %w", op, size, dest, pe, err)
}
