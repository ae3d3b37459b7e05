// SPDX-License-Identifier: MIT

package transfer

import (
	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/atomics"
	"mori/core/fabric/fabrictest/internal/rig"
)

// InjectCases are the cases of OpInject.
var InjectCases = []rig.Case{
	{Name: "memory is free when submit returns", Run: func(r *rig.Rig) {
		in := newInjector(r, 64)
		for i := range uint64(300) {
			for _, op := range in.ops() {
				in.local.Fill(i)
				clear(in.far.B)
				in.post(op)
				in.a.Submit(op)
				in.local.Fill(i + 1)
				in.arrived(op)
				r.Has(in.far.At(0, int(op.Len())), i, 0)
			}
		}
		in.a.Silent()
	}},
	{Name: "an injected op never reports success", Run: func(r *rig.Rig) {
		in := newInjector(r, 16)
		for _, op := range in.ops() {
			op.Flags |= fabric.OpWantCQE
			op.Ctx = 66
			in.post(op)
			in.a.Submit(op)
			in.arrived(op)
		}
		in.a.Silent()
	}},
	{Name: "an injected op reports failure", Run: func(r *rig.Rig) {
		in := newInjector(r, 16)
		for _, op := range in.ops() {
			if op.Kind == fabric.OpSend {
				continue
			}
			op.RSeg.Addr += uint64(len(in.far.B))
			op.Ctx = 66
			in.a.Refused(op, r.Denial(fabric.ErrRange)...)
			if r.DenialEnds() {
				in = newInjector(r, 16)
			}
		}
		in.a.Silent()
	}},
	{Name: "more than the limit is refused", Run: func(r *rig.Rig) {
		in := newInjector(r, 16)
		size := int(r.Info.Limits.MaxInject) + 8 - int(r.Info.Limits.MaxInject)%8
		big, far := r.Alloc(size), r.Alloc(size)
		to := in.a.Imports(in.b.Reg(far, rig.BothRights).Raw())
		for _, op := range in.ops() {
			op.Seg = big.Seg()
			if op.Kind != fabric.OpSend {
				op.RSeg = to.At(0, uint64(size))
			}
			_, err := in.a.Try(op)
			r.Want(op.Kind.String(), err, fabric.ErrMsgSize)
		}
		r.Zero(far)
		in.a.Silent()
	}},
	{Name: "injected messages and others stay in order", Run: func(r *rig.Rig) {
		const count = 200
		in := newInjector(r, 8)
		dst := r.Alloc(count * 8)
		for i := range uint64(count) {
			in.b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.At(int(8*i), 8).Seg(), Ctx: i})
		}
		src := r.Alloc(count * 8)
		for i := range uint64(count) {
			m := src.At(int(8*i), 8)
			m.Fill(i)
			op := fabric.Op{Kind: fabric.OpSend, Seg: m.Seg()}
			if i%3 == 0 {
				op.Flags = fabric.OpInject
			}
			in.a.Submit(op)
			if i%3 == 0 {
				clear(m.B)
			}
		}
		for i := range uint64(count) {
			in.b.OK(i)
			r.Has(dst.At(int(8*i), 8), i, 0)
			if i%3 != 0 {
				in.a.OK(0)
			}
		}
	}},
	{Name: "an endpoint that only injects never gets stuck", Run: func(r *rig.Rig) {
		in := newInjector(r, 8)
		write := in.ops()[1]
		for i := range uint64(5000) {
			in.local.Fill(i)
			in.a.Submit(write)
		}
		in.arrived(write)
		in.a.Silent()
	}},
}

// An injector is a pair and one small op of each kind that can be injected.
type injector struct {
	*rig.Rig
	a, b       *rig.Node
	local, far rig.Buffer
	to         rig.Target
}

// newInjector skips the case if the provider does not inject at least 8 bytes. Ops have up to size.
func newInjector(r *rig.Rig, size int) *injector {
	r.Helper()
	limit := int(r.Info.Limits.MaxInject)
	if limit < 8 {
		r.Skip("the provider injects less than a word")
	}
	size = min(size, limit-limit%8)
	in := &injector{Rig: r, local: r.Alloc(size), far: r.Alloc(size)}
	in.a, in.b = r.Pair(rig.Shape{})
	in.to = in.a.Imports(in.b.Reg(in.far, rig.BothRights).Raw())
	return in
}

// ops are a send, a write, and an atomic if there are any.
func (in *injector) ops() []fabric.Op {
	n := uint64(len(in.local.B))
	ops := []fabric.Op{{Kind: fabric.OpSend, Flags: fabric.OpInject, Seg: in.local.Seg()},
		{Kind: fabric.OpWrite, Flags: fabric.OpInject, Seg: in.local.Seg(), RSeg: in.to.At(0, n)}}
	word := atomics.AtomicWord{Kind: fabric.OpAtomic, Op: fabric.AtomicWrite, T: fabric.Uint64}
	if in.Info.Caps&fabric.CapAtomic == 0 || atomics.MostAtomics(in.Rig, in.a, word) == 0 {
		return ops
	}
	return append(ops, fabric.Op{Kind: fabric.OpAtomic, Flags: fabric.OpInject, Seg: in.local.At(0, 8).Seg(), RSeg: in.to.At(0, 8),
		Atomic: &fabric.Atomic{Op: word.Op, Type: word.T}})
}

// post readies the far memory for op.
func (in *injector) post(op fabric.Op) {
	in.Helper()
	if op.Kind == fabric.OpSend {
		in.b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: in.far.Seg(), Ctx: 5})
	}
}

// arrived waits until what a submitted is in the far memory.
func (in *injector) arrived(op fabric.Op) {
	in.Helper()
	if op.Kind == fabric.OpSend {
		in.b.OK(5)
		return
	}
	in.a.Do(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpFence, Ctx: 7, RSeg: in.to.At(0, 0)})
}
