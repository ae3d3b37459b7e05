// SPDX-License-Identifier: MIT

package fabrictest

import (
	"encoding/binary"

	"mori/core/fabric"
)

// Each case skips unless Info.Order promises its pair. That messages arrive in order is among the
// cases of messages.
var orderCases = []testCase{
	{"a read sees the write before it", func(r *rig) {
		o := r.ordered(fabric.OrderRAW, r.info.Limits.OrderRAW)
		for _, size := range o.sizes {
			for seed := range uint64(30) {
				o.src.at(0, size).fill(seed)
				o.both(o.op(fabric.OpWrite, o.src, size), o.op(fabric.OpRead, o.back, size))
				r.has(o.back.at(0, size), seed, 0)
			}
		}
	}},
	{"a write leaves the read before it alone", func(r *rig) {
		o := r.ordered(fabric.OrderWAR, r.info.Limits.OrderWAR)
		for _, size := range o.sizes {
			for seed := range uint64(30) {
				o.far.at(0, size).fill(seed)
				o.src.at(0, size).fill(seed + 1)
				o.both(o.op(fabric.OpRead, o.back, size), o.op(fabric.OpWrite, o.src, size))
				r.has(o.back.at(0, size), seed, 0)
				r.has(o.far.at(0, size), seed+1, 0)
			}
		}
	}},
	{"the later of two writes stays", func(r *rig) {
		o := r.ordered(fabric.OrderWAW, r.info.Limits.OrderWAW)
		for _, size := range o.sizes {
			for seed := range uint64(30) {
				o.src.at(0, size).fill(seed)
				o.back.at(0, size).fill(seed + 1)
				o.both(o.op(fabric.OpWrite, o.src, size), o.op(fabric.OpWrite, o.back, size))
				r.has(o.far.at(0, size), seed+1, 0)
			}
		}
	}},
	{"a message comes after the write before it", func(r *rig) {
		o := r.ordered(fabric.OrderSAW, noBound)
		note := r.alloc(8)
		for _, size := range o.sizes {
			for seed := range uint64(30) {
				o.b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: note.seg(), Ctx: 5})
				o.src.at(0, size).fill(seed)
				o.a.submit(o.op(fabric.OpWrite, o.src, size), fabric.Op{Kind: fabric.OpSend, Seg: o.src.at(0, 8).seg()})
				o.b.ok(5)
				r.has(o.far.at(0, size), seed, 0)
				o.a.ok(0)
				o.a.ok(0)
			}
		}
	}},
	{"atomics keep the order of writes and reads", func(r *rig) {
		r.ordered(fabric.OrderWAW, r.info.Limits.OrderWAW)
		r.ordered(fabric.OrderRAW, r.info.Limits.OrderRAW)
		w := r.arena(8, bothRights)
		sum := w.needs(atomicWord{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64})
		fetch := w.needs(atomicWord{fabric.OpFetchAtomic, fabric.AtomicRead, fabric.Uint64})
		src := r.alloc(8)
		for i := range uint64(100) {
			binary.LittleEndian.PutUint64(src.b, i)
			binary.LittleEndian.PutUint64(w.local.b, 1000)
			w.a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: w.to.at(0, 8)}, sum, fetch)
			for range 3 {
				w.a.ok(0)
			}
			if got := binary.LittleEndian.Uint64(w.fetched.b); got != i+1000 {
				r.Fatalf("%d and then 1000 more were fetched as %d", i, got)
			}
		}
	}},
}

// noBound is one that no size reaches.
const noBound = ^uint64(0)

// An ordering is a pair, memory on both sides, and the sizes of ops up to which order is promised.
type ordering struct {
	*rig
	a, b           *node
	far, src, back memory
	to             target
	sizes          []int
}

// ordered skips the case unless the pair of ops is promised.
func (r *rig) ordered(pair fabric.Order, bound uint64) *ordering {
	r.Helper()
	if r.info.Order&pair == 0 {
		r.Skipf("the provider does not keep order %#x", uint32(pair))
	}
	const most = 1 << 20
	o := &ordering{rig: r, far: r.alloc(most), src: r.alloc(most), back: r.alloc(most)}
	o.a, o.b = r.pair(shape{})
	o.to = o.a.imports(o.b.reg(o.far, bothRights).Raw())
	for _, size := range []int{8, 4096, 70000, most} {
		if uint64(size) <= bound {
			o.sizes = append(o.sizes, size)
		}
	}
	return o
}

func (o *ordering) op(kind fabric.OpKind, m memory, size int) fabric.Op {
	return fabric.Op{Kind: kind, Seg: m.at(0, size).seg(), RSeg: o.to.at(0, uint64(size))}
}

// both submits two ops at once, and waits for their success.
func (o *ordering) both(x, y fabric.Op) {
	o.Helper()
	o.a.submit(x, y)
	o.a.ok(0)
	o.a.ok(0)
}
