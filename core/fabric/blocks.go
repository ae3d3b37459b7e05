// SPDX-License-Identifier: MIT

package fabric

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Blocks are the pieces of an op if all have one size, as those of a KV cache. Block i is Size
// bytes, local at Op.Seg.Addr + Local()[i] and remote at Op.RSeg.Addr + Remote()[i]. One check of
// the furthest block covers all of them, so checking an op with thousands of blocks is cheap,
// unlike a list of segments. The zero value has no blocks; Set adds them.
type Blocks struct {
	size                uint64
	local, remote       []uint64
	localEnd, remoteEnd uint64
	joined              int
}

// Set makes b one or more blocks of size bytes at these offsets. It copies the offsets, into b's
// memory if it is large enough. It reads each offset once, so concurrent writes to the slices are
// harmless.
//
// Set returns ErrInvalid if there are no offsets, their numbers differ, size is 0, or a block or
// the total exceeds 2^64. b then has no blocks, but b.Local() and b.Remote() hold copies, as long
// as the shorter slice.
func (b *Blocks) Set(size uint64, local, remote []uint64) error {
	n := min(len(local), len(remote))
	to, there := slices.Grow(b.local[:0], n)[:n], slices.Grow(b.remote[:0], n)[:n]
	from, far := local[:n], remote[:n]
	var last, rlast uint64 // the furthest offsets
	joined := 0
	var end, rend uint64 // of the previous block
	for i, l := range from {
		r := far[i]
		to[i], there[i] = l, r
		last, rlast = max(last, l), max(rlast, r)
		if l == end && r == rend && i > 0 {
			joined++
		}
		end, rend = l+size, r+size
	}
	*b = Blocks{local: to, remote: there}
	over, _ := bits.Mul64(size, uint64(n))
	switch {
	case len(local) != len(remote) || n == 0 || size == 0:
		return fmt.Errorf("%d blocks here and %d there of %d bytes: %w", len(local), len(remote), size, ErrInvalid)
	case over != 0 || max(last, rlast) > math.MaxUint64-size:
		return fmt.Errorf("%d blocks of %d bytes, the last ones at %#x and %#x: %w", n, size, last, rlast, ErrInvalid)
	}
	b.size, b.joined, b.localEnd, b.remoteEnd = size, joined, last+size, rlast+size
	return nil
}

// Size returns the bytes of each block, or 0 without blocks.
func (b *Blocks) Size() uint64 { return b.size }

// Len returns the number of blocks.
func (b *Blocks) Len() int { return len(b.local) }

// Bytes returns the total bytes of all blocks.
func (b *Blocks) Bytes() uint64 { return b.size * uint64(len(b.local)) }

// Local returns the local offsets of the blocks. The caller must not change them.
func (b *Blocks) Local() []uint64 { return b.local }

// Remote returns the remote offsets of the blocks. The caller must not change them.
func (b *Blocks) Remote() []uint64 { return b.remote }

// LocalEnd returns the end of the furthest local block, relative to Op.Seg.Addr.
func (b *Blocks) LocalEnd() uint64 { return b.localEnd }

// RemoteEnd returns the end of the furthest remote block, relative to Op.RSeg.Addr.
func (b *Blocks) RemoteEnd() uint64 { return b.remoteEnd }

// Joined returns how many blocks begin where the previous one ends, on both sides. A list of
// segments for the same bytes is shorter by this number.
func (b *Blocks) Joined() int { return b.joined }

// Segments returns the blocks as segments of the memory at seg and rseg. It uses the memory of segs
// and rsegs, and merges joined blocks.
func (b *Blocks) Segments(seg Seg, rseg RSeg, segs []Seg, rsegs []RSeg) ([]Seg, []RSeg) {
	n, size := len(b.local), b.size
	segs, rsegs = slices.Grow(segs[:0], n)[:n], slices.Grow(rsegs[:0], n)[:n]
	remote := b.remote[:n]
	k := 0
	var end, rend uint64 // of the previous segment
	for i, l := range b.local {
		l, r := seg.Addr+l, rseg.Addr+remote[i]
		if k > 0 && l == end && r == rend {
			segs[k-1].Len += size
			rsegs[k-1].Len += size
		} else if k < len(segs) && k < len(rsegs) { // always true: avoids bounds checks
			segs[k] = Seg{Addr: l, Len: size, MR: seg.MR}
			rsegs[k] = RSeg{Addr: r, Len: size, Key: rseg.Key}
			k++
		}
		end, rend = l+size, r+size
	}
	return segs[:k], rsegs[:k]
}

// Spread turns an op's blocks, if any, into segments, for data paths that move only segments.
func (op *Op) Spread() {
	if op.Blocks == nil {
		return
	}
	segs, rsegs := op.Blocks.Segments(op.Seg, op.RSeg, nil, nil)
	op.Seg, op.More, op.RSeg, op.RMore, op.Blocks = segs[0], segs[1:], rsegs[0], rsegs[1:], nil
}
