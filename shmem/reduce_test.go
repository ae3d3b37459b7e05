// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"math"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
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

func combineNumbers[T orderedNumber](op ReduceOp, x, y T) T {
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
	typedOf(Float16, func(v int64) uint16 { return toFloat16(float32(v%256) / 4) }, combineHalves(fromFloat16, toFloat16)),
	summedWide(typedOf(BFloat16, func(v int64) uint16 { return toBFloat16(float32(v % 256)) }, combineHalves(fromBFloat16, toBFloat16)), fromBFloat16, toBFloat16),
}

// value is what PE pe has as its i-th element: of all signs and sizes.
func value(pe, i int) int64 { return int64(mix(uint64(pe)<<32|uint64(i))) >> (i % 60) }

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
		some := w.TeamWorld().central || len(w.TeamWorld().groups) > 1 // how they meet has nothing to do with how they combine
		for _, typed := range typeds {
			for op := ReduceAnd; op < reduceOpEnd; op++ {
				if kernels[op][typed.typ] == nil || some && (int(op)+int(typed.typ))%3 > 0 {
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
					return fmt.Errorf("%v of %d elements of type %s: %w", op, n, typeText(typed.typ), err)
				}
			}
		}
		return nil
	})
}

// checkReduce reduces, once to another place and once in place.
func checkReduce(w *World, op ReduceOp, typed typed, dest, src field, sources [][]byte, n int) error {
	size, srcs, want := int(sizeOf(typed.typ)), make([]uint64, len(sources)), make([]byte, len(sources[0]))
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
	const n = 3*fetchBlock/8 + 1001
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

func TestFloat16Converts(t *testing.T) {
	for h := range 1 << 16 {
		f := fromFloat16(uint16(h))
		if back := toFloat16(f); back != uint16(h) && !(f != f && back&0x7c00 == 0x7c00 && back&0x3ff != 0) {
			t.Fatalf("%#x is %v, and %#x again", h, f, back)
		}
		if h < 0x7bff { // the next one is finite, too
			low, high := float64(f), float64(fromFloat16(uint16(h+1)))
			middle := float32((low + high) / 2)
			if got := toFloat16(middle); got != uint16(h+h&1) {
				t.Fatalf("%v, in the middle of %#x and the next one, is %#x", middle, h, got)
			}
			if got := toFloat16(math.Nextafter32(middle, 0)); got != uint16(h) {
				t.Fatalf("just below %v is %#x, want %#x", middle, got, h)
			}
			if got := toFloat16(math.Nextafter32(middle, 1e9)); got != uint16(h+1) {
				t.Fatalf("just above %v is %#x, want %#x", middle, got, h+1)
			}
		}
	}
	for f, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00, -1e30: 0xfc00, 1e-30: 0, 1: 0x3c00, -2: 0xc000} {
		if got := toFloat16(f); got != want {
			t.Errorf("%v is %#x, want %#x", f, got, want)
		}
	}
}

func TestBFloat16Converts(t *testing.T) {
	for h := range 1 << 16 {
		f := fromBFloat16(uint16(h))
		if back := toBFloat16(f); back != uint16(h) && !(f != f && back&0x7f80 == 0x7f80 && back&0x7f != 0) {
			t.Fatalf("%#x is %v, and %#x again", h, f, back)
		}
	}
	for bits, want := range map[uint32]uint16{0x3f808000: 0x3f80, 0x3f818000: 0x3f82, 0x3f808001: 0x3f81, 0x7f7fffff: 0x7f80, 0x7f800001: 0x7fc0} {
		if got := toBFloat16(math.Float32frombits(bits)); got != want {
			t.Errorf("%#x is %#x, want %#x", bits, got, want)
		}
	}
}

func TestNaNsSurvive(t *testing.T) {
	room := make([]byte, 3*16)
	d, a, b := memory.AddrOf(room), memory.AddrOf(room)+16, memory.AddrOf(room)+32
	copy(memory.Slice[float64](a, 2), []float64{math.NaN(), 1})
	copy(memory.Slice[float64](b, 2), []float64{1, math.NaN()})
	for _, op := range []ReduceOp{ReduceMin, ReduceMax, ReduceSum, ReduceProd} {
		kernels[op][fabric.Float64](d, 0, []uint64{a, b}, 2)
		if got := memory.Slice[float64](d, 2); !math.IsNaN(got[0]) || !math.IsNaN(got[1]) {
			t.Errorf("%v with NaN is %v", op, got)
		}
	}
}
