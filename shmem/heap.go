// SPDX-License-Identifier: MIT

package shmem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"mori/core/memory"
)

// Malloc gives size bytes of symmetric memory, which begin at a multiple of 256 on every PE, and returns their address here. The
// bytes are zeros the first time. Size 0 gives 0. All PEs call with the same size: if they do not, none gets anything, and the error says
// who asked for what. Collective.
func (w *World) Malloc(size uint64) (uint64, error) { return w.malloc(callMalloc, grain, size) }

// MallocAlign is Malloc at a multiple of align, a power of two.
func (w *World) MallocAlign(align, size uint64) (uint64, error) {
	return w.malloc(callMalloc, align, size)
}

// Calloc is Malloc of count times size bytes, all zeros.
func (w *World) Calloc(count, size uint64) (uint64, error) {
	over, n := bits.Mul64(count, size)
	if over != 0 {
		n = ^uint64(0) // which nobody has
	}
	return w.malloc(callCalloc, grain, n)
}

// malloc makes the plan of an allocation, compares it with the other PEs', and carries it out.
func (w *World) malloc(kind string, align, size uint64) (addr uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := w.bounded(context.Background())
	defer cancel()
	at, cause := uint64(nowhere), error(nil)
	switch {
	case align == 0 || align&(align-1) != 0:
		cause = fmt.Errorf("an alignment is a power of two: %w", ErrInvalid)
	case size > 0 && w.arena != nil:
		at, cause = w.reserve(align, size)
	case size > 0:
		at, cause = w.nextID, w.roomAlone(align, size)
	}
	if err = w.agree(ctx, call{Kind: kind, Size: size, Align: align, At: at}); err == nil {
		err = cause
	}
	if err == nil && size > 0 {
		addr, err = w.provide(ctx, at, align, size)
	} else if w.arena != nil {
		w.arena.release(at)
	}
	if err == nil && kind == callCalloc && size > 0 {
		clear(memory.Bytes(addr, size))
		_, err = w.gather(ctx, nil) // nobody puts before all are clear
	}
	if err != nil {
		return 0, fmt.Errorf("%s %d bytes aligned to %d: %w", kind, size, align, err)
	}
	return addr, nil
}

// reserve takes size bytes of the heap, and returns nowhere if the heap has to grow for them.
func (w *World) reserve(align, size uint64) (uint64, error) {
	if at, ok := w.arena.alloc(size, align); ok {
		return at, nil
	}
	if w.arena.need(size, align) > w.arena.size {
		return nowhere, nil
	}
	return nowhere, fmt.Errorf("%d bytes are taken of a heap of %d, and at most %d are free in one part: %w", w.arena.used, w.cfg.HeapSize, w.arena.largest(), ErrNoMemory)
}

// provide returns the memory of a plan that all PEs have agreed on.
func (w *World) provide(ctx context.Context, at, align, size uint64) (uint64, error) {
	if w.arena == nil {
		return w.mallocAlone(ctx, align, size)
	}
	if at == nowhere {
		if err := w.growHeap(ctx, w.arena.need(size, align)); err != nil {
			return 0, err
		}
		at, _ = w.arena.alloc(size, align)
	}
	return w.heap.base + at, nil
}

// growHeap makes the heap of every PE need bytes large, in whole chunks.
func (w *World) growHeap(ctx context.Context, need uint64) error {
	chunks := (need + w.cfg.ChunkSize - 1) / w.cfg.ChunkSize
	size := min(chunks*w.cfg.ChunkSize, w.cfg.HeapSize)
	if err := w.allWell(ctx, w.heap.seg.Grow(size)); err != nil {
		return fmt.Errorf("grow the heap to %d bytes: %w: %w", size, err, ErrNoMemory)
	}
	w.heap.have.Store(size)
	w.arena.grow(size)
	return nil
}

// aloneSize is how many bytes an isolated block takes for an allocation, 0 if that is no number.
func aloneSize(align, size uint64) uint64 { return roundUp(size, max(align, pageSize)) }

const pageSize = 4096

// roomAlone reports whether there may be another isolated block.
func (w *World) roomAlone(align, size uint64) error {
	if n := aloneSize(align, size); n == 0 || n > w.cfg.HeapSize-w.alone {
		return fmt.Errorf("%d bytes are taken of at most %d: %w", w.alone, w.cfg.HeapSize, ErrNoMemory)
	}
	return nil
}

func compareBase(b *block, addr uint64) int { return cmp.Compare(b.base, addr) }

// mallocAlone makes an isolated block.
func (w *World) mallocAlone(ctx context.Context, align, size uint64) (uint64, error) {
	n := aloneSize(align, size)
	b, err := w.newBlock(ctx, "allocation", n, n)
	if err != nil {
		return 0, err
	}
	b.id = w.nextID
	w.nextID++
	w.alone += n
	list := slices.Clone(*w.isolated.Load())
	i, _ := slices.BinarySearchFunc(list, b.base, compareBase)
	list = slices.Insert(list, i, b)
	w.isolated.Store(&list)
	return b.base, nil
}

// Free gives back what Malloc returned. It waits until all PEs have called it with the same allocation, and until what they have
// queued is done. Address 0 is nothing to free, and not collective.
func (w *World) Free(addr uint64) error {
	if addr == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := w.bounded(context.Background())
	defer cancel()
	at := w.allocationAt(addr)
	var queued error
	if w.net != nil && !w.closed.Load() {
		queued = w.net.quiet(w.deadline())
	}
	err := w.agree(ctx, call{Kind: callFree, At: at})
	switch {
	case err != nil:
	case at == nowhere:
		err = fmt.Errorf("no allocation begins there, or not any more: %w", ErrNotSym)
	case w.arena != nil:
		w.arena.release(at)
	default:
		err = w.freeAlone(addr)
	}
	if err = errors.Join(err, queued); err != nil {
		return fmt.Errorf("free %#x: %w", addr, err)
	}
	return nil
}

// allocationAt says which allocation begins at addr, in a way that is the same on all PEs; nowhere if none does.
func (w *World) allocationAt(addr uint64) uint64 {
	if w.arena != nil {
		if off, ok := w.heap.holds(addr, 0); ok && w.arena.live[off] > 0 {
			return off
		}
	} else if b, off := w.isolatedAt(addr, 0); b != nil && off == 0 {
		return b.id
	}
	return nowhere
}

// freeAlone unmaps the isolated block at addr.
func (w *World) freeAlone(addr uint64) error {
	list := slices.Clone(*w.isolated.Load())
	i, _ := slices.BinarySearchFunc(list, addr, compareBase)
	b := list[i]
	list = slices.Delete(list, i, i+1)
	w.isolated.Store(&list)
	w.alone -= b.size
	return w.drop(b)
}
