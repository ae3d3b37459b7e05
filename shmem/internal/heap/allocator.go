// SPDX-License-Identifier: MIT

package heap

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"mori/shmem/internal/arena"
	"mori/shmem/internal/peers"
)

// An Allocator has the collective calls that allocate and free symmetric memory.
type Allocator struct {
	pes   *peers.Group
	maker *Maker
	heap  *Heap
	drain func() error // waits for this PE's queued operations

	size, chunk uint64 // limit of the heap, and the step by which it grows

	// Guarded by heap.mu.
	arena  *arena.Arena // manages the heap's block; nil in isolation
	calls  uint64       // calls of agree
	single uint64       // total size of the isolated blocks
	nextID uint64       // id of an isolated block; odd, because offsets are even
}

// Open creates the block of the heap, unless each allocation is its own block. drain waits for this
// PE's queued operations. Collective.
func Open(ctx context.Context, pes *peers.Group, m *Maker, size, chunk uint64, drain func() error) (*Heap, *Allocator, error) {
	h := newHeap(pes)
	a := &Allocator{pes: pes, maker: m, heap: h, drain: drain, size: size, chunk: chunk, nextID: 1}
	if m.Mode == Isolation {
		return h, a, nil
	}
	first := size
	if m.Mode == VMMHeap {
		first = min(size, chunk)
	}
	a.arena = arena.New(first, size)
	main, err := m.New(ctx, Spec{Name: "heap", Size: first, Limit: size, OnGPU: m.GPU != nil})
	if err != nil {
		return nil, nil, err
	}
	h.main = main
	return h, a, nil
}

// Base returns the address of this PE's heap, 0 in Isolation.
func (a *Allocator) Base() uint64 {
	if a.heap.main == nil {
		return 0
	}
	return a.heap.main.Base
}

// Malloc allocates size bytes of symmetric memory, aligned to 256 on every PE, and returns the
// address of this PE's copy. Memory that was never allocated before is zero. Size 0 returns 0. All
// PEs must pass the same size; otherwise no PE gets memory, and the error names each PE's request.
// Collective.
func (a *Allocator) Malloc(size uint64) (uint64, error) {
	return a.malloc(request{kind: callMalloc, align: arena.Grain, size: size})
}

// MallocAlign is Malloc at a multiple of align, a power of two.
func (a *Allocator) MallocAlign(align, size uint64) (uint64, error) {
	return a.malloc(request{kind: callMalloc, align: align, size: size})
}

// Calloc is Malloc of count times size bytes, zeroed.
func (a *Allocator) Calloc(count, size uint64) (uint64, error) {
	over, n := bits.Mul64(count, size)
	if over != 0 {
		n = ^uint64(0) // more than any PE has
	}
	return a.malloc(request{kind: callCalloc, align: arena.Grain, size: n})
}

// MallocHost is MallocAlign of host memory, wherever the heap is.
func (a *Allocator) MallocHost(align, size uint64) (uint64, error) {
	return a.malloc(request{kind: callMallocHost, align: align, size: size, host: a.maker.GPU != nil})
}

// A request describes an allocation.
type request struct {
	kind        string
	align, size uint64
	host        bool // host memory, although the heap is on GPUs
}

// alone reports whether the allocation gets its own block.
func (a *Allocator) alone(r request) bool { return a.arena == nil || r.host }

// malloc plans an allocation, compares the plan with the other PEs', and executes it.
func (a *Allocator) malloc(r request) (addr uint64, err error) {
	a.heap.mu.Lock()
	defer a.heap.mu.Unlock()
	ctx, cancel := a.pes.Bounded(context.Background())
	defer cancel()
	at, cause := uint64(nowhere), error(nil)
	switch {
	case r.align == 0 || r.align&(r.align-1) != 0:
		cause = fmt.Errorf("the alignment must be a power of two: %w", peers.ErrInvalid)
	case r.size > 0 && a.alone(r):
		at, cause = a.nextID, a.roomAlone(r.align, r.size)
	case r.size > 0:
		at, cause = a.reserve(r.align, r.size)
	}
	if err = a.agree(ctx, call{Kind: r.kind, Size: r.size, Align: r.align, At: at}); err == nil {
		err = cause
	}
	if err == nil && r.size > 0 {
		addr, err = a.provide(ctx, at, r)
	} else if !a.alone(r) {
		a.arena.Release(at)
	}
	if err == nil && r.kind == callCalloc && r.size > 0 {
		err = a.zero(ctx, addr, r.size)
	}
	if err != nil {
		return 0, fmt.Errorf("%s %d bytes aligned to %d: %w", r.kind, r.size, r.align, err)
	}
	return addr, nil
}

// zero clears an allocation. No PE may put to it before all PEs have cleared theirs. Collective.
func (a *Allocator) zero(ctx context.Context, addr, size uint64) error {
	b, _, err := a.heap.Locate(addr, size)
	if err == nil {
		err = b.Mem.Clear(addr, size)
	}
	return a.pes.AllWell(ctx, err)
}

