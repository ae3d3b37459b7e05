// SPDX-License-Identifier: MIT

package transfer

import (
	"encoding/binary"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/atomics"
	"mori/core/fabric/fabrictest/internal/rig"
)

// Each case skips unless Info.Order promises its pair. That messages arrive in order is among the
// cases of messages.
var OrderCases = []rig.Case{
	{Name: "a read sees the write before it", Run: func(r *rig.Rig) {
		o := newOrdering(r, fabric.OrderRAW, r.Info.Limits.OrderRAW)
		for _, size := range o.sizes {
			for seed := range uint64(30) {
				o.src.At(0, size).Fill(seed)
				o.both(o.op(fabric.OpWrite, o.src, size), o.op(fabric.OpRead, o.back, size))
				r.Has(o.back.At(0, size), seed, 0)
			}
		}
	}},
	{Name: "a write leaves the read before it alone", Run: func(r *rig.Rig) {
		o := newOrdering(r, fabric.OrderWAR, r.Info.Limits.OrderWAR)
		for _, size := range o.sizes {
			for seed := range uint64(30) {
				o.far.At(0, size).Fill(seed)
				o.src.At(0, size).Fill(seed + 1)
				o.both(o.op(fabric.OpRead, o.back, size), o.op(fabric.OpWrite, o.src, size))
				r.Has(o.back.At(0, size), seed, 0)
				r.Has(o.far.At(0, size), seed+1, 0)
			}
		}
	}},
	{Name: "the later of two writes stays", Run: func(r *rig.Rig) {
		o := newOrdering(r, fabric.OrderWAW, r.Info.Limits.OrderWAW)
		for _, size := range o.sizes {
			for seed := range uint64(30) {
				o.src.At(0, size).Fill(seed)
				o.back.At(0, size).Fill(seed + 1)
				o.both(o.op(fabric.OpWrite, o.src, size), o.op(fabric.OpWrite, o.back, size))
				r.Has(o.far.At(0, size), seed+1, 0)
			}
		}
	}},
	{Name: "a message comes after the write before it", Run: func(r *rig.Rig) {
		o := newOrdering(r, fabric.OrderSAW, noBound)
		note := r.Alloc(8)
		for _, size := range o.sizes {
			for seed := range uint64(30) {
				o.b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: note.Seg(), Ctx: 5})
				o.src.At(0, size).Fill(seed)
				o.a.Submit(o.op(fabric.OpWrite, o.src, size), fabric.Op{Kind: fabric.OpSend, Seg: o.src.At(0, 8).Seg()})
				o.b.OK(5)
				r.Has(o.far.At(0, size), seed, 0)
				o.a.OK(0)
				o.a.OK(0)
			}
		}
	}},
	{Name: "atomics keep the order of writes and reads", Run: func(r *rig.Rig) {
		newOrdering(r, fabric.OrderWAW, r.Info.Limits.OrderWAW)
		newOrdering(r, fabric.OrderRAW, r.Info.Limits.OrderRAW)
		w := atomics.NewArena(r, 8, rig.BothRights)
		sum := w.Needs(atomics.AtomicWord{Kind: fabric.OpAtomic, Op: fabric.AtomicSum, T: fabric.Uint64})
		fetch := w.Needs(atomics.AtomicWord{Kind: fabric.OpFetchAtomic, Op: fabric.AtomicRead, T: fabric.Uint64})
		src := r.Alloc(8)
		for i := range uint64(100) {
			binary.LittleEndian.PutUint64(src.B, i)
			binary.LittleEndian.PutUint64(w.Local.B, 1000)
			w.A.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: w.To.At(0, 8)}, sum, fetch)
			for range 3 {
				w.A.OK(0)
			}
			if got := binary.LittleEndian.Uint64(w.Fetched.B); got != i+1000 {
				r.Fatalf("%d and then 1000 more were fetched as %d", i, got)
			}
		}
	}},
}

// noBound is one that no size reaches.
const noBound = ^uint64(0)

// An ordering is a pair, memory on both sides, and the sizes of ops up to which order is promised.
type ordering struct {
	*rig.Rig
	a, b           *rig.Node
	far, src, back rig.Buffer
	to             rig.Target
	sizes          []int
}

// newOrdering skips the case unless the pair of ops is promised.
func newOrdering(r *rig.Rig, pair fabric.Order, bound uint64) *ordering {
	r.Helper()
	if r.Info.Order&pair == 0 {
		r.Skipf("the provider does not keep order %#x", uint32(pair))
	}
	const most = 1 << 20
	o := &ordering{Rig: r, far: r.Alloc(most), src: r.Alloc(most), back: r.Alloc(most)}
	o.a, o.b = r.Pair(rig.Shape{})
	o.to = o.a.Imports(o.b.Reg(o.far, rig.BothRights).Raw())
	for _, size := range []int{8, 4096, 70000, most} {
		if uint64(size) <= bound {
			o.sizes = append(o.sizes, size)
		}
	}
	return o
}

func (o *ordering) op(kind fabric.OpKind, m rig.Buffer, size int) fabric.Op {
	return fabric.Op{Kind: kind, Seg: m.At(0, size).Seg(), RSeg: o.to.At(0, uint64(size))}
}

// both submits two ops at once, and waits for their success.
func (o *ordering) both(x, y fabric.Op) {
	o.Helper()
	o.a.Submit(x, y)
	o.a.OK(0)
	o.a.OK(0)
}
