// SPDX-License-Identifier: MIT

package atomics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

var atomicKinds = []fabric.OpKind{fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic}

// Values beyond the last op and type.
const (
	atomicOpsEnd = fabric.AtomicMSwap + 1
	dataTypesEnd = fabric.Complex128 + 1
)

// Cases are the cases of atomics that succeed.
var Cases = []rig.Case{
	{Name: "every op on every type has the right result", Run: everyAtomic},
	{Name: "as many elements as one op may have", Run: mostElements},
}

// put copies b to offset off.
func put(m rig.Buffer, off int, b []byte) { copy(m.B[off:], b) }

// An Arena is a pair and what an atomic op needs: far memory, and local ones for the operand, the
// comparison and the result.
type Arena struct {
	*rig.Rig
	A, b                          *rig.Node
	far, Local, compared, Fetched rig.Buffer
	To                            rig.Target
}

// NewArena makes a pair with size bytes of memory. It skips the case if there are no atomics.
func NewArena(r *rig.Rig, size int, access fabric.Access) *Arena {
	r.Helper()
	if r.Info.Caps&fabric.CapAtomic == 0 {
		r.Skip("the provider has no atomics")
	}
	w := &Arena{Rig: r, far: r.Alloc(size), Local: r.Alloc(size), compared: r.Alloc(size), Fetched: r.Alloc(size)}
	w.connect(access)
	return w
}

func (w *Arena) connect(access fabric.Access) {
	w.Helper()
	w.A, w.b = w.Pair(rig.Shape{})
	w.To = w.A.Imports(w.b.Reg(w.far, access).Raw())
}

// op is an atomic op on the first n elements.
func (w *Arena) op(word AtomicWord, n int) fabric.Op {
	bytes := n * word.T.Size()
	out := fabric.Op{Kind: word.Kind, Seg: w.Local.At(0, bytes).Seg(), RSeg: w.To.At(0, uint64(bytes)), Atomic: &fabric.Atomic{Op: word.Op, Type: word.T}}
	if word.Kind != fabric.OpAtomic {
		out.Atomic.Result = w.Fetched.At(0, bytes).Seg()
	}
	if word.Kind == fabric.OpCompareAtomic {
		out.Atomic.Compare = w.compared.At(0, bytes).Seg()
	}
	return out
}

// MostAtomics is how many elements one such op may have, 0 if the provider does not have it.
func MostAtomics(r *rig.Rig, n *rig.Node, word AtomicWord) int {
	r.Helper()
	q, ok := n.Dom.(fabric.AtomicQuerier)
	if !ok {
		r.Fatalf("%T has atomics but no AtomicQuerier", n.Dom)
	}
	count, err := q.QueryAtomic(word.Kind, word.Op, word.T)
	if err != nil {
		if !errors.Is(err, fabric.ErrNoSys) && !errors.Is(err, fabric.ErrInvalid) {
			r.Errorf("%v: %v", word, err)
		}
		return 0
	}
	if bytes := count * word.T.Size(); bytes < 1 || uint64(bytes) > r.Info.Limits.MaxAtomic {
		r.Fatalf("%v: %d elements, and %d bytes", word, count, r.Info.Limits.MaxAtomic)
	}
	return count
}

// Needs is an op on one element. It skips the case if the provider does not have it.
func (w *Arena) Needs(word AtomicWord) fabric.Op {
	w.Helper()
	if MostAtomics(w.Rig, w.A, word) == 0 {
		w.Skipf("the provider has no %v", word)
	}
	return w.op(word, 1)
}

