// SPDX-License-Identifier: MIT

package util

import (
	"errors"
	"math"
	"testing"

	"mori/core/fabric"
)

// TestCheckAtomic changes one thing about a good op of each kind.
func TestCheckAtomic(t *testing.T) {
	seg := func(n uint64) fabric.Seg { return fabric.Seg{Addr: 4096, Len: n} }
	const plain, fetch, compare = fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic
	for _, c := range []struct {
		name   string
		kind   fabric.OpKind
		change func(op *fabric.Op, a *fabric.Atomic, lim *fabric.Limits)
		want   error
	}{
		{"a good atomic", plain, nil, nil},
		{"a good fetching atomic", fetch, nil, nil},
		{"a good comparing atomic", compare, nil, nil},
		{"a plain one has no result", plain, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Result = fabric.Seg{} }, nil},
		{"a fetching one has nothing to compare", fetch, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Compare = fabric.Seg{} }, nil},
		{"a read has no operand", fetch, func(op *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Op, op.Seg.Addr = fabric.AtomicRead, 0 }, nil},
		{"a read has a length", fetch, func(op *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) {
			a.Op, op.Seg = fabric.AtomicRead, fabric.Seg{}
		}, fabric.ErrInvalid},
		{"the most bytes", compare, func(op *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) {
			op.Seg, op.RSeg.Len, a.Compare, a.Result = seg(64), 64, seg(64), seg(64)
		}, nil},
		{"more bytes", compare, func(op *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) {
			op.Seg, op.RSeg.Len, a.Compare, a.Result = seg(72), 72, seg(72), seg(72)
		}, fabric.ErrMsgSize},
		{"no provider for it", plain, func(_ *fabric.Op, _ *fabric.Atomic, lim *fabric.Limits) { lim.MaxAtomic = 0 }, fabric.ErrNoSys},
		{"no words", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Atomic = nil }, fabric.ErrInvalid},
		{"a type that is none", plain, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Type = 99 }, fabric.ErrInvalid},
		{"a comparing op that does not compare", plain, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Op = fabric.AtomicCSwap }, fabric.ErrInvalid},
		{"a sum that compares", compare, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Op = fabric.AtomicSum }, fabric.ErrInvalid},
		{"bits of floats", fetch, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) {
			a.Op, a.Type = fabric.AtomicBOr, fabric.Float64
		}, fabric.ErrInvalid},
		{"no element", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Seg.Len, op.RSeg.Len = 0, 0 }, fabric.ErrInvalid},
		{"half an element", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Seg.Len, op.RSeg.Len = 12, 12 }, fabric.ErrInvalid},
		{"a longer target", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.RSeg.Len = 24 }, fabric.ErrInvalid},
		{"a longer result", fetch, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Result = seg(24) }, fabric.ErrInvalid},
		{"a shorter compare", compare, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Compare = seg(8) }, fabric.ErrInvalid},
		{"a nil operand", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Seg.Addr = 0 }, fabric.ErrInvalid},
		{"a nil result", fetch, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Result.Addr = 0 }, fabric.ErrInvalid},
		{"a nil compare", compare, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Compare.Addr = 0 }, fabric.ErrInvalid},
		{"a result that wraps", fetch, func(_ *fabric.Op, a *fabric.Atomic, _ *fabric.Limits) { a.Result.Addr = math.MaxUint64 }, fabric.ErrInvalid},
		{"two segments", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.More = make([]fabric.Seg, 1) }, fabric.ErrInvalid},
		{"two targets", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.RMore = make([]fabric.RSeg, 1) }, fabric.ErrInvalid},
		{"inject", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Flags = fabric.OpInject | fabric.OpFence }, nil},
		{"inject too much", plain, func(op *fabric.Op, _ *fabric.Atomic, lim *fabric.Limits) {
			op.Flags, lim.MaxInject = fabric.OpInject, 15
		}, fabric.ErrMsgSize},
		{"inject what comes back", fetch, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Flags = fabric.OpInject }, fabric.ErrBadFlags},
		{"inject a comparison", compare, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Flags = fabric.OpInject }, fabric.ErrBadFlags},
		{"remote data", plain, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Flags = fabric.OpRemoteData }, fabric.ErrBadFlags},
		{"a level", fetch, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) { op.Flags = fabric.OpTransmitComplete }, nil},
		{"two levels", compare, func(op *fabric.Op, _ *fabric.Atomic, _ *fabric.Limits) {
			op.Flags = fabric.OpTransmitComplete | fabric.OpInjectComplete
		}, fabric.ErrBadFlags},
	} {
		lim := &fabric.Limits{MaxMsg: 8, MaxInject: 32, SegLimit: 3, RSegLimit: 2, MaxAtomic: 64}
		a := &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Int64, Compare: seg(16), Result: seg(16)}
		if c.kind == compare {
			a.Op = fabric.AtomicCSwap
		}
		op := &fabric.Op{Kind: c.kind, Seg: seg(16), RSeg: fabric.RSeg{Len: 16, Key: 5}, Atomic: a}
		if c.change != nil {
			c.change(op, a, lim)
		}
		if n, err := CheckOpLen(op, lim); !errors.Is(err, c.want) || err == nil && n != op.Seg.Len {
			t.Errorf("%s: %d bytes, %v, want %v", c.name, n, err, c.want)
		}
	}
}

func TestCheckOpDoesNotAllocate(t *testing.T) {
	lim := &fabric.Limits{MaxMsg: 1000, MaxInject: 64, SegLimit: 3, RSegLimit: 2, MaxAtomic: 64}
	s := fabric.Seg{Addr: 4096, Len: 8}
	ops := []fabric.Op{
		{Kind: fabric.OpSend, Seg: s},
		{Kind: fabric.OpWrite, Seg: s, RSeg: fabric.RSeg{Len: 8}},
		{Kind: fabric.OpFetchAtomic, Seg: s, RSeg: fabric.RSeg{Len: 8}, Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64, Result: s}},
	}
	if n := testing.AllocsPerRun(1000, func() {
		for i := range ops {
			if CheckOp(&ops[i], lim) != nil {
				t.Fatal("a good op is refused")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCheckOp(b *testing.B) {
	lim := &fabric.Limits{MaxMsg: 1000, MaxInject: 64, SegLimit: 3, RSegLimit: 2, MaxAtomic: 64}
	s := fabric.Seg{Addr: 4096, Len: 8}
	for _, op := range []fabric.Op{
		{Kind: fabric.OpSend, Seg: s},
		{Kind: fabric.OpWrite, Seg: s, RSeg: fabric.RSeg{Len: 8}},
		{Kind: fabric.OpFetchAtomic, Seg: s, RSeg: fabric.RSeg{Len: 8}, Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64, Result: s}},
	} {
		b.Run(op.Kind.String(), func(b *testing.B) {
			for b.Loop() {
				if err := CheckOp(&op, lim); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
