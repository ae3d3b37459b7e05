// SPDX-License-Identifier: MIT

package hostmath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// fill makes the n numbers of b of all kinds: mostly ordinary ones, some of any bits.
func fill(rng *rand.Rand, b []byte, typ DType, n int) {
	for i := range n {
		put(b, typ, i, float32(rng.NormFloat64()*math.Exp2(float64(rng.IntN(12)-6))), true)
		if rng.IntN(40) == 0 {
			for j := range int(typ.Size()) {
				b[i*int(typ.Size())+j] = byte(rng.Uint32())
			}
		}
	}
}

// A sumCase is a sum of n rows of h from tables of most addresses a row.
type sumCase struct {
	n, h, most       int
	dstType, srcType DType
	weighted         bool
	blocks           int // more than 0: of quantised rows
}

// check makes buffers of random numbers, a third of them absent, and holds the kernel's sum against
// the model's.
func (c sumCase) check(t *testing.T, rng *rand.Rand) {
	t.Helper()
	size := int(c.srcType.Size())
	srcs, scales := make([][]byte, c.n*c.most), make([][]byte, c.n*c.most)
	rows, scaleRows := make([]uint64, len(srcs)), make([]uint64, len(srcs))
	var weights []float32
	if c.weighted {
		weights = []float32{}
	}
	for j := range srcs {
		if c.weighted {
			weights = append(weights, rng.Float32()*2-0.5)
		}
		if rng.IntN(3) == 0 {
			continue
		}
		srcs[j] = guarded(t, c.h*size, rng.IntN(4))
		fill(rng, srcs[j], c.srcType, c.h)
		rows[j] = addr(srcs[j])
		if c.blocks > 0 {
			scales[j] = guarded(t, c.blocks*4, rng.IntN(4))
			fill(rng, scales[j], Float32, c.blocks)
			scaleRows[j] = addr(scales[j])
		}
	}
	dst := guarded(t, c.n*c.h*int(c.dstType.Size()), rng.IntN(4))
	want := make([]byte, len(dst))
	var err error
	if c.blocks > 0 {
		err = SumQuantRows(addr(dst), c.dstType, c.n, c.h, c.blocks, rows, scaleRows, weights)
	} else {
		scales = nil
		err = SumRows(addr(dst), c.dstType, c.n, c.h, rows, c.srcType, weights)
	}
	if err != nil {
		t.Fatal(err)
	}
	modelSum(want, c.dstType, c.n, c.h, srcs, c.srcType, scales, c.blocks, weights)
	if !bytes.Equal(dst, want) {
		for i := range c.n * c.h {
			s := int(c.dstType.Size())
			if !bytes.Equal(dst[i*s:(i+1)*s], want[i*s:(i+1)*s]) {
				t.Fatalf("%+v: row %d element %d = %x, want %x", c, i/c.h, i%c.h, dst[i*s:(i+1)*s], want[i*s:(i+1)*s])
			}
		}
	}
}

func TestSumRowsAgreesWithTheModel(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		for _, srcType := range floats {
			for _, dstType := range floats {
				for _, weighted := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s to %s, weighted %t", srcType, dstType, weighted), func(t *testing.T) {
						rng := rand.New(rand.NewPCG(uint64(srcType), uint64(dstType)))
						for _, h := range []int{1, 2, 7, 15, 16, 31, 33, 64, 129, 511, 512, 513, 1100} {
							sumCase{n: 2, h: h, most: 1 + rng.IntN(9), dstType: dstType, srcType: srcType, weighted: weighted}.check(t, rng)
						}
					})
				}
			}
		}
	})
}

func TestSumQuantRowsAgreesWithTheModel(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 5))
		for _, c := range []struct{ h, blocks int }{{1, 1}, {7, 3}, {56, 56}, {100, 56}, {129, 2}, {512, 4}, {513, 4}, {1100, 1}, {7168, 56}, {3, 8}} {
			for _, dstType := range floats {
				sumCase{n: 2, h: c.h, most: 3, dstType: dstType, srcType: Float8E4M3FN, weighted: rng.IntN(2) == 0, blocks: c.blocks}.check(t, rng)
			}
		}
	})
}

func TestSumRowsOfSpecialNumbers(t *testing.T) {
	inf := float32(math.Inf(1))
	cases := []struct {
		name    string
		terms   []float32
		weights []float32
		want    uint32
	}{
		{"no source is zero", nil, nil, 0},
		{"one source keeps its sign of zero", []float32{float32(math.Copysign(0, -1))}, nil, 0x80000000},
		{"infinity comes through", []float32{1, inf}, nil, 0x7f800000},
		{"infinity less infinity is NaN", []float32{inf, -inf}, nil, 0x7fc00000},
		{"a NaN of any bits comes out as the one", []float32{math.Float32frombits(0xff812345)}, nil, 0x7fc00000},
		{"NaN comes through a weight of zero", []float32{1, float32(math.NaN())}, []float32{1, 0}, 0x7fc00000},
		{"terms are added in the order of the table", []float32{1e8, 1, -1e8}, nil, 0},
		{"a product is rounded before it is added", []float32{1 + 0x1p-12, 1 + 0x1p-12}, []float32{-1 - 0x1p-11, 1 + 0x1p-12}, 0xb9801000},
		{"subnormals are numbers", []float32{0x1p-149, 0x1p-149}, nil, 2},
	}
	onEachVariant(t, func(t *testing.T) {
		for _, c := range cases {
			dst := guarded(t, 4, 0)
			rows := make([]uint64, len(c.terms))
			for i, x := range c.terms {
				b := guarded(t, 4, 0)
				put(b, Float32, 0, x, false)
				rows[i] = addr(b)
			}
			if err := SumRows(addr(dst), Float32, 1, 1, rows, Float32, c.weights); err != nil {
				t.Fatal(err)
			}
			if got := binary.NativeEndian.Uint32(dst); got != c.want {
				t.Errorf("%s: %#08x, want %#08x", c.name, got, c.want)
			}
		}
	})
}

