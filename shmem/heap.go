// SPDX-License-Identifier: MIT

package shmem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"mori/shmem/internal/arena"
)

// Malloc gives size bytes of symmetric memory, which begin at a multiple of 256 on every PE, and returns their address here. The
// bytes are zeros the first time. Size 0 gives 0. All PEs call with the same size: if they do not, none gets anything, and the error says
// who asked for what. Collective.
func (w *World) Malloc(size uint64) (uint64, error) {
	return w.malloc(request{kind: callMalloc, align: arena.Grain, size: size})
}

// MallocAlign is Malloc at a multiple of align, a power of two.
func (w *World) MallocAlign(align, size uint64) (uint64, error) {
	return w.malloc(request{kind: callMalloc, align: align, size: size})
}

// Calloc is Malloc of count times size bytes, all zeros.
func (w *World) Calloc(count, size uint64) (uint64, error) {
	over, n := bits.Mul64(count, size)
	if over != 0 {
		n = ^uint64(0) // which nobody has
	}
	return w.malloc(request{kind: callCalloc, align: arena.Grain, size: n})
}

// MallocHost is MallocAlign of memory that CPUs load and store, wherever the heap is.
func (w *World) MallocHost(align, size uint64) (uint64, error) {
	return w.malloc(request{kind: callMallocHost, align: align, size: size, host: w.gpu != nil})
}

// A request is for an allocation.
type request struct {
	kind        string
	align, size uint64
	host        bool // not of the heap, which is on GPUs
}

// alone reports whether the allocation will be a block of its own.
func (w *World) alone(r request) bool { return w.arena == nil || r.host }

// malloc makes the plan of an allocation, compares it with the other PEs', and carries it out.
func (w *World) malloc(r request) (addr uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := w.pes.Bounded(context.Background())
	defer cancel()
	at, cause := uint64(nowhere), error(nil)
	switch {
	case r.align == 0 || r.align&(r.align-1) != 0:
		cause = fmt.Errorf("an alignment is a power of two: %w", ErrInvalid)
	case r.size > 0 && w.alone(r):
		at, cause = w.nextID, w.roomAlone(r.align, r.size)
	case r.size > 0:
		at, cause = w.reserve(r.align, r.size)
	}
	if err = w.agree(ctx, call{Kind: r.kind, Size: r.size, Align: r.align, At: at}); err == nil {
		err = cause
	}
	if err == nil && r.size > 0 {
		addr, err = w.provide(ctx, at, r)
	} else if !w.alone(r) {
		w.arena.Release(at)
	}
	if err == nil && r.kind == callCalloc && r.size > 0 {
		err = w.zero(ctx, addr, r.size)
	}
	if err != nil {
		return 0, fmt.Errorf("%s %d bytes aligned to %d: %w", r.kind, r.size, r.align, err)
	}
	return addr, nil
}

// zero makes zeros of an allocation. Nobody puts before all PEs have. Collective.
func (w *World) zero(ctx context.Context, addr, size uint64) error {
	b, _, err := w.locate(addr, size)
	if err == nil {
		err = b.mem.Clear(addr, size)
	}
	return w.pes.AllWell(ctx, err)
}

// reserve takes size bytes of the heap, and returns nowhere if the heap has to grow for them.
func (w *World) reserve(align, size uint64) (uint64, error) {
	if at, ok := w.arena.Alloc(size, align); ok {
		return at, nil
	}
	if w.arena.Need(size, align) > w.arena.Size() {
		return nowhere, nil
	}
	return nowhere, fmt.Errorf("%d bytes are taken of a heap of %d, and at most %d are free in one part: %w", w.arena.Used(), w.cfg.HeapSize, w.arena.Largest(), ErrNoMemory)
}

// provide returns the memory of a plan that all PEs have agreed on.
func (w *World) provide(ctx context.Context, at uint64, r request) (uint64, error) {
	if w.alone(r) {
		return w.mallocAlone(ctx, r)
	}
	if at == nowhere {
		if err := w.growHeap(ctx, w.arena.Need(r.size, r.align)); err != nil {
			return 0, err
		}
		at, _ = w.arena.Alloc(r.size, r.align)
	}
	return w.heap.base + at, nil
}

// growHeap makes the heap of every PE need bytes large, in whole chunks.
func (w *World) growHeap(ctx context.Context, need uint64) error {
	chunks := (need + w.cfg.ChunkSize - 1) / w.cfg.ChunkSize
	size := min(chunks*w.cfg.ChunkSize, w.cfg.HeapSize)
	if err := w.grow(ctx, w.heap, size); err != nil {
		return fmt.Errorf("grow the heap to %d bytes: %w: %w", size, err, ErrNoMemory)
	}
	w.arena.Grow(size)
	return nil
}

// aloneSize is how many bytes an isolated block takes for an allocation, 0 if that is no number.
func aloneSize(align, size uint64) uint64 { return arena.RoundUp(size, max(align, pageSize)) }

const pageSize = 4096

// roomAlone reports whether there may be another isolated block.
func (w *World) roomAlone(align, size uint64) error {
	if n := aloneSize(align, size); n == 0 || n > w.cfg.HeapSize-w.single {
		return fmt.Errorf("%d bytes are taken of at most %d: %w", w.single, w.cfg.HeapSize, ErrNoMemory)
	}
	return nil
}

func compareBase(b *block, addr uint64) int { return cmp.Compare(b.base, addr) }

// mallocAlone makes an isolated block.
func (w *World) mallocAlone(ctx context.Context, r request) (uint64, error) {
	n := aloneSize(r.align, r.size)
	b, err := w.newBlock(ctx, spec{name: "allocation", size: n, limit: n, align: r.align, gpu: w.gpu != nil && !r.host})
	if err != nil {
		return 0, err
	}
	b.id = w.nextID
	w.nextID += 2
	w.single += n
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
	ctx, cancel := w.pes.Bounded(context.Background())
	defer cancel()
	at := w.allocationAt(addr)
	var queued error
	if !w.pes.Closed() {
		queued = w.drain()
	}
	err := w.agree(ctx, call{Kind: callFree, At: at})
	switch {
	case err != nil:
	case at == nowhere:
		err = fmt.Errorf("no allocation begins there, or not any more: %w", ErrNotSym)
	case at%2 == 1:
		err = w.freeAlone(addr)
	default:
		w.arena.Release(at)
	}
	if err = errors.Join(err, queued); err != nil {
		return fmt.Errorf("free %#x: %w", addr, err)
	}
	return nil
}

// allocationAt says which allocation begins at addr, in a way that is the same on all PEs; nowhere if none does.
func (w *World) allocationAt(addr uint64) uint64 {
	if w.arena != nil {
		if off, ok := w.heap.holds(addr, 0); ok && w.arena.Live(off) {
			return off
		}
	}
	if b, off := w.isolatedAt(addr, 0); b != nil && off == 0 {
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
	w.single -= b.size
	return w.drop(b)
}
