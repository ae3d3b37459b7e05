// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"

	"mori/core/fabric"
)

var atomicRefusedCases = []testCase{
	{"QueryAtomic follows the table", queryTable},
	{"invalid atomics are refused", badAtomics},
	{"atomics without the right or outside the bounds change nothing", deniedAtomics},
	{"an atomic read needs only the read right", func(r *rig) {
		w := r.arena(8, fabric.AccessRemoteRead)
		read := w.needs(atomicWord{fabric.OpFetchAtomic, fabric.AtomicRead, fabric.Uint64})
		w.far.fill(1)
		w.a.do(read)
		r.has(w.fetched, 1, 0)
		read.Seg.Addr = 0 // nobody looks at it
		w.fetched.fill(2)
		w.a.do(read)
		r.has(w.fetched, 1, 0)
	}},
	{"an atomic write needs only the write right", func(r *rig) {
		w := r.arena(8, fabric.AccessRemoteWrite)
		write := w.needs(atomicWord{fabric.OpAtomic, fabric.AtomicWrite, fabric.Uint64})
		w.local.fill(1)
		w.a.do(write)
		r.has(w.far, 1, 0)
	}},
}

// queryTable asks about everything, and submits what is not granted.
func queryTable(r *rig) {
	w := r.arena(64, bothRights)
	q, ok := w.a.dom.(fabric.AtomicQuerier)
	if !ok {
		r.Fatalf("%T has atomics but no AtomicQuerier", w.a.dom)
	}
	for _, word := range atomicTable() {
		_, err := q.QueryAtomic(word.kind, word.op, word.t)
		if want := fabric.ErrInvalid; !fabric.AtomicValid(word.kind, word.op, word.t) {
			if !errors.Is(err, want) {
				r.Errorf("%v: %v, want %v", word, err, want)
			}
		} else if err != nil && !errors.Is(err, fabric.ErrNoSys) {
			r.Errorf("%v: %v, want success or %v", word, err, fabric.ErrNoSys)
		}
		if err != nil {
			op := w.op(word, 1)
			op.Seg.Len, op.RSeg.Len = 16, 16 // also where the type has no size
			if n, err := w.a.try(op); n != 0 || !errors.Is(err, fabric.ErrInvalid) && !errors.Is(err, fabric.ErrNoSys) {
				r.Errorf("submit %v: %d, %v", word, n, err)
			}
		}
	}
	for _, kind := range []fabric.OpKind{0, fabric.OpSend, fabric.OpWrite, 99} {
		if _, err := q.QueryAtomic(kind, fabric.AtomicSum, fabric.Uint64); !errors.Is(err, fabric.ErrInvalid) {
			r.Errorf("atomics by %v: %v", kind, err)
		}
	}
	r.zero(w.far)
	w.a.silent()
}

func badAtomics(r *rig) {
	w := r.arena(64, bothRights)
	word := atomicWord{fabric.OpCompareAtomic, fabric.AtomicCSwap, fabric.Uint64}
	w.needs(word)
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
		if k, err := w.a.try(op); k == 1 {
			if e := w.a.read(); e.Err != fabric.ErrInvalid {
				r.Errorf("%s: %v, want %v", name, &e, fabric.ErrInvalid)
			}
			if r.fatal() {
				w.connect(bothRights)
			}
		} else if !errors.Is(err, fabric.ErrInvalid) {
			r.Errorf("%s: %v, want %v", name, err, fabric.ErrInvalid)
		}
	}
	for _, flags := range []fabric.OpFlags{fabric.OpRemoteData, 1 << 15} {
		op := w.op(word, 1)
		op.Flags = flags
		_, err := w.a.try(op)
		r.want("flags", err, fabric.ErrBadFlags)
	}
	r.zero(w.far)
	w.a.silent()
	stillWorks(r, w.a, w.b)
}

func deniedAtomics(r *rig) {
	const size = 64
	w := r.arena(size, bothRights)
	w.local.fill(3)
	words := []atomicWord{{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64}, {fabric.OpFetchAtomic, fabric.AtomicSum, fabric.Uint64},
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
		{"past the end", bothRights, 0, size, 8, fabric.ErrRange},
		{"half past the end", bothRights, 0, size - 8, 16, fabric.ErrRange},
		{"before the start", bothRights, 0, 1<<64 - 8, 8, fabric.ErrRange},
	} {
		for _, word := range words[c.kinds:] {
			if r.grants(w.a, word) < int(c.n/8) {
				continue
			}
			op := w.op(word, int(c.n/8))
			op.RSeg = w.a.imports(w.b.reg(w.far, c.access).Raw()).at(c.off, c.n)
			w.a.refused(op, r.denial(c.want)...)
			r.zero(w.far)
			r.zero(w.fetched)
			if r.fatal() {
				w.connect(bothRights)
			}
		}
	}
	stillWorks(r, w.a, w.b)
}
