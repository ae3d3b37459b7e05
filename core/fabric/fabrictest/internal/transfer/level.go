// SPDX-License-Identifier: MIT

package transfer

import (
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/atomics"
	"mori/core/fabric/fabrictest/internal/rig"
)

var levels = []fabric.OpFlags{0, fabric.OpInjectComplete, fabric.OpTransmitComplete, fabric.OpDeliveryComplete}

// LevelCases are the cases of completion levels.
var LevelCases = []rig.Case{
	{Name: "every kind of op supports every level", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		src, far := r.Patterned(64, 1), r.Alloc(64)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		ops := append([]fabric.Op{{Kind: fabric.OpSend, Seg: src.Seg()}, {Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 64)},
			{Kind: fabric.OpRead, Seg: r.Alloc(64).Seg(), RSeg: to.At(0, 64)}}, atomics.SomeAtomics(r, a, src, to)...)
		for _, op := range ops {
			for _, level := range levels {
				if op.Kind == fabric.OpSend {
					b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: far.Seg(), Ctx: 5})
				}
				op.Flags = level
				a.Do(op)
				if op.Kind == fabric.OpSend {
					b.OK(5)
				}
			}
		}
	}},
	{Name: "an op has one level", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		far := r.Alloc(8)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		for _, op := range []fabric.Op{{Kind: fabric.OpSend}, {Kind: fabric.OpWrite, RSeg: to.At(0, 0)}, {Kind: fabric.OpRead, RSeg: to.At(0, 0)}} {
			for _, flags := range []fabric.OpFlags{fabric.OpInjectComplete | fabric.OpTransmitComplete, fabric.OpLevels,
				fabric.OpTransmitComplete | fabric.OpDeliveryComplete, fabric.OpInjectComplete | fabric.OpDeliveryComplete} {
				op.Flags = flags
				_, err := a.Try(op)
				r.Want(op.Kind.String(), err, fabric.ErrBadFlags)
			}
		}
		a.Silent()
	}},
	{Name: "a delivered message is in the memory of a receive", Run: delivered},
	{Name: "messages are delivered in order", Run: func(r *rig.Rig) {
		const count = 100
		a, b := r.Pair(rig.Shape{})
		src, dst := r.Patterned(count*8, 1), r.Alloc(count*8)
		for i := range count {
			a.Submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: src.At(8*i, 8).Seg(), Ctx: uint64(i)})
		}
		for i := range count {
			a.Silent() // the receive of no other message is posted
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.At(8*i, 8).Seg(), Ctx: uint64(i)})
			a.OK(uint64(i))
			r.Has(dst.At(8*i, 8), 1, uint64(8*i))
			b.OK(uint64(i))
		}
	}},
	{Name: "ops beside a delivery end no later than its receive", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		src, far, back := r.Patterned(64, 1), r.Alloc(64), r.Alloc(64)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		a.Submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: src.Seg(), Ctx: 0},
			fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 64), Ctx: 1},
			fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpFence, Seg: back.Seg(), RSeg: to.At(0, 64), Ctx: 2})
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.Alloc(64).Seg(), Ctx: 3})
		if left := rig.Tally(a, 3, rig.CaseDeadline/4); left != 0 {
			r.Errorf("%d of 3 ops did not end", left)
		}
		b.OK(3)
		r.Has(back, 1, 0)
	}},
	{Name: "a fence waits for a delivery", Run: fenceBehindDelivery},
	{Name: "a truncated message ends its delivery", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.Alloc(8).Seg(), Ctx: 3})
		a.Submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: r.Patterned(64, 1).Seg(), Ctx: 1})
		if e := b.Read(); e.Err != fabric.ErrTruncated {
			r.Errorf("the receive: %+v", e)
		}
		if e := a.Read(); e.Ctx != 1 {
			r.Errorf("the send: %+v", e) // whether it ended well is the provider's opinion
		}
	}},
	{Name: "a delivery to a peer that closes fails", Run: func(r *rig.Rig) {
		for _, size := range []int{8, 1 << 20} {
			a, b := r.Pair(rig.Shape{})
			rig.StillWorks(r, a, b)
			a.Submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: r.Patterned(size, 1).Seg(), Ctx: 1})
			r.Must(b.EP.Close())
			if e := a.Read(); e.Err == 0 || e.Ctx != 1 || e.Kind != fabric.OpSend {
				r.Errorf("%d bytes, received by nobody: %+v", size, e)
			}
		}
	}},
}

// LevelRDMCases are the cases of completion levels, for EPRDM only.
var LevelRDMCases = []rig.Case{
	{Name: "a transmitted message outlives its sender", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		src, dst := r.Patterned(64, 1), r.Alloc(64)
		a.Submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpTransmitComplete, Seg: src.Seg(), Ctx: 1})
		ended := rig.Tally(a, 1, time.Second) == 0 // or the provider promises more than asked and waits for the receive
		if ended {
			clear(src.B)
			r.Must(a.EP.Close())
		}
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 2})
		b.OK(2)
		r.Has(dst, 1, 0)
		if !ended {
			a.OK(1)
		}
	}},
}

// delivered looks at the memory when the sender has its completion, and not when the receiver has.
func delivered(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	for i, size := range []int{0, 8, 4096, 100000, 4 << 20} {
		for _, early := range []bool{false, true} {
			seed := uint64(i + 1)
			src, dst := r.Patterned(size, seed), r.Alloc(size)
			recv := fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 2}
			send := fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: src.Seg(), Ctx: 1}
			if early {
				b.Submit(recv)
			}
			a.Submit(send)
			if !early {
				time.Sleep(10 * time.Millisecond) // time to do it wrong
				a.Silent()
				b.Submit(recv)
			}
			a.OK(1)
			r.Has(dst, seed, 0)
			b.OK(2)
		}
	}
}

// fenceBehindDelivery puts an op of each kind behind a message whose receive is not posted.
func fenceBehindDelivery(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	src, dst, far, back := r.Patterned(64, 1), r.Alloc(64), r.Alloc(64), r.Alloc(64)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	ops := append([]fabric.Op{{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 64)},
		{Kind: fabric.OpRead, Seg: back.Seg(), RSeg: to.At(0, 64)}}, atomics.SomeAtomics(r, a, src, to)...)
	for _, op := range ops {
		far.Fill(2)
		clear(dst.B)
		clear(back.B)
		op.Flags, op.Ctx = fabric.OpFence, 2
		a.Submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete, Seg: src.Seg(), Ctx: 1}, op)
		time.Sleep(10 * time.Millisecond) // time to do it wrong
		r.Has(far, 2, 0)
		r.Zero(back)
		a.Silent()
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 3})
		a.OK(1)
		r.Has(dst, 1, 0)
		a.OK(2)
		b.OK(3)
		switch op.Kind {
		case fabric.OpWrite:
			r.Has(far, 1, 0)
		case fabric.OpRead:
			r.Has(back, 2, 0)
		}
	}
}
