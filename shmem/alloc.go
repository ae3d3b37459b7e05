// SPDX-License-Identifier: MIT

package shmem

import (
	"cmp"
	"slices"
)

const (
	// grain is what all sizes and offsets are multiples of.
	grain = 256

	// reserved bytes at the start of a heap are never given out: the words that kernels' barriers use, kSyncWords of state.hpp. So no
	// allocation is at offset 0.
	reserved = 1024
)

// An allocator gives out parts of a heap by offset. It is a pure state machine: PEs that make the same calls get the same answers.
// It takes the smallest free part that is large enough, of equal ones the first, and joins neighbours that are free.
type allocator struct {
	size  uint64            // of the heap as it is now
	limit uint64            // that it may grow to
	free  []extent          // sorted, none touches another
	live  map[uint64]uint64 // size by offset, of what is given out
	used  uint64            // bytes given out
}

// An extent is a part of the heap.
type extent struct{ at, size uint64 }

func (e extent) end() uint64 { return e.at + e.size }

// newAllocator is of a heap of size bytes, nothing of it given out.
func newAllocator(size, limit uint64) *allocator {
	a := &allocator{size: reserved, limit: limit &^ (grain - 1), live: map[uint64]uint64{}}
	a.grow(size)
	return a
}

// grow makes the heap larger.
func (a *allocator) grow(size uint64) {
	size = min(size, a.limit) &^ (grain - 1)
	if size > a.size {
		a.give(extent{a.size, size - a.size})
		a.size = size
	}
}

// roundUp is n as a multiple of align, a power of two. It wraps to 0 if there is none.
func roundUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// fits says where size bytes would begin in e.
func (e extent) fits(size, align uint64) (at uint64, ok bool) {
	at = roundUp(e.at, align)
	return at, at >= e.at && at <= e.end() && e.end()-at >= size
}

// alloc gives out size bytes, not 0, at a multiple of align, a power of two.
func (a *allocator) alloc(size, align uint64) (at uint64, ok bool) {
	size, align = roundUp(size, grain), max(align, grain)
	best := -1
	for i, e := range a.free {
		if size == 0 || best >= 0 && e.size >= a.free[best].size {
			continue
		}
		if _, fits := e.fits(size, align); fits {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	e := a.free[best]
	at, _ = e.fits(size, align)
	rest := make([]extent, 0, 2)
	for _, r := range []extent{{e.at, at - e.at}, {at + size, e.end() - at - size}} {
		if r.size > 0 {
			rest = append(rest, r)
		}
	}
	a.free = slices.Replace(a.free, best, best+1, rest...)
	a.live[at] = size
	a.used += size
	return at, true
}

// need is how large the heap must be for alloc to succeed, 0 if it may not grow that far.
func (a *allocator) need(size, align uint64) uint64 {
	size, align = roundUp(size, grain), max(align, grain)
	from := a.size
	if n := len(a.free); n > 0 && a.free[n-1].end() == a.size {
		from = a.free[n-1].at
	}
	at := roundUp(from, align)
	if size == 0 || at < from || at > a.limit || a.limit-at < size {
		return 0
	}
	return at + size
}

// release takes back what alloc gave at at, and says how much that was.
func (a *allocator) release(at uint64) (size uint64, ok bool) {
	if size, ok = a.live[at]; ok {
		delete(a.live, at)
		a.used -= size
		a.give(extent{at, size})
	}
	return size, ok
}

// give adds a free part, joined with those that it touches.
func (a *allocator) give(e extent) {
	i, _ := slices.BinarySearchFunc(a.free, e, func(x, y extent) int { return cmp.Compare(x.at, y.at) })
	from, to := i, i
	if i > 0 && a.free[i-1].end() == e.at {
		from--
		e = extent{a.free[from].at, e.end() - a.free[from].at}
	}
	if i < len(a.free) && e.end() == a.free[i].at {
		e.size += a.free[i].size
		to++
	}
	a.free = slices.Replace(a.free, from, to, e)
}

// largest is the size of the largest part that could be given out, without alignment, if the heap grew as far as it may.
func (a *allocator) largest() (n uint64) {
	if a.limit > a.size {
		n = a.limit - a.size
	}
	for _, e := range a.free {
		if e.end() == a.size {
			e.size += a.limit - a.size
		}
		n = max(n, e.size)
	}
	return n
}
