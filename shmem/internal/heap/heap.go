// SPDX-License-Identifier: MIT

package heap

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"mori/shmem/internal/peers"
)

// PageSize is the granularity of isolated blocks.
const PageSize = 4096

// A Heap is the set of blocks of a World's symmetric memory. Safe for concurrent use.
type Heap struct {
	pes  *peers.Group
	main *Block // nil in isolation

	isolated atomic.Pointer[[]*Block] // by Base; replaced, never changed

	mu sync.Mutex // held by the collective calls of the Allocator
}

func newHeap(pes *peers.Group) *Heap {
	h := &Heap{pes: pes}
	h.isolated.Store(&[]*Block{})
	return h
}

// Main returns the block of the heap, nil in isolation.
func (h *Heap) Main() *Block { return h.main }

// Hold blocks Malloc and Free until release is called.
func (h *Heap) Hold() (release func()) {
	h.mu.Lock()
	return h.mu.Unlock
}

// Locate finds the block that holds n bytes at the symmetric address addr.
func (h *Heap) Locate(addr, n uint64) (b *Block, off uint64, err error) {
	if b, off = h.BlockAt(addr, n); b != nil {
		return b, off, nil
	}
	return nil, 0, fmt.Errorf("%d bytes at %#x: %w", n, addr, peers.ErrNotSym)
}

// BlockAt is Locate that returns nil for memory that is not symmetric.
func (h *Heap) BlockAt(addr, n uint64) (*Block, uint64) {
	if b := h.main; b != nil {
		if off, ok := b.Holds(addr, n); ok {
			return b, off
		}
	}
	return h.isolatedAt(addr, n)
}

func compareBase(b *Block, addr uint64) int { return cmp.Compare(b.Base, addr) }

// isolatedAt finds the isolated block that holds n bytes at addr, nil if there is none.
func (h *Heap) isolatedAt(addr, n uint64) (*Block, uint64) {
	list := *h.isolated.Load()
	i, found := slices.BinarySearchFunc(list, addr, compareBase)
	if !found {
		i--
	}
	if i >= 0 {
		if off, ok := list[i].Holds(addr, n); ok {
			return list[i], off
		}
	}
	return nil, 0
}

// insert adds an isolated block.
func (h *Heap) insert(b *Block) {
	list := slices.Clone(*h.isolated.Load())
	i, _ := slices.BinarySearchFunc(list, b.Base, compareBase)
	list = slices.Insert(list, i, b)
	h.isolated.Store(&list)
}

// remove removes the isolated block that starts at addr.
func (h *Heap) remove(addr uint64) *Block {
	list := slices.Clone(*h.isolated.Load())
	i, _ := slices.BinarySearchFunc(list, addr, compareBase)
	b := list[i]
	list = slices.Delete(list, i, i+1)
	h.isolated.Store(&list)
	return b
}

// Contains reports whether n bytes at addr (n > 0) are in the main block: in this PE's part, or in
// another PE's part as mapped here.
func (h *Heap) Contains(addr, n uint64) bool {
	b := h.main
	if b == nil {
		return false
	}
	have := b.have.Load()
	for i := range b.peers {
		at := b.peers[i].mapped
		if off := addr - at; at != 0 && off < have && n <= have-off {
			return true
		}
	}
	return false
}

// Ptr returns the address at which PE pe's copy of the symmetric address addr can be loaded and
// stored, 0 if it is not mapped.
func (h *Heap) Ptr(addr uint64, pe int) uint64 {
	if pe < 0 || pe >= h.pes.N || h.pes.Closed() {
		return 0
	}
	b, off, err := h.Locate(addr, 1)
	if err != nil || b.At(pe) == 0 {
		return 0
	}
	return b.At(pe) + off
}

// Drop unmaps all blocks.
func (h *Heap) Drop(m *Maker) error {
	if h == nil {
		return nil
	}
	var errs []error
	for _, b := range append([]*Block{h.main}, *h.isolated.Load()...) {
		errs = append(errs, m.Drop(b))
	}
	return errors.Join(errs...)
}
