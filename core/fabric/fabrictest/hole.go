// SPDX-License-Identifier: MIT

package fabrictest

import (
	"syscall"
	"testing"

	"mori/core/fabric"
)

// TestHoles runs ops whose memory cannot be touched: it was unmapped, or is protected. The process
// lives, each op ends, and those of memory of the initiator fail. Short ones fail by themselves
// with EFAULT; others may end their connection.
func TestHoles(t *testing.T, open Open) {
	for _, e := range epTypes {
		t.Run(e.name, func(t *testing.T) {
			if _, err := best(t.Context(), open(t), e.typ); err != nil {
				t.Skip(err)
			}
			for _, c := range holeCases {
				t.Run(c.name, func(t *testing.T) { c.run(newRig(t, open, e.typ)) })
			}
		})
	}
}

var holeCases = []testCase{
	{"short ops from memory that is not there", shortHoles},
	{"long ops from memory that is not there", func(r *rig) {
		const n = 3 << 20
		for _, kind := range []fabric.OpKind{fabric.OpSend, fabric.OpWrite} {
			h := r.holes(n)
			h.fails(fabric.Op{Kind: kind, Seg: h.local.seg(), RSeg: h.to.at(0, n), Ctx: 1})
			a, b := r.pair(shape{})
			stillWorks(r, a, b)
		}
	}},
	{"reads into memory that is not there", func(r *rig) {
		for _, n := range []int{8, 3000, 3 << 20} {
			h := r.holes(n)
			h.fails(fabric.Op{Kind: fabric.OpRead, Seg: h.local.seg(), RSeg: h.to.at(0, uint64(n)), Ctx: 1})
			a, b := r.pair(shape{})
			stillWorks(r, a, b)
		}
	}},
	{"ops on a region that is not there", regionHoles},
	{"a message that came before a receive that is not there", func(r *rig) {
		h := r.holes(100)
		h.a.do(fabric.Op{Kind: fabric.OpSend, Seg: h.far.seg(), Ctx: 1})
		h.b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: h.local.seg(), Ctx: 2})
		if e := h.b.read(); e.Err == 0 || e.Ctx != 2 {
			r.Errorf("the receive ended with %+v", e)
		}
	}},
}

// A holed is a pair, memory that cannot be touched, and a region of b of the same length.
type holed struct {
	*rig
	a, b  *node
	local memory
	far   memory
	to    target
}

func (r *rig) holes(n int) *holed {
	r.Helper()
	h := &holed{rig: r, local: r.alloc(n), far: r.alloc(n)}
	h.a, h.b = r.pair(shape{})
	h.to = h.a.imports(h.b.reg(h.far, bothRights).Raw())
	r.dig(h.local)
	return h
}

// dig makes m a hole until the case ends.
func (r *rig) dig(m memory) {
	r.Helper()
	all := m.b[:cap(m.b)]
	r.must(syscall.Mprotect(all, syscall.PROT_NONE))
	r.Cleanup(func() { r.must(syscall.Mprotect(all, syscall.PROT_READ|syscall.PROT_WRITE)) })
}

// fails submits op, which fails, and returns why. A message has its receive.
func (h *holed) fails(op fabric.Op) fabric.Errno {
	h.Helper()
	if op.Kind == fabric.OpSend {
		op.RSeg = fabric.RSeg{}
		h.b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: h.far.seg(), Ctx: 99})
	}
	h.a.submit(op)
	e := h.a.read()
	if e.Err == 0 || e.Ctx != op.Ctx {
		h.Fatalf("%v of %d bytes that are not there: %+v", op.Kind, op.Len(), e)
	}
	return e.Err
}

func shortHoles(r *rig) {
	h := r.holes(4096)
	there := r.patterned(8, 1)
	var ops []fabric.Op
	for _, n := range []int{8, 300, 4000} {
		for _, kind := range []fabric.OpKind{fabric.OpSend, fabric.OpWrite} {
			op := fabric.Op{Kind: kind, Seg: h.local.at(0, n).seg(), RSeg: h.to.at(0, uint64(n))}
			ops = append(ops, op)
			if uint64(n) <= r.info.Limits.MaxInject {
				op.Flags |= fabric.OpInject
				ops = append(ops, op)
			}
			if r.info.Limits.SegLimit > 1 {
				op = fabric.Op{Kind: kind, Seg: there.seg(), More: []fabric.Seg{op.Seg}, RSeg: h.to.at(0, uint64(n+8)&4095)}
				ops = append(ops, op)
			}
		}
	}
	for i := range ops {
		h.alone(ops[i], uint64(i))
	}
	if r.info.Caps&fabric.CapAtomic == 0 {
		return
	}
	result := r.alloc(8)
	for _, kind := range []fabric.OpKind{fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic} {
		op := fabric.Op{Kind: kind, Seg: h.local.at(0, 8).seg(), RSeg: h.to.at(0, 8),
			Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64, Result: result.seg(), Compare: there.seg()}}
		if kind == fabric.OpCompareAtomic {
			op.Atomic.Op, op.Seg, op.Atomic.Compare = fabric.AtomicCSwap, there.seg(), h.local.at(0, 8).seg()
		}
		h.alone(op, 50)
	}
}

// alone is fails, of an op that nothing else fails with.
func (h *holed) alone(op fabric.Op, ctx uint64) {
	h.Helper()
	op.Ctx = ctx
	if why := h.fails(op); why != fabric.Errno(syscall.EFAULT) {
		h.Errorf("%v of %d bytes: %v, want EFAULT", op.Kind, op.Len(), why)
	}
	stillWorks(h.rig, h.a, h.b)
}

// regionHoles has ops end, well or not: a device may have the pages of a region that the process
// does not see any more.
func regionHoles(r *rig) {
	local := r.patterned(3<<20, 1)
	kinds := []fabric.OpKind{fabric.OpWrite, fabric.OpRead}
	if r.info.Caps&fabric.CapAtomic != 0 {
		kinds = append(kinds, fabric.OpAtomic)
	}
	for _, kind := range kinds {
		for _, n := range []int{8, 3000, 3 << 20} {
			op := fabric.Op{Kind: kind, Seg: local.at(0, n).seg(), Ctx: 7}
			if kind == fabric.OpAtomic {
				if n > 8 {
					continue
				}
				op.Atomic = &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64}
			}
			far := r.alloc(n)
			a, b := r.pair(shape{})
			op.RSeg = a.imports(b.reg(far, bothRights).Raw()).at(0, uint64(n))
			r.dig(far)
			a.submit(op)
			e := a.read()
			if e.Ctx != 7 {
				r.Errorf("%v: %+v", kind, e)
			}
		}
	}
	a, b := r.pair(shape{})
	stillWorks(r, a, b)
}
