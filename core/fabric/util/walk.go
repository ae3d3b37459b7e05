// SPDX-License-Identifier: MIT

package util

import "mori/core/fabric"

// A Walk iterates over the bytes of an op, whose two sides may be split differently. It yields runs
// that are contiguous on both sides. The lengths must be equal, which CheckOp guarantees.
type Walk struct {
	op        *fabric.Op
	li, ri    int    // index of the segment: 0 is Seg, i is More[i-1]
	loff, rof uint64 // bytes of it that Next has returned
}

// NewWalk starts at the first byte of op.
func NewWalk(op *fabric.Op) Walk { return Walk{op: op} }

// Next returns the next run of n bytes at a local address and a remote address; false at the end.
func (w *Walk) Next() (local, remote, n uint64, ok bool) {
	l, r := w.local(), w.remote()
	for l.Len == w.loff {
		if w.li == len(w.op.More) {
			return 0, 0, 0, false
		}
		w.li, w.loff = w.li+1, 0
		l = w.local()
	}
	for r.Len == w.rof {
		if w.ri == len(w.op.RMore) {
			return 0, 0, 0, false
		}
		w.ri, w.rof = w.ri+1, 0
		r = w.remote()
	}
	local, remote, n = l.Addr+w.loff, r.Addr+w.rof, min(l.Len-w.loff, r.Len-w.rof)
	w.loff += n
	w.rof += n
	return local, remote, n, true
}

func (w *Walk) local() *fabric.Seg {
	if w.li == 0 {
		return &w.op.Seg
	}
	return &w.op.More[w.li-1]
}

func (w *Walk) remote() *fabric.RSeg {
	if w.ri == 0 {
		return &w.op.RSeg
	}
	return &w.op.RMore[w.ri-1]
}