// SomeAtomics are ops of the kinds that a's provider has, on the first element of a region.
func SomeAtomics(r *rig.Rig, a *rig.Node, m rig.Buffer, to rig.Target) (ops []fabric.Op) {
	if r.Info.Caps&fabric.CapAtomic == 0 {
		return nil
	}
	w := &Arena{Rig: r, A: a, Local: m, compared: m, Fetched: r.Alloc(8), To: to}
	for i, kind := range atomicKinds {
		op := []fabric.AtomicOp{fabric.AtomicSum, fabric.AtomicSum, fabric.AtomicCSwap}[i]
		if word := (AtomicWord{kind, op, fabric.Uint64}); MostAtomics(r, a, word) > 0 {
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

func everyAtomic(r *rig.Rig) {
	w := NewArena(r, 4096, rig.BothRights)
	rng := rand.New(rand.NewPCG(1, 2))
	tried := 0
	for _, word := range atomicTable() {
		count := MostAtomics(r, w.A, word)
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

// An AtomicWord names an atomic op.
type AtomicWord struct {
	Kind fabric.OpKind
	Op   fabric.AtomicOp
	T    fabric.DataType
}

func (w AtomicWord) String() string { return fmt.Sprintf("%v, %v of %v", w.Kind, w.Op, w.T) }

// atomicTable is every kind, op and type, and some that are none.
func atomicTable() (table []AtomicWord) {
	for _, kind := range atomicKinds {
		for op := range atomicOpsEnd + 1 {
			for t := range dataTypesEnd + 1 {
				table = append(table, AtomicWord{kind, op, t})
			}
		}
	}
	return table
}

// compareToReference does one op with n elements and a guard behind them.
func (w *Arena) compareToReference(rng *rand.Rand, word AtomicWord, n int) {
	w.Helper()
	t, size := word.T, word.T.Size()
	guard := element(rng, fabric.Uint64)
	var want, before []byte
	for i := range n {
		x, v, c := element(rng, t), element(rng, t), element(rng, t)
		if i%2 == 0 {
			c = x
		}
		put(w.far, i*size, x)
		put(w.Local, i*size, v)
		put(w.compared, i*size, c)
		before = append(before, x...)
		want = append(want, reference(word.Op, t, x, v, c)...)
	}
	put(w.far, n*size, guard)
	put(w.Fetched, n*size, guard)
	w.A.Do(w.op(word, n))
	for i := range n {
		at := func(b []byte) []byte { return b[i*size : (i+1)*size] }
		if !same(t, at(w.far.B), at(want)) {
			w.Fatalf("%v, element %d of %d: %x with %x compared to %x is %x, want %x", word, i, n,
				at(before), at(w.Local.B), at(w.compared.B), at(w.far.B), at(want))
		}
		if word.Kind != fabric.OpAtomic && !same(t, at(w.Fetched.B), at(before)) {
			w.Fatalf("%v, element %d of %d: fetched %x, want %x", word, i, n, at(w.Fetched.B), at(before))
		}
	}
	for _, m := range []rig.Buffer{w.far, w.Fetched} {
		if string(m.At(n*size, 8).B) != string(guard) {
			w.Fatalf("%v of %d elements wrote past its end", word, n)
		}
	}
}

// mostElements has ops at the bound, and one element beyond it.
func mostElements(r *rig.Rig) {
	w := NewArena(r, 1<<16, rig.BothRights)
	for _, word := range []AtomicWord{
		{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64}, {fabric.OpFetchAtomic, fabric.AtomicSum, fabric.Uint8},
		{fabric.OpCompareAtomic, fabric.AtomicCSwap, fabric.Complex128}, {fabric.OpFetchAtomic, fabric.AtomicRead, fabric.Float32},
	} {
		count := MostAtomics(r, w.A, word)
		if count == 0 {
			continue
		}
		if count*word.T.Size()+16 > len(w.far.B) {
			r.Fatalf("%d elements of %v are more than this case has memory for", count, word.T)
		}
		w.compareToReference(rand.New(rand.NewPCG(3, 4)), word, count)
		w.A.Refused(w.op(word, count+1), fabric.ErrMsgSize, fabric.ErrInvalid)
	}
	w.A.Silent()
}
