// SPDX-License-Identifier: MIT

package atomics

import (
	"errors"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// RefusedCases are the cases of atomics that are refused.
var RefusedCases = []rig.Case{
	{Name: "QueryAtomic follows the table", Run: queryTable},
	{Name: "invalid atomics are refused", Run: badAtomics},
	{Name: "atomics without the right or outside the bounds change nothing", Run: deniedAtomics},
	{Name: "an atomic read needs only the read right", Run: func(r *rig.Rig) {
		w := NewArena(r, 8, fabric.AccessRemoteRead)
		read := w.Needs(AtomicWord{fabric.OpFetchAtomic, fabric.AtomicRead, fabric.Uint64})
		w.far.Fill(1)
		w.A.Do(read)
		r.Has(w.Fetched, 1, 0)
		read.Seg.Addr = 0 // nobody looks at it
		w.Fetched.Fill(2)
		w.A.Do(read)
		r.Has(w.Fetched, 1, 0)
	}},
	{Name: "an atomic write needs only the write right", Run: func(r *rig.Rig) {
		w := NewArena(r, 8, fabric.AccessRemoteWrite)
		write := w.Needs(AtomicWord{fabric.OpAtomic, fabric.AtomicWrite, fabric.Uint64})
		w.Local.Fill(1)
		w.A.Do(write)
		r.Has(w.far, 1, 0)
	}},
}

// queryTable asks about everything, and submits what is not granted.
func queryTable(r *rig.Rig) {
	w := NewArena(r, 64, rig.BothRights)
	q, ok := w.A.Dom.(fabric.AtomicQuerier)
	if !ok {
		r.Fatalf("%T has atomics but no AtomicQuerier", w.A.Dom)
	}
	for _, word := range atomicTable() {
		_, err := q.QueryAtomic(word.Kind, word.Op, word.T)
		if want := fabric.ErrInvalid; !fabric.AtomicValid(word.Kind, word.Op, word.T) {
			if !errors.Is(err, want) {
				r.Errorf("%v: %v, want %v", word, err, want)
			}
		} else if err != nil && !errors.Is(err, fabric.ErrNoSys) {
			r.Errorf("%v: %v, want success or %v", word, err, fabric.ErrNoSys)
		}
		if err != nil {
			op := w.op(word, 1)
			op.Seg.Len, op.RSeg.Len = 16, 16 // also where the type has no size
			if n, err := w.A.Try(op); n != 0 || !errors.Is(err, fabric.ErrInvalid) && !errors.Is(err, fabric.ErrNoSys) {
				r.Errorf("submit %v: %d, %v", word, n, err)
			}
		}
	}
	for _, kind := range []fabric.OpKind{0, fabric.OpSend, fabric.OpWrite, 99} {
		if _, err := q.QueryAtomic(kind, fabric.AtomicSum, fabric.Uint64); !errors.Is(err, fabric.ErrInvalid) {
			r.Errorf("atomics by %v: %v", kind, err)
		}
	}
	r.Zero(w.far)
	w.A.Silent()
}

func badAtomics(r *rig.Rig) {
	w := NewArena(r, 64, rig.BothRights)
	word := AtomicWord{fabric.OpCompareAtomic, fabric.AtomicCSwap, fabric.Uint64}
	w.Needs(word)
	for name, change := range map[string]func(*fabric.Op){
		"no atomic":                  func(op *fabric.Op) { op.Atomic = nil },
		"no elements":                func(op *fabric.Op) { op.Seg.Len, op.RSeg.Len, op.Atomic.Compare.Len, op.Atomic.Result.Len = 0, 0, 0, 0 },
		"half an element":            func(op *fabric.Op) { op.Seg.Len, op.RSeg.Len, op.Atomic.Compare.Len, op.Atomic.Result.Len = 4, 4, 4, 4 },
		"less at the target":         func(op *fabric.Op) { op.RSeg.Len = 8 },
		"more at the target":         func(op *fabric.Op) { op.RSeg.Len = 24 },
		"less to compare":            func(op *fabric.Op) { op.Atomic.Compare.Len = 8 },
		"no space for the result":    func(op *fabric.Op) { op.Atomic.Result.Len = 8 },
		"nothing to compare":         func(op *fabric.Op) { op.Atomic.Compare = fabric.Seg{} },
		"no result":                  func(op *fabric.Op) { op.Atomic.Result = fabric.Seg{} },
		"no operand":                 func(op *fabric.Op) { op.Seg.Addr = 0 },
		"a second local segment":     func(op *fabric.Op) { op.More = []fabric.Seg{{}} },
		"a second remote segment":    func(op *fabric.Op) { op.RMore = []fabric.RSeg{{Key: op.RSeg.Key}} },
		"an address between numbers": func(op *fabric.Op) { op.RSeg.Addr++ },
		"half a number further":      func(op *fabric.Op) { op.RSeg.Addr += 4 },
	} {
		op := w.op(word, 2)
		change(&op)
		if k, err := w.A.Try(op); k == 1 {
			if e := w.A.Read(); e.Err != fabric.ErrInvalid {
				r.Errorf("%s: %v, want %v", name, &e, fabric.ErrInvalid)
			}
			if r.DenialEnds() {
				w.connect(rig.BothRights)
			}
		} else if !errors.Is(err, fabric.ErrInvalid) {
			r.Errorf("%s: %v, want %v", name, err, fabric.ErrInvalid)
		}
	}
	for _, flags := range []fabric.OpFlags{fabric.OpRemoteData, 1 << 15} {
		op := w.op(word, 1)
		op.Flags = flags
		_, err := w.A.Try(op)
		r.Want("flags", err, fabric.ErrBadFlags)
	}
	r.Zero(w.far)
	w.A.Silent()
	rig.StillWorks(r, w.A, w.b)
}

func deniedAtomics(r *rig.Rig) {
	const size = 64
	w := NewArena(r, size, rig.BothRights)
	w.Local.Fill(3)
	words := []AtomicWord{{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64}, {fabric.OpFetchAtomic, fabric.AtomicSum, fabric.Uint64},
		{fabric.OpCompareAtomic, fabric.AtomicCSwapNE, fabric.Uint64}}
	for _, c := range []struct {
		name   string
		access fabric.Access
		kinds  int // from which on it is denied
		off, n uint64
		want   fabric.Errno
	}{
		{"only to be read", fabric.AccessRemoteRead, 0, 0, 8, fabric.ErrAccess},
		{"only to be written", fabric.AccessRemoteWrite, 1, 0, 8, fabric.ErrAccess},
		{"past the end", rig.BothRights, 0, size, 8, fabric.ErrRange},
		{"half past the end", rig.BothRights, 0, size - 8, 16, fabric.ErrRange},
		{"before the start", rig.BothRights, 0, 1<<64 - 8, 8, fabric.ErrRange},
	} {
		for _, word := range words[c.kinds:] {
			if MostAtomics(r, w.A, word) < int(c.n/8) {
				continue
			}
			op := w.op(word, int(c.n/8))
			op.RSeg = w.A.Imports(w.b.Reg(w.far, c.access).Raw()).At(c.off, c.n)
			w.A.Refused(op, r.Denial(c.want)...)
			r.Zero(w.far)
			r.Zero(w.Fetched)
			if r.DenialEnds() {
				w.connect(rig.BothRights)
			}
		}
	}
	rig.StillWorks(r, w.A, w.b)
}
