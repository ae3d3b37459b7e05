// SPDX-License-Identifier: MIT

package fabric

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Blocks are pieces of an op that are all of one size, as a KV cache's are: block i is Size bytes
// at Op.Seg.Addr + Local()[i] and at Op.RSeg.Addr + Remote()[i]. What holds for the furthest of
// them holds for all, so an op of thousands is checked by a look at it, which a list of segments is
// not. The zero value has no block; Set gives it some.
type Blocks struct {
	size                uint64
	local, remote       []uint64
	localEnd, remoteEnd uint64
	joined              int
}

// Set makes b the blocks of size bytes at these offsets, one or more. It reads each offset once, so
// that what others write there meanwhile harms nothing, and keeps a copy, in the room that b has if
// it is enough. ErrInvalid: no or different numbers of offsets, a size of 0, a block or a total
// beyond 2^64; b has no block then, but the copies: b.Local() and b.Remote() are as long as the
// shorter slice.
func (b *Blocks) Set(size uint64, local, remote []uint64) error {
	n := min(len(local), len(remote))
	to, there := slices.Grow(b.local[:0], n)[:n], slices.Grow(b.remote[:0], n)[:n]
	from, far := local[:n], remote[:n]
	var last, rlast uint64 // the furthest
	joined := 0
	var end, rend uint64 // of the block before
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

// Size is the bytes of each block; 0 without any.
func (b *Blocks) Size() uint64 { return b.size }

// Len is how many blocks there are.
func (b *Blocks) Len() int { return len(b.local) }

// Bytes is those of all blocks.
func (b *Blocks) Bytes() uint64 { return b.size * uint64(len(b.local)) }

// Local are the offsets of the blocks here; only b changes them.
func (b *Blocks) Local() []uint64 { return b.local }

// Remote are the offsets of the blocks there; only b changes them.
func (b *Blocks) Remote() []uint64 { return b.remote }

// LocalEnd is behind the block that lies furthest here.
func (b *Blocks) LocalEnd() uint64 { return b.localEnd }

// RemoteEnd is behind the block that lies furthest there.
func (b *Blocks) RemoteEnd() uint64 { return b.remoteEnd }

// Joined is how many blocks begin where the one before ends, on both sides: so many segments fewer
// are the same bytes.
func (b *Blocks) Joined() int { return b.joined }

// Segments makes the blocks segments of the memory at seg and rseg, in the room of segs and rsegs,
// with those that are joined as one.
func (b *Blocks) Segments(seg Seg, rseg RSeg, segs []Seg, rsegs []RSeg) ([]Seg, []RSeg) {
	n, size := len(b.local), b.size
	segs, rsegs = slices.Grow(segs[:0], n)[:n], slices.Grow(rsegs[:0], n)[:n]
	remote := b.remote[:n]
	k := 0
	var end, rend uint64 // of the segment before
	for i, l := range b.local {
		l, r := seg.Addr+l, rseg.Addr+remote[i]
		if k > 0 && l == end && r == rend {
			segs[k-1].Len += size
			rsegs[k-1].Len += size
		} else if k < len(segs) && k < len(rsegs) { // as always: it spares the checks of bounds
			segs[k] = Seg{Addr: l, Len: size, MR: seg.MR}
			rsegs[k] = RSeg{Addr: r, Len: size, Key: rseg.Key}
			k++
		}
		end, rend = l+size, r+size
	}
	return segs[:k], rsegs[:k]
}

// Spread makes the blocks of an op, if it has some, segments of their own: for who moves those
// only.
func (op *Op) Spread() {
	if op.Blocks == nil {
		return
	}
	segs, rsegs := op.Blocks.Segments(op.Seg, op.RSeg, nil, nil)
	op.Seg, op.More, op.RSeg, op.RMore, op.Blocks = segs[0], segs[1:], rsegs[0], rsegs[1:], nil
}
