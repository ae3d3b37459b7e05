// SPDX-License-Identifier: MIT

package fabrictest

import "mori/core/fabric"

var injectCases = []testCase{
	{"memory is free when submit returns", func(r *rig) {
		in := r.injector(64)
		for i := range uint64(300) {
			for _, op := range in.ops() {
				in.local.fill(i)
				clear(in.far.b)
				in.post(op)
				in.a.submit(op)
				in.local.fill(i + 1)
				in.arrived(op)
				r.has(in.far.at(0, int(op.Len())), i, 0)
			}
		}
		in.a.silent()
	}},
	{"an injected op never reports success", func(r *rig) {
		in := r.injector(16)
		for _, op := range in.ops() {
			op.Flags |= fabric.OpWantCQE
			op.Ctx = 66
			in.post(op)
			in.a.submit(op)
			in.arrived(op)
		}
		in.a.silent()
	}},
	{"an injected op reports failure", func(r *rig) {
		in := r.injector(16)
		for _, op := range in.ops() {
			if op.Kind == fabric.OpSend {
				continue
			}
			op.RSeg.Addr += uint64(len(in.far.b))
			op.Ctx = 66
			in.a.refused(op, r.denial(fabric.ErrRange)...)
			if r.fatal() {
				in = r.injector(16)
			}
		}
		in.a.silent()
	}},
	{"more than the limit is refused", func(r *rig) {
		in := r.injector(16)
		size := int(r.info.Limits.MaxInject) + 8 - int(r.info.Limits.MaxInject)%8
		big, far := r.alloc(size), r.alloc(size)
		to := in.a.imports(in.b.reg(far, bothRights).Raw())
		for _, op := range in.ops() {
			op.Seg = big.seg()
			if op.Kind != fabric.OpSend {
				op.RSeg = to.at(0, uint64(size))
			}
			_, err := in.a.try(op)
			r.want(op.Kind.String(), err, fabric.ErrMsgSize)
		}
		r.zero(far)
		in.a.silent()
	}},
	{"injected messages and others stay in order", func(r *rig) {
		const count = 200
		in := r.injector(8)
		dst := r.alloc(count * 8)
		for i := range uint64(count) {
			in.b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.at(int(8*i), 8).seg(), Ctx: i})
		}
		src := r.alloc(count * 8)
		for i := range uint64(count) {
			m := src.at(int(8*i), 8)
			m.fill(i)
			op := fabric.Op{Kind: fabric.OpSend, Seg: m.seg()}
			if i%3 == 0 {
				op.Flags = fabric.OpInject
			}
			in.a.submit(op)
			if i%3 == 0 {
				clear(m.b)
			}
		}
		for i := range uint64(count) {
			in.b.ok(i)
			r.has(dst.at(int(8*i), 8), i, 0)
			if i%3 != 0 {
				in.a.ok(0)
			}
		}
	}},
	{"an endpoint that only injects never gets stuck", func(r *rig) {
		in := r.injector(8)
		write := in.ops()[1]
		for i := range uint64(5000) {
			in.local.fill(i)
			in.a.submit(write)
		}
		in.arrived(write)
		in.a.silent()
	}},
}

// An injector is a pair and one small op of each kind that can be injected.
type injector struct {
	*rig
	a, b       *node
	local, far memory
	to         target
}

// injector skips the case if the provider does not inject at least 8 bytes. Ops have up to size.
func (r *rig) injector(size int) *injector {
	r.Helper()
	limit := int(r.info.Limits.MaxInject)
	if limit < 8 {
		r.Skip("the provider injects less than a word")
	}
	size = min(size, limit-limit%8)
	in := &injector{rig: r, local: r.alloc(size), far: r.alloc(size)}
	in.a, in.b = r.pair(shape{})
	in.to = in.a.imports(in.b.reg(in.far, bothRights).Raw())
	return in
}

// ops are a send, a write, and an atomic if there are any.
func (in *injector) ops() []fabric.Op {
	n := uint64(len(in.local.b))
	ops := []fabric.Op{{Kind: fabric.OpSend, Flags: fabric.OpInject, Seg: in.local.seg()},
		{Kind: fabric.OpWrite, Flags: fabric.OpInject, Seg: in.local.seg(), RSeg: in.to.at(0, n)}}
	word := atomicWord{fabric.OpAtomic, fabric.AtomicWrite, fabric.Uint64}
	if in.info.Caps&fabric.CapAtomic == 0 || in.grants(in.a, word) == 0 {
		return ops
	}
	return append(ops, fabric.Op{Kind: fabric.OpAtomic, Flags: fabric.OpInject, Seg: in.local.at(0, 8).seg(), RSeg: in.to.at(0, 8),
		Atomic: &fabric.Atomic{Op: word.op, Type: word.t}})
}

// post readies the far memory for op.
func (in *injector) post(op fabric.Op) {
	in.Helper()
	if op.Kind == fabric.OpSend {
		in.b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: in.far.seg(), Ctx: 5})
	}
}

// arrived waits until what a submitted is in the far memory.
func (in *injector) arrived(op fabric.Op) {
	in.Helper()
	if op.Kind == fabric.OpSend {
		in.b.ok(5)
		return
	}
	in.a.do(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpFence, Ctx: 7, RSeg: in.to.at(0, 0)})
}
