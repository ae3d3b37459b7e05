// SPDX-License-Identifier: MIT

package shm

import (
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/pages"
	"mori/core/provider/internal/local"
)

// A place is a position in a list of segments: entry and byte inside it. Entry 0 is the Op's own
// segment, entry i is number i-1 of the rest.
type place struct {
	entry int
	off   uint64
}

// A walk cuts an op into slices. Pure; the zero places are the start.
type walk struct {
	op            *fabric.Op
	base          uint64 // where the region starts in the peer
	local, remote place
	left          uint64 // bytes not yet handed out
}

// newWalk begins at the first of the op's n bytes.
func newWalk(op *fabric.Op, n, base uint64) walk { return walk{op: op, base: base, left: n} }

// A slice is what one system call moves: two lists of equal length, in memory that its worker
// reuses.
type slice struct {
	local, remote []sys.Iovec
	n             uint64

	// Scratch of job.copyNow.
	resident pages.Map
	entries  [(inlineBytes/minPage + 1) * local.PageEntry]byte
}

// next fills s with up to limit bytes and as many entries a side as s has room for.
func (w *walk) next(s *slice, limit uint64) {
	start := w.local
	s.local, s.n = fill(localSegs{w.op}, &w.local, s.local[:0], min(limit, w.left))
	var got uint64
	s.remote, got = fill(remoteSegs{w.op, w.base}, &w.remote, s.remote[:0], s.n)
	if got < s.n { // the remote list ran out of entries first
		w.local = start
		s.local, s.n = fill(localSegs{w.op}, &w.local, s.local[:0], got)
	}
	w.left -= s.n
}

// segs is a list of at least one segment.
type segs interface {
	at(i int) (addr, n uint64)
	len() int
}

type localSegs struct{ op *fabric.Op }

func (l localSegs) len() int { return 1 + len(l.op.More) }

func (l localSegs) at(i int) (addr, n uint64) {
	if i == 0 {
		return l.op.Seg.Addr, l.op.Seg.Len
	}
	return l.op.More[i-1].Addr, l.op.More[i-1].Len
}

type remoteSegs struct {
	op   *fabric.Op
	base uint64
}

func (r remoteSegs) len() int { return 1 + len(r.op.RMore) }

func (r remoteSegs) at(i int) (addr, n uint64) {
	if i == 0 {
		return r.base + r.op.RSeg.Addr, r.op.RSeg.Len
	}
	return r.base + r.op.RMore[i-1].Addr, r.op.RMore[i-1].Len
}

// fill appends up to limit bytes from p on to dst, never past its capacity, and moves p.
func fill[S segs](list S, p *place, dst []sys.Iovec, limit uint64) ([]sys.Iovec, uint64) {
	n := uint64(0)
	for n < limit && len(dst) < cap(dst) && p.entry < list.len() {
		addr, size := list.at(p.entry)
		if take := min(size-p.off, limit-n); take > 0 {
			dst = append(dst, sys.Iovec{Addr: addr + p.off, Len: take})
			n += take
			p.off += take
		}
		if p.off == size {
			p.entry, p.off = p.entry+1, 0
		}
	}
	return dst, n
}
