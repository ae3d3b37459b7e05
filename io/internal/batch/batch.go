// SPDX-License-Identifier: MIT

package batch

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"mori/core/fabric"
	"mori/io/internal/errs"
)

// maxEntry is the largest entry of a batch in bytes, the limit of RDMA work requests.
const maxEntry = math.MaxUint32

// Entries are the pieces of a transfer: as many local as remote offsets, and either one size per
// entry or one size for all.
type Entries struct {
	Local, Remote, Sizes []uint64

	Size uint64 // of each entry, if One is set
	One  bool   // use Size, not Sizes
}

// evenFrom is the number of entries of equal size from which a batch is built from blocks.
const evenFrom = 32

// even reports whether all entries have one size that blocks can have. It sets One if all Sizes are
// equal.
func (e *Entries) even() bool {
	if !e.One && len(e.Sizes) >= evenFrom && len(e.Sizes) == len(e.Local) {
		e.Size = e.Sizes[0]
		for _, n := range e.Sizes {
			if n != e.Size {
				return false
			}
		}
		e.One = true
	}
	return e.One && e.Size > 0 && e.Size <= maxEntry && len(e.Local) == len(e.Remote) && len(e.Local) > 0
}

// at returns the size of entry i.
func (e *Entries) at(i int) uint64 {
	if e.One {
		return e.Size
	}
	return e.Sizes[i]
}

// spread fills Sizes for entries of one size that blocks cannot have.
func (e *Entries) spread() {
	e.One, e.Sizes = false, make([]uint64, max(len(e.Local), len(e.Remote)))
	for i := range e.Sizes {
		e.Sizes[i] = e.Size
	}
}

// Accept takes entries if all lie within regions of localSize and remoteSize bytes, and returns the
// sum of their sizes. Entries of one size are copied, since others may write to them meanwhile.
func (b *Batch) Accept(e *Entries, localSize, remoteSize uint64) (total uint64, err error) {
	if b.even = e.even(); !b.even {
		if e.One {
			e.spread()
		}
		return checkEntries(e.Local, e.Remote, e.Sizes, localSize, remoteSize)
	}
	if b.blocks.Set(e.Size, e.Local, e.Remote) == nil && b.blocks.LocalEnd() <= localSize &&
		b.blocks.RemoteEnd() <= remoteSize {
		return b.blocks.Bytes(), nil
	}
	wrong := Entries{Local: b.blocks.Local(), Remote: b.blocks.Remote(), Size: e.Size} // names the invalid entry
	wrong.spread()
	return checkEntries(wrong.Local, wrong.Remote, wrong.Sizes, localSize, remoteSize)
}

// checkEntries returns an error if entries do not lie within regions of localSize and remoteSize
// bytes, and otherwise the sum of their sizes.
func checkEntries(lo, ro, sz []uint64, localSize, remoteSize uint64) (total uint64, err error) {
	if len(lo) != len(sz) || len(ro) != len(sz) {
		return 0, fmt.Errorf("%d local offsets, %d remote offsets and %d sizes: want equal counts: %w", len(lo), len(ro), len(sz), errs.ErrInvalid)
	}
	ro = ro[:len(lo)]
	for i, n := range sz[:len(lo)] {
		switch {
		case n > maxEntry:
			return 0, fmt.Errorf("entry %d of %d bytes: length out of range, want at most %d: %w",
				i, n, uint64(maxEntry), errs.ErrInvalid)
		case lo[i] > localSize || n > localSize-lo[i]:
			return 0, fmt.Errorf("entry %d, local offset %d + %d bytes: length out of range of the region of %d bytes: %w", i, lo[i], n, localSize, errs.ErrInvalid)
		case ro[i] > remoteSize || n > remoteSize-ro[i]:
			return 0, fmt.Errorf("entry %d, remote offset %d + %d bytes: length out of range of the region of %d bytes: %w", i, ro[i], n, remoteSize, errs.ErrInvalid)
		}
		total += n // at most 2^31 entries of 2^32 bytes: no overflow
	}
	return total, nil
}