// reserve allocates size bytes of the heap, and returns nowhere if the heap has to grow first.
func (a *Allocator) reserve(align, size uint64) (uint64, error) {
	if at, ok := a.arena.Alloc(size, align); ok {
		return at, nil
	}
	if a.arena.Need(size, align) > a.arena.Size() {
		return nowhere, nil
	}
	return nowhere, fmt.Errorf("%d bytes of a heap of %d are in use, and the largest free block has %d: %w", a.arena.Used(), a.size, a.arena.Largest(), peers.ErrNoMemory)
}

// provide returns the memory of a plan that all PEs agreed on.
func (a *Allocator) provide(ctx context.Context, at uint64, r request) (uint64, error) {
	if a.alone(r) {
		return a.mallocAlone(ctx, r)
	}
	if at == nowhere {
		if err := a.growHeap(ctx, a.arena.Need(r.size, r.align)); err != nil {
			return 0, err
		}
		at, _ = a.arena.Alloc(r.size, r.align)
	}
	return a.heap.main.Base + at, nil
}

// growHeap grows the heap of every PE to at least need bytes, in whole chunks.
func (a *Allocator) growHeap(ctx context.Context, need uint64) error {
	chunks := (need + a.chunk - 1) / a.chunk
	size := min(chunks*a.chunk, a.size)
	if err := a.maker.grow(ctx, a.heap.main, size); err != nil {
		return fmt.Errorf("grow the heap to %d bytes: %w: %w", size, err, peers.ErrNoMemory)
	}
	a.arena.Grow(size)
	return nil
}

// aloneSize returns the size of an isolated block for an allocation, 0 on overflow.
func aloneSize(align, size uint64) uint64 { return arena.RoundUp(size, max(align, PageSize)) }

// roomAlone reports whether the limit allows another isolated block.
func (a *Allocator) roomAlone(align, size uint64) error {
	if n := aloneSize(align, size); n == 0 || n > a.size-a.single {
		return fmt.Errorf("%d bytes of at most %d are in use: %w", a.single, a.size, peers.ErrNoMemory)
	}
	return nil
}

// mallocAlone allocates an isolated block.
func (a *Allocator) mallocAlone(ctx context.Context, r request) (uint64, error) {
	n := aloneSize(r.align, r.size)
	b, err := a.maker.New(ctx, Spec{Name: "allocation", Size: n, Limit: n, Align: r.align, OnGPU: a.maker.GPU != nil && !r.host})
	if err != nil {
		return 0, err
	}
	b.id = a.nextID
	a.nextID += 2
	a.single += n
	a.heap.insert(b)
	return b.Base, nil
}

// Free releases an allocation of Malloc. It waits until all PEs have called it with the same
// allocation, and until their queued operations are complete. Free(0) does nothing and is not
// collective.
func (a *Allocator) Free(addr uint64) error {
	if addr == 0 {
		return nil
	}
	a.heap.mu.Lock()
	defer a.heap.mu.Unlock()
	ctx, cancel := a.pes.Bounded(context.Background())
	defer cancel()
	at := a.allocationAt(addr)
	var queued error
	if !a.pes.Closed() {
		queued = a.drain()
	}
	err := a.agree(ctx, call{Kind: callFree, At: at})
	switch {
	case err != nil:
	case at == nowhere:
		err = fmt.Errorf("no allocation starts at this address: %w", peers.ErrNotSym)
	case at%2 == 1:
		err = a.freeAlone(addr)
	default:
		a.arena.Release(at)
	}
	if err = errors.Join(err, queued); err != nil {
		return fmt.Errorf("free %#x: %w", addr, err)
	}
	return nil
}

// allocationAt returns an id, equal on all PEs, of the allocation that starts at addr; nowhere if
// none does.
func (a *Allocator) allocationAt(addr uint64) uint64 {
	if a.arena != nil {
		if off, ok := a.heap.main.Holds(addr, 0); ok && a.arena.Live(off) {
			return off
		}
	}
	if b, off := a.heap.isolatedAt(addr, 0); b != nil && off == 0 {
		return b.id
	}
	return nowhere
}

// freeAlone unmaps the isolated block at addr.
func (a *Allocator) freeAlone(addr uint64) error {
	b := a.heap.remove(addr)
	a.single -= b.Size
	return a.maker.Drop(b)
}

// A Usage says how much of the heap is in use, in bytes.
type Usage struct {
	Present, Used, Free, Largest uint64 // Largest: the largest possible Malloc
	Allocations                  int
}

// UsageOf returns the usage of a's heap.
func UsageOf(a *Allocator) Usage {
	defer a.heap.Hold()()
	if r := a.arena; r != nil {
		return Usage{Present: r.Size(), Used: r.Used(), Free: r.Free(), Largest: r.Largest(), Allocations: r.Allocations()}
	}
	free := a.size - a.single
	return Usage{Present: a.single, Used: a.single, Free: free, Largest: free &^ (PageSize - 1), Allocations: len(*a.heap.isolated.Load())}
}
