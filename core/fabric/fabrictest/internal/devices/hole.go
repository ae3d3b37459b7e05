// SPDX-License-Identifier: MIT

package devices

import (
	"syscall"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// TestHoles is fabrictest.TestHoles.
func TestHoles(t *testing.T, open rig.Open) {
	for _, e := range rig.EPTypes {
		t.Run(e.Name, func(t *testing.T) {
			if _, err := rig.Best(t.Context(), open(t), e.Type); err != nil {
				t.Skip(err)
			}
			for _, c := range holeCases {
				t.Run(c.Name, func(t *testing.T) { c.Run(rig.New(t, open, e.Type)) })
			}
		})
	}
}

// holeCases are the cases of memory that cannot be touched.
var holeCases = []rig.Case{
	{Name: "short ops from memory that is not there", Run: shortHoles},
	{Name: "long ops from memory that is not there", Run: func(r *rig.Rig) {
		const n = 3 << 20
		for _, kind := range []fabric.OpKind{fabric.OpSend, fabric.OpWrite} {
			h := newHoles(r, n)
			h.fails(fabric.Op{Kind: kind, Seg: h.local.Seg(), RSeg: h.to.At(0, n), Ctx: 1})
			a, b := r.Pair(rig.Shape{})
			rig.StillWorks(r, a, b)
		}
	}},
	{Name: "reads into memory that is not there", Run: func(r *rig.Rig) {
		for _, n := range []int{8, 3000, 3 << 20} {
			h := newHoles(r, n)
			h.fails(fabric.Op{Kind: fabric.OpRead, Seg: h.local.Seg(), RSeg: h.to.At(0, uint64(n)), Ctx: 1})
			a, b := r.Pair(rig.Shape{})
			rig.StillWorks(r, a, b)
		}
	}},
	{Name: "ops on a region that is not there", Run: regionHoles},
	{Name: "a message that came before a receive that is not there", Run: func(r *rig.Rig) {
		h := newHoles(r, 100)
		h.a.Do(fabric.Op{Kind: fabric.OpSend, Seg: h.far.Seg(), Ctx: 1})
		h.b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: h.local.Seg(), Ctx: 2})
		if e := h.b.Read(); e.Err == 0 || e.Ctx != 2 {
			r.Errorf("the receive ended with %+v", e)
		}
	}},
}

// A holed is a pair, memory that cannot be touched, and a region of b of the same length.
type holed struct {
	*rig.Rig
	a, b  *rig.Node
	local rig.Buffer
	far   rig.Buffer
	to    rig.Target
}

func newHoles(r *rig.Rig, n int) *holed {
	r.Helper()
	h := &holed{Rig: r, local: r.Alloc(n), far: r.Alloc(n)}
	h.a, h.b = r.Pair(rig.Shape{})
	h.to = h.a.Imports(h.b.Reg(h.far, rig.BothRights).Raw())
	dig(r, h.local)
	return h
}

// dig makes m a hole until the case ends.
func dig(r *rig.Rig, m rig.Buffer) {
	r.Helper()
	all := m.B[:cap(m.B)]
	r.Must(syscall.Mprotect(all, syscall.PROT_NONE))
	r.Cleanup(func() { r.Must(syscall.Mprotect(all, syscall.PROT_READ|syscall.PROT_WRITE)) })
}

// fails submits op, which fails, and returns why. A message has its receive.
func (h *holed) fails(op fabric.Op) fabric.Errno {
	h.Helper()
	if op.Kind == fabric.OpSend {
		op.RSeg = fabric.RSeg{}
		h.b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: h.far.Seg(), Ctx: 99})
	}
	h.a.Submit(op)
	e := h.a.Read()
	if e.Err == 0 || e.Ctx != op.Ctx {
		h.Fatalf("%v of %d bytes that are not there: %+v", op.Kind, op.Len(), e)
	}
	return e.Err
}

func shortHoles(r *rig.Rig) {
	h := newHoles(r, 4096)
	there := r.Patterned(8, 1)
	var ops []fabric.Op
	for _, n := range []int{8, 300, 4000} {
		for _, kind := range []fabric.OpKind{fabric.OpSend, fabric.OpWrite} {
			op := fabric.Op{Kind: kind, Seg: h.local.At(0, n).Seg(), RSeg: h.to.At(0, uint64(n))}
			ops = append(ops, op)
			if uint64(n) <= r.Info.Limits.MaxInject {
				op.Flags |= fabric.OpInject
				ops = append(ops, op)
			}
			if r.Info.Limits.SegLimit > 1 {
				op = fabric.Op{Kind: kind, Seg: there.Seg(), More: []fabric.Seg{op.Seg}, RSeg: h.to.At(0, uint64(n+8)&4095)}
				ops = append(ops, op)
			}
		}
	}
	for i := range ops {
		h.alone(ops[i], uint64(i))
	}
	if r.Info.Caps&fabric.CapAtomic == 0 {
		return
	}
	result := r.Alloc(8)
	for _, kind := range []fabric.OpKind{fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic} {
		op := fabric.Op{Kind: kind, Seg: h.local.At(0, 8).Seg(), RSeg: h.to.At(0, 8),
			Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64, Result: result.Seg(), Compare: there.Seg()}}
		if kind == fabric.OpCompareAtomic {
			op.Atomic.Op, op.Seg, op.Atomic.Compare = fabric.AtomicCSwap, there.Seg(), h.local.At(0, 8).Seg()
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
	rig.StillWorks(h.Rig, h.a, h.b)
}

// regionHoles has ops end, well or not: a device may have the pages of a region that the process
// does not see any more.
func regionHoles(r *rig.Rig) {
	local := r.Patterned(3<<20, 1)
	kinds := []fabric.OpKind{fabric.OpWrite, fabric.OpRead}
	if r.Info.Caps&fabric.CapAtomic != 0 {
		kinds = append(kinds, fabric.OpAtomic)
	}
	for _, kind := range kinds {
		for _, n := range []int{8, 3000, 3 << 20} {
			op := fabric.Op{Kind: kind, Seg: local.At(0, n).Seg(), Ctx: 7}
			if kind == fabric.OpAtomic {
				if n > 8 {
					continue
				}
				op.Atomic = &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64}
			}
			far := r.Alloc(n)
			a, b := r.Pair(rig.Shape{})
			op.RSeg = a.Imports(b.Reg(far, rig.BothRights).Raw()).At(0, uint64(n))
			dig(r, far)
			a.Submit(op)
			e := a.Read()
			if e.Ctx != 7 {
				r.Errorf("%v: %+v", kind, e)
			}
		}
	}
	a, b := r.Pair(rig.Shape{})
	rig.StillWorks(r, a, b)
}
