// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/reduceop"
)

// A typed is a type, with how its elements are made and reduced in the slow and obvious way.
type typed struct {
	typ    fabric.DataType
	fill   func(at uint64, i int, v int64)                     // the i-th element
	reduce func(op ReduceOp, dst uint64, srcs []uint64, i int) // the i-th elements
}

// typedOf is a type with a function that combines two elements.
func typedOf[T any](typ fabric.DataType, from func(int64) T, combine func(op ReduceOp, x, y T) T) typed {
	element := func(at uint64, i int) *T { return &memory.Slice[T](at, i+1)[i] }
	return typed{
		typ:  typ,
		fill: func(at uint64, i int, v int64) { *element(at, i) = from(v) },
		reduce: func(op ReduceOp, dst uint64, srcs []uint64, i int) {
			v := *element(srcs[0], i)
			for _, src := range srcs[1:] {
				v = combine(op, v, *element(src, i))
			}
			*element(dst, i) = v
		},
	}
}

// summedWide is a type of halves, of which sums are rounded only at the end.
func summedWide(t typed, from func(uint16) float32, to func(float32) uint16) typed {
	step := t.reduce
	t.reduce = func(op ReduceOp, dst uint64, srcs []uint64, i int) {
		if op != ReduceSum {
			step(op, dst, srcs, i)
			return
		}
		sum := float32(0)
		for _, src := range srcs {
			sum += from(memory.Slice[uint16](src, i+1)[i])
		}
		memory.Slice[uint16](dst, i+1)[i] = to(sum)
	}
	return t
}

func combineNumbers[T reduceop.Ordered](op ReduceOp, x, y T) T {
	switch op {
	case ReduceMin:
		return min(x, y)
	case ReduceMax:
		return max(x, y)
	case ReduceSum:
		return x + y
	}
	return x * y
}

func combineIntegers[T int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64](op ReduceOp, x, y T) T {
	switch op {
	case ReduceAnd:
		return x & y
	case ReduceOr:
		return x | y
	case ReduceXor:
		return x ^ y
	}
	return combineNumbers(op, x, y)
}

func typedInteger[T int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64](typ fabric.DataType) typed {
	return typedOf(typ, func(v int64) T { return T(v) }, combineIntegers[T])
}

func combineComplex[T complex64 | complex128](op ReduceOp, x, y T) T {
	if op == ReduceSum {
		return x + y
	}
	return x * y
}

func combineHalves(from func(uint16) float32, to func(float32) uint16) func(op ReduceOp, x, y uint16) uint16 {
	return func(op ReduceOp, x, y uint16) uint16 { return to(combineNumbers(op, from(x), from(y))) }
}

var typeds = []typed{typedInteger[int8](fabric.Int8), typedInteger[uint8](fabric.Uint8), typedInteger[int16](fabric.Int16), typedInteger[uint16](fabric.Uint16),
	typedInteger[int32](fabric.Int32), typedInteger[uint32](fabric.Uint32), typedInteger[int64](fabric.Int64), typedInteger[uint64](fabric.Uint64),
	typedOf(fabric.Float32, func(v int64) float32 { return float32(v%1000) / 8 }, combineNumbers[float32]),
	typedOf(fabric.Float64, func(v int64) float64 { return float64(v) / 7 }, combineNumbers[float64]),
	typedOf(fabric.Complex64, func(v int64) complex64 { return complex(float32(v%100), 2) }, combineComplex[complex64]),
	typedOf(fabric.Complex128, func(v int64) complex128 { return complex(float64(v%100), 2) }, combineComplex[complex128]),
	typedOf(Float16, func(v int64) uint16 { return reduceop.ToFloat16(float32(v%256) / 4) }, combineHalves(reduceop.FromFloat16, reduceop.ToFloat16)),
	summedWide(typedOf(BFloat16, func(v int64) uint16 { return reduceop.ToBFloat16(float32(v % 256)) }, combineHalves(reduceop.FromBFloat16, reduceop.ToBFloat16)), reduceop.FromBFloat16, reduceop.ToBFloat16),
}

// value is what PE pe has as its i-th element: of all signs and sizes.
func value(pe, i int) int64 {
	h := (uint64(pe)<<32 | uint64(i)) + 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return int64(h^h>>31) >> (i % 60)
}

