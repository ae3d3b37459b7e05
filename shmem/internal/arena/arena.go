// SPDX-License-Identifier: MIT

// Package arena gives out parts of a symmetric heap by offset. It does no I/O and keeps no time:
// PEs that make the same calls get the same answers.
package arena

import (
	"cmp"
	"slices"
)

const (
	// Grain divides all sizes and offsets.
	Grain = 256

	// Reserved is how many bytes at the start of a heap are never given out. They are the words
	// that barriers of kernels use (kSyncWords of state.hpp), so no allocation has offset 0.
	Reserved = 1024
)

// An Arena allocates best fit: the smallest free part that is large enough, the first of equal
// ones. Free neighbours are joined.
type Arena struct {
	size  uint64            // of the heap as it is now
	limit uint64            // that it may grow to
	free  []extent          // sorted, none touches another
	live  map[uint64]uint64 // size by offset, of what is given out
	used  uint64            // bytes given out
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

// fits says where size bytes would begin in e.
func (e extent) fits(size, align uint64) (at uint64, ok bool) {
	at = RoundUp(e.at, align)
	return at, at >= e.at && at <= e.end() && e.end()-at >= size
}

// Alloc gives out size bytes, not 0, at a multiple of align, a power of two. It reports false if no
// free part is large enough.
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

// Need returns how large the heap must be for Alloc to succeed, 0 if it may not grow that far.
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

// give adds a free part, joined with those that it touches.
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

// Largest returns the size of the largest allocation that could succeed, without alignment, if the
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

// Live reports whether an allocation begins at an offset.
func (a *Arena) Live(at uint64) bool { return a.live[at] > 0 }

// Size returns the size of the heap as it is now.
func (a *Arena) Size() uint64 { return a.size }

// Used returns how many bytes are given out.
func (a *Arena) Used() uint64 { return a.used }

// Free returns how many bytes could be given out if the heap grew to its limit.
func (a *Arena) Free() uint64 { return a.limit - Reserved - a.used }

// Allocations returns how many allocations there are.
func (a *Arena) Allocations() int { return len(a.live) }
