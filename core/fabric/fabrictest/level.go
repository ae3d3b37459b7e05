// SPDX-License-Identifier: MIT

package fabrictest

import (
	"time"

	"mori/core/fabric"
)

var levels = []fabric.OpFlags{0, fabric.OpInjectComplete, fabric.OpTransmitComplete, fabric.OpDeliveryComplete}

var levelCases = []testCase{
	{"every kind of op supports every level", func(r *rig) {
		a, b := r.pair(shape{})
		src, far := r.patterned(64, 1), r.alloc(64)
		to := a.imports(b.reg(far, bothRights).Raw())
		ops := append([]fabric.Op{{Kind: fabric.OpSend, Seg: src.seg()}, {Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64)},
			{Kind: fabric.OpRead, Seg: r.alloc(64).seg(), RSeg: to.at(0, 64)}}, someAtomics(r, a, src, to)...)
		for _, op := range ops {
			for _, level := range levels {
				if op.Kind == fabric.OpSend {
					b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: far.seg(), Ctx: 5})
				}
				op.Flags = level
				a.do(op)
				if op.Kind == fabric.OpSend {
					b.ok(5)
				}
			}
		}
	}},
	{"an op has one level", func(r *rig) {
		a, b := r.pair(shape{})
		far := r.alloc(8)
		to := a.imports(b.reg(far, bothRights).Raw())
		for _, op := range []fabric.Op{{Kind: fabric.OpSend}, {Kind: fabric.OpWrite, RSeg: to.at(0, 0)}, {Kind: fabric.OpRead, RSeg: to.at(0, 0)}} {
			for _, flags := range []fabric.OpFlags{fabric.OpInjectComplete | fabric.OpTransmitComplete, fabric.OpLevels,
				fabric.OpTransmitComplete | fabric.OpDeliveryComplete, fabric.OpInjectComplete | fabric.OpDeliveryComplete} {
				op.Flags = flags
				_, err := a.try(op)
				r.want(op.Kind.String(), err, fabric.ErrBadFlags)
			}
		}
		a.silent()
	}},
	{"a delivered message is in the memory of a receive", delivered},
	{"messages are delivered in order", func(r *rig) {
		const count = 100
		a, b := r.pair(shape{})
		src, dst := r.patterned(count*8, 1), r.alloc(count*8)
		for i := range count {
			a.submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: src.at(8*i, 8).seg(), Ctx: uint64(i)})
		}
		for i := range count {
			a.silent() // the receive of no other message is posted
			b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.at(8*i, 8).seg(), Ctx: uint64(i)})
			a.ok(uint64(i))
			r.has(dst.at(8*i, 8), 1, uint64(8*i))
			b.ok(uint64(i))
		}
	}},
	{"ops beside a delivery end no later than its receive", func(r *rig) {
		a, b := r.pair(shape{})
		src, far, back := r.patterned(64, 1), r.alloc(64), r.alloc(64)
		to := a.imports(b.reg(far, bothRights).Raw())
		a.submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: src.seg(), Ctx: 0},
			fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64), Ctx: 1},
			fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpFence, Seg: back.seg(), RSeg: to.at(0, 64), Ctx: 2})
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.alloc(64).seg(), Ctx: 3})
		if left := tally(a, 3, caseDeadline/4); left != 0 {
			r.Errorf("%d of 3 ops did not end", left)
		}
		b.ok(3)
		r.has(back, 1, 0)
	}},
	{"a fence waits for a delivery", fenceBehindDelivery},
	{"a truncated message ends its delivery", func(r *rig) {
		a, b := r.pair(shape{})
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.alloc(8).seg(), Ctx: 3})
		a.submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: r.patterned(64, 1).seg(), Ctx: 1})
		if e := b.read(); e.Err != fabric.ErrTruncated {
			r.Errorf("the receive: %+v", e)
		}
		if e := a.read(); e.Ctx != 1 {
			r.Errorf("the send: %+v", e) // whether it ended well is the provider's opinion
		}
	}},
	{"a delivery to a peer that closes fails", func(r *rig) {
		for _, size := range []int{8, 1 << 20} {
			a, b := r.pair(shape{})
			stillWorks(r, a, b)
			a.submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: r.patterned(size, 1).seg(), Ctx: 1})
			r.must(b.ep.Close())
			if e := a.read(); e.Err == 0 || e.Ctx != 1 || e.Kind != fabric.OpSend {
				r.Errorf("%d bytes, received by nobody: %+v", size, e)
			}
		}
	}},
}

var levelRDMCases = []testCase{
	{"a transmitted message outlives its sender", func(r *rig) {
		a, b := r.pair(shape{})
		src, dst := r.patterned(64, 1), r.alloc(64)
		a.submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpTransmitComplete, Seg: src.seg(), Ctx: 1})
		ended := tally(a, 1, time.Second) == 0 // or the provider promises more than asked and waits for the receive
		if ended {
			clear(src.b)
			r.must(a.ep.Close())
		}
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 2})
		b.ok(2)
		r.has(dst, 1, 0)
		if !ended {
			a.ok(1)
		}
	}},
}

// delivered looks at the memory when the sender has its completion, and not when the receiver has.
func delivered(r *rig) {
	a, b := r.pair(shape{})
	for i, size := range []int{0, 8, 4096, 100000, 4 << 20} {
		for _, early := range []bool{false, true} {
			seed := uint64(i + 1)
			src, dst := r.patterned(size, seed), r.alloc(size)
			recv := fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 2}
			send := fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: src.seg(), Ctx: 1}
			if early {
				b.submit(recv)
			}
			a.submit(send)
			if !early {
				time.Sleep(10 * time.Millisecond) // time to do it wrong
				a.silent()
				b.submit(recv)
			}
			a.ok(1)
			r.has(dst, seed, 0)
			b.ok(2)
		}
	}
}

// fenceBehindDelivery puts an op of each kind behind a message whose receive is not posted.
func fenceBehindDelivery(r *rig) {
	a, b := r.pair(shape{})
	src, dst, far, back := r.patterned(64, 1), r.alloc(64), r.alloc(64), r.alloc(64)
	to := a.imports(b.reg(far, bothRights).Raw())
	ops := append([]fabric.Op{{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64)},
		{Kind: fabric.OpRead, Seg: back.seg(), RSeg: to.at(0, 64)}}, someAtomics(r, a, src, to)...)
	for _, op := range ops {
		far.fill(2)
		clear(dst.b)
		clear(back.b)
		op.Flags, op.Ctx = fabric.OpFence, 2
		a.submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: src.seg(), Ctx: 1}, op)
		time.Sleep(10 * time.Millisecond) // time to do it wrong
		r.has(far, 2, 0)
		r.zero(back)
		a.silent()
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 3})
		a.ok(1)
		r.has(dst, 1, 0)
		a.ok(2)
		b.ok(3)
		switch op.Kind {
		case fabric.OpWrite:
			r.has(far, 1, 0)
		case fabric.OpRead:
			r.has(back, 2, 0)
		}
	}
}
