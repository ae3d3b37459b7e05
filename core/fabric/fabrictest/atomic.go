// SPDX-License-Identifier: MIT

package fabrictest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"mori/core/fabric"
)

var atomicKinds = []fabric.OpKind{fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic}

// Values beyond the last op and type.
const (
	atomicOpsEnd = fabric.AtomicMSwap + 1
	dataTypesEnd = fabric.Complex128 + 1
)

var atomicCases = []testCase{
	{"every op on every type has the right result", everyAtomic},
	{"as many elements as one op may have", mostElements},
}

// put copies b to offset off.
func (m memory) put(off int, b []byte) { copy(m.b[off:], b) }

// An arena is a pair and what an atomic op needs: far memory, and local ones for the operand, the
// comparison and the result.
type arena struct {
	*rig
	a, b                          *node
	far, local, compared, fetched memory
	to                            target
}

// arena skips the case if there are no atomics.
func (r *rig) arena(size int, access fabric.Access) *arena {
	r.Helper()
	if r.info.Caps&fabric.CapAtomic == 0 {
		r.Skip("the provider has no atomics")
	}
	w := &arena{rig: r, far: r.alloc(size), local: r.alloc(size), compared: r.alloc(size), fetched: r.alloc(size)}
	w.connect(access)
	return w
}

func (w *arena) connect(access fabric.Access) {
	w.Helper()
	w.a, w.b = w.pair(shape{})
	w.to = w.a.imports(w.b.reg(w.far, access).Raw())
}

// op is an atomic op on the first n elements.
func (w *arena) op(word atomicWord, n int) fabric.Op {
	bytes := n * word.t.Size()
	out := fabric.Op{Kind: word.kind, Seg: w.local.at(0, bytes).seg(), RSeg: w.to.at(0, uint64(bytes)), Atomic: &fabric.Atomic{Op: word.op, Type: word.t}}
	if word.kind != fabric.OpAtomic {
		out.Atomic.Result = w.fetched.at(0, bytes).seg()
	}
	if word.kind == fabric.OpCompareAtomic {
		out.Atomic.Compare = w.compared.at(0, bytes).seg()
	}
	return out
}

// grants is how many elements one such op may have, 0 if the provider does not have it.
func (r *rig) grants(n *node, word atomicWord) int {
	r.Helper()
	q, ok := n.dom.(fabric.AtomicQuerier)
	if !ok {
		r.Fatalf("%T has atomics but no AtomicQuerier", n.dom)
	}
	count, err := q.QueryAtomic(word.kind, word.op, word.t)
	if err != nil {
		if !errors.Is(err, fabric.ErrNoSys) && !errors.Is(err, fabric.ErrInvalid) {
			r.Errorf("%v: %v", word, err)
		}
		return 0
	}
	if bytes := count * word.t.Size(); bytes < 1 || uint64(bytes) > r.info.Limits.MaxAtomic {
		r.Fatalf("%v: %d elements, and %d bytes", word, count, r.info.Limits.MaxAtomic)
	}
	return count
}

// needs is an op on one element. It skips the case if the provider does not have it.
func (w *arena) needs(word atomicWord) fabric.Op {
	w.Helper()
	if w.grants(w.a, word) == 0 {
		w.Skipf("the provider has no %v", word)
	}
	return w.op(word, 1)
}

// someAtomics are ops of the kinds that a's provider has, on the first element of a region.
func someAtomics(r *rig, a *node, m memory, to target) (ops []fabric.Op) {
	if r.info.Caps&fabric.CapAtomic == 0 {
		return nil
	}
	w := &arena{rig: r, a: a, local: m, compared: m, fetched: r.alloc(8), to: to}
	for i, kind := range atomicKinds {
		op := []fabric.AtomicOp{fabric.AtomicSum, fabric.AtomicSum, fabric.AtomicCSwap}[i]
		if word := (atomicWord{kind, op, fabric.Uint64}); r.grants(a, word) > 0 {
			ops = append(ops, w.op(word, 1))
		}
	}
	return ops
}