// A Batch is a transfer split into ops. Its slices are reused, and the ops point into segs, rsegs
// and blocks.
type Batch struct {
	Ops  []fabric.Op
	Done []bool // by op; the caller sets it when an op has succeeded

	segs  []fabric.Seg
	rsegs []fabric.RSeg
	cuts  []int // end of each op in segs

	even   bool          // all entries have one size, and are in blocks
	blocks fabric.Blocks // ops point into it as well
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// New returns a batch. The caller passes it on or releases it.
func New() *Batch { return batches.Get().(*Batch) }

// A Target holds what all transfers of a session over one path have in common.
type Target struct {
	Local  uint64 // address of the local region
	Remote uint64 // RemoteMR.Base
	MR     fabric.MRDesc
	Key    uint64
	OpMax  uint64 // bytes at which an op is split
	SegMax int    // segments at which an op is split

	BlockMax int // maximum number of blocks in an op; 0: none
}

// fewJoined reports whether it is faster to keep the blocks. A block that starts where the one
// before ends could be merged with it into one segment, and a shorter list is faster.
func fewJoined(b *fabric.Blocks) bool { return b.Joined() <= b.Len()/16 }

// Build fills b with ops of the given kind for accepted entries of total bytes. Entries contiguous
// with their predecessor on both sides are merged. They are not sorted first, since that costs more
// than it saves (1000 random entries on a 2.4 GHz EPYC: 48 µs to sort, 5 to build).
func (b *Batch) Build(kind fabric.OpKind, to *Target, total uint64, e *Entries) {
	b.cuts = b.cuts[:0]
	if b.even {
		e = &Entries{Local: b.blocks.Local(), Remote: b.blocks.Remote(), Size: b.blocks.Size(), One: true}
	}
	single := len(e.Local) <= to.SegMax && total <= to.OpMax
	switch {
	case single && b.even && len(e.Local) <= to.BlockMax && fewJoined(&b.blocks):
		b.asBlocks(kind, to)
		return
	case b.even && (single || b.blocks.Joined() == 0 && e.Size <= to.OpMax):
		b.alike(to, single)
	case single:
		b.one(to, e.Local, e.Remote, e.Sizes)
	default:
		b.many(to, e)
	}
	b.fillOps(kind)
}

// alike turns the blocks into segments. They form a single op, or several ops with an equal number
// of segments. Several ops require that no blocks are contiguous.
func (b *Batch) alike(to *Target, single bool) {
	b.segs, b.rsegs = b.blocks.Segments(fabric.Seg{Addr: to.Local, MR: to.MR},
		fabric.RSeg{Addr: to.Remote, Key: to.Key}, b.segs, b.rsegs)
	n := len(b.segs)
	each := n
	if !single {
		each = int(min(uint64(to.SegMax), to.OpMax/b.blocks.Size()))
	}
	for at := 0; at < n; {
		at = min(n, at+each)
		b.cuts = append(b.cuts, at)
	}
}

// asBlocks makes one op from the blocks.
func (b *Batch) asBlocks(kind fabric.OpKind, to *Target) {
	b.segs, b.rsegs = b.segs[:0], b.rsegs[:0]
	b.Ops = append(b.Ops[:0], fabric.Op{Kind: kind, Flags: fabric.OpWantCQE, Blocks: &b.blocks,
		Seg:  fabric.Seg{Addr: to.Local, Len: b.blocks.LocalEnd(), MR: to.MR},
		RSeg: fabric.RSeg{Addr: to.Remote, Len: b.blocks.RemoteEnd(), Key: to.Key}})
	b.reset()
}

// one makes the segments of a single op, since GPUs copy thousands of blocks in one op. For 8192
// blocks it takes 20 µs, and many takes 36.
func (b *Batch) one(to *Target, lo, ro, sz []uint64) {
	n := len(sz)
	lo, ro = lo[:n], ro[:n]
	segs, rsegs := slices.Grow(b.segs[:0], n)[:n], slices.Grow(b.rsegs[:0], n)[:n]
	local, remote, mr, key := to.Local, to.Remote, to.MR, to.Key
	k := 0
	var la, ra uint64 // ends of the previous segment
	for i, size := range sz {
		if size == 0 {
			continue
		}
		l, r := local+lo[i], remote+ro[i]
		if k > 0 && l == la && r == ra {
			segs[k-1].Len += size
			rsegs[k-1].Len += size
		} else if k < len(segs) && k < len(rsegs) { // always true; lets the compiler omit bounds checks
			segs[k] = fabric.Seg{Addr: l, Len: size, MR: mr}
			rsegs[k] = fabric.RSeg{Addr: r, Len: size, Key: key}
			k++
		}
		la, ra = l+size, r+size
	}
	b.segs, b.rsegs = segs[:k], rsegs[:k]
	if k > 0 {
		b.cuts = append(b.cuts, k)
	}
}

// many makes the segments and splits them into ops at the target's limits.
func (b *Batch) many(to *Target, e *Entries) {
	b.segs, b.rsegs = b.segs[:0], b.rsegs[:0]
	var room uint64 // bytes left in the current op
	start := 0      // its first segment
	n := len(e.Local)
	lo, ro := e.Local, e.Remote[:n]
	for i := 0; i < n; {
		la, ra, left := to.Local+lo[i], to.Remote+ro[i], e.at(i)
		for i++; i < n && to.Local+lo[i] == la+left && to.Remote+ro[i] == ra+left; i++ {
			left += e.at(i)
		}
		for left > 0 {
			if len(b.segs)-start >= to.SegMax || room == 0 {
				if len(b.segs) > start {
					b.cuts = append(b.cuts, len(b.segs))
				}
				start, room = len(b.segs), to.OpMax
			}
			take := min(left, room)
			b.segs = append(b.segs, fabric.Seg{Addr: la, Len: take, MR: to.MR})
			b.rsegs = append(b.rsegs, fabric.RSeg{Addr: ra, Len: take, Key: to.Key})
			la, ra, left, room = la+take, ra+take, left-take, room-take
		}
	}
	if len(b.segs) > start {
		b.cuts = append(b.cuts, len(b.segs))
	}
}

func (b *Batch) fillOps(kind fabric.OpKind) {
	b.Ops = b.Ops[:0]
	from := 0
	for _, end := range b.cuts {
		b.Ops = append(b.Ops, fabric.Op{Kind: kind, Flags: fabric.OpWantCQE,
			Seg: b.segs[from], More: b.segs[from+1 : end], RSeg: b.rsegs[from], RMore: b.rsegs[from+1 : end]})
		from = end
	}
	b.reset()
}

// reset marks every op as not done.
func (b *Batch) reset() {
	b.Done = append(b.Done[:0], make([]bool, len(b.Ops))...)
}

// Rebase drops the ops that are done and adapts the others to another path of the same session. No
// op may be pending.
func (b *Batch) Rebase(from, to *Target) {
	rest := b.Ops[:0]
	for i := range b.Ops {
		if !b.Done[i] {
			rest = append(rest, b.Ops[i])
		}
	}
	clear(b.Ops[len(rest):])
	b.Ops = rest
	if len(b.Ops) == 1 && b.Ops[0].Blocks != nil && b.blocks.Len() > to.BlockMax {
		b.Build(b.Ops[0].Kind, to, b.blocks.Bytes(), nil)
		return
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		op.Flags = fabric.OpWantCQE
		op.RSeg.Addr, op.RSeg.Key = op.RSeg.Addr-from.Remote+to.Remote, to.Key
		op.Seg.MR = to.MR
		for k := range op.RMore {
			op.RMore[k].Addr, op.RMore[k].Key = op.RMore[k].Addr-from.Remote+to.Remote, to.Key
			op.More[k].MR = to.MR
		}
	}
	b.reset()
}

// Notify turns b into one op that writes no bytes and carries a uid to the target.
func (b *Batch) Notify(to *Target, uid uint64) {
	b.segs, b.rsegs = b.segs[:0], b.rsegs[:0]
	b.Ops = append(b.Ops[:0], fabric.Op{Kind: fabric.OpWrite,
		RSeg: fabric.RSeg{Addr: to.Remote, Key: to.Key}})
	b.reset()
	b.Carry(uid)
}

// Carry makes the only op of b carry a uid to the target.
func (b *Batch) Carry(uid uint64) {
	b.Ops[0].Flags |= fabric.OpWantCQE | fabric.OpRemoteData
	b.Ops[0].Data = uid
}

// Release returns b for reuse. Nothing may point into it any more.
func (b *Batch) Release() {
	if max(cap(b.segs), cap(b.blocks.Local())) <= 1<<16 { // leave rare huge batches to the garbage collector
		batches.Put(b)
	}
}
