// SPDX-License-Identifier: MIT

// Package arena allocates parts of a symmetric heap by offset. It does no I/O and is deterministic:
// PEs that make the same calls get the same offsets.
package arena

import (
	"cmp"
	"slices"
)

const (
	// Grain divides all sizes and offsets.
	Grain = 256

	// Reserved is the number of bytes at the start of a heap that are never allocated. They are the
	// words of the kernels' barriers (kSyncWords of state.hpp), so no allocation has offset 0.
	Reserved = 1024
)

// An Arena allocates best fit: the smallest free extent that is large enough, the first of equal
// ones. It merges neighbouring free extents.
type Arena struct {
	size  uint64            // present size of the heap
	limit uint64            // maximum size of the heap
	free  []extent          // sorted by offset, never adjacent
	live  map[uint64]uint64 // size of each allocation, by offset
	used  uint64            // allocated bytes
}

// An extent is a part of the heap.
type extent struct{ at, size uint64 }

func (e extent) end() uint64 { return e.at + e.size }

// New returns the arena of an empty heap of size bytes, which may grow to limit.
func New(size, limit uint64) *Arena {
	a := &Arena{size: Reserved, limit: limit &^ (Grain - 1), live: map[uint64]uint64{}}
	a.Grow(size)
	return a
}

// Grow makes the heap larger.
func (a *Arena) Grow(size uint64) {
	size = min(size, a.limit) &^ (Grain - 1)
	if size > a.size {
		a.give(extent{a.size, size - a.size})
		a.size = size
	}
}

// RoundUp rounds n up to a multiple of align, a power of two. It wraps to 0 if there is none.
func RoundUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// fits returns the offset at which size bytes would start in e.
func (e extent) fits(size, align uint64) (at uint64, ok bool) {
	at = RoundUp(e.at, align)
	return at, at >= e.at && at <= e.end() && e.end()-at >= size
}

// Alloc allocates size bytes (not 0) at a multiple of align, a power of two. It returns false if no
// free extent is large enough.
func (a *Arena) Alloc(size, align uint64) (at uint64, ok bool) {
	size, align = RoundUp(size, Grain), max(align, Grain)
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

// Need returns the heap size that Alloc needs to succeed, 0 if the limit does not allow it.
func (a *Arena) Need(size, align uint64) uint64 {
	size, align = RoundUp(size, Grain), max(align, Grain)
	from := a.size
	if n := len(a.free); n > 0 && a.free[n-1].end() == a.size {
		from = a.free[n-1].at
	}
	at := RoundUp(from, align)
	if size == 0 || at < from || at > a.limit || a.limit-at < size {
		return 0
	}
	return at + size
}

// Release frees the allocation at an offset and returns its size.
func (a *Arena) Release(at uint64) (size uint64, ok bool) {
	if size, ok = a.live[at]; ok {
		delete(a.live, at)
		a.used -= size
		a.give(extent{at, size})
	}
	return size, ok
}

// give adds a free extent and merges it with its neighbours.
func (a *Arena) give(e extent) {
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

// Largest returns the size of the largest allocation that would succeed, ignoring alignment, if the
// heap grew to its limit.
func (a *Arena) Largest() (n uint64) {
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

// Live reports whether an allocation starts at an offset.
func (a *Arena) Live(at uint64) bool { return a.live[at] > 0 }

// Size returns the present size of the heap.
func (a *Arena) Size() uint64 { return a.size }

// Used returns the number of allocated bytes.
func (a *Arena) Used() uint64 { return a.used }

// Free returns the number of bytes that could be allocated if the heap grew to its limit.
func (a *Arena) Free() uint64 { return a.limit - Reserved - a.used }

// Allocations returns the number of allocations.
func (a *Arena) Allocations() int { return len(a.live) }