// element is a random one: any integer, or a small number.
func element(rng *rand.Rand, t fabric.DataType) []byte {
	if t.Integer() && rng.IntN(4) > 0 {
		return binary.LittleEndian.AppendUint64(nil, rng.Uint64())[:t.Size()]
	}
	return number(t, complex(float64(rng.IntN(4)), float64(rng.IntN(3))))
}

func everyAtomic(r *rig) {
	w := r.arena(4096, bothRights)
	rng := rand.New(rand.NewPCG(1, 2))
	tried := 0
	for _, word := range atomicTable() {
		count := r.grants(w.a, word)
		if count == 0 {
			continue
		}
		tried++
		for _, n := range []int{1, 2, 5} {
			w.compareToReference(rng, word, min(n, count))
		}
	}
	if tried == 0 {
		r.Error("the provider has atomics but supports none of them")
	}
}

// An atomicWord names an atomic op.
type atomicWord struct {
	kind fabric.OpKind
	op   fabric.AtomicOp
	t    fabric.DataType
}

func (w atomicWord) String() string { return fmt.Sprintf("%v, %v of %v", w.kind, w.op, w.t) }

// atomicTable is every kind, op and type, and some that are none.
func atomicTable() (table []atomicWord) {
	for _, kind := range atomicKinds {
		for op := range atomicOpsEnd + 1 {
			for t := range dataTypesEnd + 1 {
				table = append(table, atomicWord{kind, op, t})
			}
		}
	}
	return table
}

// compareToReference does one op with n elements and a guard behind them.
func (w *arena) compareToReference(rng *rand.Rand, word atomicWord, n int) {
	w.Helper()
	t, size := word.t, word.t.Size()
	guard := element(rng, fabric.Uint64)
	var want, before []byte
	for i := range n {
		x, v, c := element(rng, t), element(rng, t), element(rng, t)
		if i%2 == 0 {
			c = x
		}
		w.far.put(i*size, x)
		w.local.put(i*size, v)
		w.compared.put(i*size, c)
		before = append(before, x...)
		want = append(want, reference(word.op, t, x, v, c)...)
	}
	w.far.put(n*size, guard)
	w.fetched.put(n*size, guard)
	w.a.do(w.op(word, n))
	for i := range n {
		at := func(b []byte) []byte { return b[i*size : (i+1)*size] }
		if !same(t, at(w.far.b), at(want)) {
			w.Fatalf("%v, element %d of %d: %x with %x compared to %x is %x, want %x", word, i, n,
				at(before), at(w.local.b), at(w.compared.b), at(w.far.b), at(want))
		}
		if word.kind != fabric.OpAtomic && !same(t, at(w.fetched.b), at(before)) {
			w.Fatalf("%v, element %d of %d: fetched %x, want %x", word, i, n, at(w.fetched.b), at(before))
		}
	}
	for _, m := range []memory{w.far, w.fetched} {
		if string(m.at(n*size, 8).b) != string(guard) {
			w.Fatalf("%v of %d elements wrote past its end", word, n)
		}
	}
}

// mostElements has ops at the bound, and one element beyond it.
func mostElements(r *rig) {
	w := r.arena(1<<16, bothRights)
	for _, word := range []atomicWord{
		{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64}, {fabric.OpFetchAtomic, fabric.AtomicSum, fabric.Uint8},
		{fabric.OpCompareAtomic, fabric.AtomicCSwap, fabric.Complex128}, {fabric.OpFetchAtomic, fabric.AtomicRead, fabric.Float32},
	} {
		count := r.grants(w.a, word)
		if count == 0 {
			continue
		}
		if count*word.t.Size()+16 > len(w.far.b) {
			r.Fatalf("%d elements of %v are more than this case has memory for", count, word.t)
		}
		w.compareToReference(rand.New(rand.NewPCG(3, 4)), word, count)
		w.a.refused(w.op(word, count+1), fabric.ErrMsgSize, fabric.ErrInvalid)
	}
	w.a.silent()
}