// A row may be summed over one of its own sources.
func TestSumRowsInPlace(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		const h = 1300
		rng := rand.New(rand.NewPCG(9, 9))
		a, b, want := guarded(t, 2*h, 1), guarded(t, 2*h, 0), make([]byte, 2*h)
		fill(rng, a, BFloat16, h)
		fill(rng, b, BFloat16, h)
		modelSum(want, BFloat16, 1, h, [][]byte{b, a}, BFloat16, nil, 0, nil)
		if err := SumRows(addr(a), BFloat16, 1, h, []uint64{addr(b), addr(a)}, BFloat16, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, want) {
			t.Error("the sum over its own source is another")
		}
	})
}

// Threads that cut the rows of one sum among them make the rows that one call makes.
func TestSumRowsOfManyThreads(t *testing.T) {
	const n, m, h, threads = 64, 3, 300, 8
	rng := rand.New(rand.NewPCG(8, 8))
	src := guarded(t, n*m*h*2, 0)
	fill(rng, src, BFloat16, n*m*h)
	rows := make([]uint64, n*m)
	for i := range rows {
		rows[i] = addr(src[i*h*2:])
	}
	one, many := guarded(t, n*h*2, 0), guarded(t, n*h*2, 0)
	if err := SumRows(addr(one), BFloat16, n, h, rows, BFloat16, nil); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, threads)
	for i := range threads {
		go func() {
			const part = n / threads
			errs <- SumRows(addr(many[i*part*h*2:]), BFloat16, part, h, rows[i*part*m:(i+1)*part*m], BFloat16, nil)
		}()
	}
	for range threads {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if !bytes.Equal(one, many) {
		t.Error("the rows differ")
	}
}

func TestSumRefuses(t *testing.T) {
	one := []uint64{0}
	cases := []struct {
		name string
		err  error
		want error
	}{
		{"integers", SumRows(0, Float32, 1, 1, one, Int32, nil), ErrType},
		{"into pairs of float4", SumRows(0, Float4E2M1FNx2, 1, 1, one, Float32, nil), ErrType},
		{"rows less than none", SumRows(0, Float32, -1, 1, one, Float32, nil), ErrShape},
		{"elements less than none", SumRows(0, Float32, 1, -1, one, Float32, nil), ErrShape},
		{"more elements than memory can hold", SumRows(0, Float32, math.MaxInt, 8, one, Float32, nil), ErrShape},
		{"addresses that do not make whole rows", SumRows(0, Float32, 2, 1, make([]uint64, 3), Float32, nil), ErrShape},
		{"addresses for no row", SumRows(0, Float32, 0, 1, one, Float32, nil), ErrShape},
		{"a weight too many", SumRows(0, Float32, 1, 1, one, Float32, []float32{1, 1}), ErrShape},
		{"weights of length 0 that are not nil", SumRows(0, Float32, 1, 1, one, Float32, []float32{}), ErrShape},
		{"scales too few", SumQuantRows(0, Float32, 1, 1, 1, one, nil, nil), ErrShape},
		{"no blocks", SumQuantRows(0, Float32, 1, 1, 0, one, one, nil), ErrShape},
	}
	for _, c := range cases {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
	for name, err := range map[string]error{
		"no rows":           SumRows(0, Float32, 0, 1, nil, Float32, nil),
		"no elements":       SumRows(0, Float32, 1, 0, one, Float32, nil),
		"no quantised rows": SumQuantRows(0, Float32, 0, 1, 1, nil, nil, nil),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	const h = 64
	src, dst, scales := guarded(t, 4*h, 0), guarded(t, 4*h, 0), guarded(t, 16, 0)
	rows, scaleRows := []uint64{addr(src), addr(src)}, []uint64{addr(scales), addr(scales)}
	weights, idx, counts := []float32{1, 2}, []int32{1, 0}, make([]int32, 4)
	for name, f := range map[string]func(){
		"GatherRows":   func() { GatherRows(addr(dst), addr(src), 16, idx) },
		"ScatterRows":  func() { ScatterRows(addr(dst), addr(src), 16, idx) },
		"CopyRows":     func() { CopyRows(addr(dst), 32, addr(src), 16, 16, 2) },
		"CountExperts": func() { _ = CountExperts(counts, addr(src), 4, 2, 0) },
		"SumRows":      func() { _ = SumRows(addr(dst), BFloat16, 1, h, rows, Float32, weights) },
		"SumQuantRows": func() { _ = SumQuantRows(addr(dst), Float32, 1, h, 4, rows, scaleRows, weights) },
		"Convert":      func() { _ = Convert(addr(dst), BFloat16, addr(src), Float32, h, false) },
		"QuantBlocks":  func() { _ = QuantBlocks(addr(dst), addr(scales), addr(src), Float32, 1, h, 4) },
	} {
		if n := testing.AllocsPerRun(50, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