func TestReductionsAreThoseOfALoop(t *testing.T) {
	counts := []int{1, 7, 100, 1100} // by reduceSmall, and by reduceParts
	everyWay(t, []int{2, 5}, func(t *testing.T, w *World) error {
		dest, err := newField(w, 1104*16)
		if err != nil {
			return err
		}
		src, err := newField(w, 1104*16)
		if err != nil {
			return err
		}
		sources := make([][]byte, w.NPEs())
		for pe := range sources {
			sources[pe] = make([]byte, len(src.bytes))
		}
		// How PEs wait for each other has nothing to do with how they combine.
		some := !strings.Contains(t.Name(), "/dissemination") && !strings.Contains(t.Name(), "/GPUs")
		for _, typed := range typeds {
			for op := ReduceAnd; op < reduceop.End; op++ {
				if notReduced(op, typed.typ) || some && (int(op)+int(typed.typ))%3 > 0 {
					continue
				}
				n := counts[(int(op)+int(typed.typ))%len(counts)]
				for pe, b := range sources {
					for i := range n {
						typed.fill(memory.AddrOf(b), i, value(pe, i))
					}
				}
				copy(src.bytes, sources[w.MyPE()])
				if err := src.push(); err != nil {
					return err
				}
				if err := checkReduce(w, op, typed, dest, src, sources, n); err != nil {
					return fmt.Errorf("%v of %d elements of type %s: %w", op, n, reduceop.TypeName(typed.typ), err)
				}
			}
		}
		return nil
	})
}

// notReduced reports whether the op does not apply to the type.
func notReduced(op ReduceOp, typ fabric.DataType) bool {
	_, _, applies := reduceop.Of(op, typ)
	return !applies
}

// checkReduce reduces, once to another place and once in place.
func checkReduce(w *World, op ReduceOp, typed typed, dest, src field, sources [][]byte, n int) error {
	size, srcs, want := int(reduceop.SizeOf(typed.typ)), make([]uint64, len(sources)), make([]byte, len(sources[0]))
	for pe := range srcs {
		srcs[pe] = memory.AddrOf(sources[pe])
	}
	for i := range n {
		typed.reduce(op, memory.AddrOf(want), srcs, i)
	}
	if err := dest.clear(); err != nil {
		return err
	}
	if err := w.TeamWorld().Reduce(op, typed.typ, dest.at, src.at, uint64(n)); err != nil {
		return err
	}
	if err := dest.check(n*size, func(i int) byte { return want[i] }); err != nil {
		return err
	}
	if err := w.SyncAll(); err != nil {
		return err
	}
	_ = dest.clear()
	copy(dest.bytes, sources[w.MyPE()][:n*size])
	if err := dest.push(); err != nil {
		return err
	}
	if err := w.TeamWorld().Reduce(op, typed.typ, dest.at, dest.at, uint64(n)); err != nil {
		return fmt.Errorf("in place: %w", err)
	}
	if err := dest.check(n*size, func(i int) byte { return want[i] }); err != nil {
		return fmt.Errorf("in place: %w", err)
	}
	return w.SyncAll()
}

// More than is fetched at a time, and not the same for all members.
func TestLargeReduction(t *testing.T) {
	const n = 3*(256<<10)/8 + 1001
	everyWay(t, []int{2, 3}, func(t *testing.T, w *World) error {
		dest, err := w.Malloc(n * 8)
		if err != nil {
			return err
		}
		raw := make([]byte, n*8)
		values := memory.Slice[int64](memory.AddrOf(raw), n)
		for i := range values {
			values[i] = value(w.MyPE(), i)
		}
		poke(t, w, dest, raw)
		if err := w.TeamWorld().Reduce(ReduceSum, fabric.Int64, dest, dest, n); err != nil {
			return err
		}
		copy(raw, peek(t, w, dest, n*8))
		for i, got := range values {
			want := int64(0)
			for pe := range w.NPEs() {
				want += value(pe, i)
			}
			if got != want {
				return fmt.Errorf("element %d of %d is %d, want %d", i, n, got, want)
			}
		}
		return nil
	})
}
