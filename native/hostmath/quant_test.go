// SPDX-License-Identifier: MIT

package hostmath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func quantBlocks(t testing.TB, dst, scales, src []byte, srcType DType, rows, h, blocks int) {
	t.Helper()
	if err := QuantBlocks(addr(dst), addr(scales), addr(src), srcType, rows, h, blocks); err != nil {
		t.Fatal(err)
	}
}

func TestQuantBlocksAgreesWithTheModel(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, srcType := range floats {
			for _, c := range []struct{ h, blocks int }{{1, 1}, {1, 4}, {7, 3}, {56, 56}, {100, 56}, {513, 1}, {1025, 1}, {1100, 2}, {7168, 56}, {0, 2}} {
				const rows = 2
				n := rows * c.h
				src := guarded(t, n*int(srcType.Size()), rng.IntN(4))
				fill(rng, src, srcType, n)
				dst, scales := guarded(t, n, rng.IntN(4)), guarded(t, 4*rows*c.blocks, rng.IntN(4))
				wantDst, wantScales := make([]byte, len(dst)), make([]byte, len(scales))
				quantBlocks(t, dst, scales, src, srcType, rows, c.h, c.blocks)
				modelQuant(wantDst, wantScales, src, srcType, rows, c.h, c.blocks)
				if !bytes.Equal(scales, wantScales) {
					t.Errorf("%s, %d in %d blocks: scales are %x, want %x", srcType, c.h, c.blocks, scales, wantScales)
				}
				if !bytes.Equal(dst, wantDst) {
					t.Errorf("%s, %d in %d blocks: elements differ from the model's", srcType, c.h, c.blocks)
				}
			}
		}
	})
}

func TestQuantBlocksOfSpecialNumbers(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	cases := []struct {
		name  string
		block []float32
		scale float32
		want  []byte
	}{
		{"the largest becomes 448", []float32{-896, 2, 0}, 2, []byte{0xfe, 0x38, 0}},
		{"zeros have scale 1", []float32{0, 0, 0}, 1, []byte{0, 0, 0}},
		{"NaN and infinity spoil no neighbour", []float32{nan, 448, -inf}, 1, []byte{0x7f, 0x7e, 0xff}},
		{"nothing finite has scale 1", []float32{nan, inf, inf}, 1, []byte{0x7f, 0x7f, 0x7f}},
		{"subnormals are divided by the least scale", []float32{0x1p-126, 0x1p-149, -0x1p-135}, 0x1p-126, []byte{0x38, 0, 0x81}},
		{"the largest number", []float32{math.MaxFloat32, 0, 0}, math.MaxFloat32 / 448, []byte{0x7e, 0, 0}},
	}
	onEachVariant(t, func(t *testing.T) {
		for _, c := range cases {
			src, dst, scale := guarded(t, 12, 0), guarded(t, 3, 0), guarded(t, 4, 0)
			for i, x := range c.block {
				put(src, Float32, i, x, false)
			}
			quantBlocks(t, dst, scale, src, Float32, 1, 3, 1)
			if got := get(scale, Float32, 0); got != c.scale {
				t.Errorf("%s: scale %g, want %g", c.name, got, c.scale)
			}
			if !bytes.Equal(dst, c.want) {
				t.Errorf("%s: %x, want %x", c.name, dst, c.want)
			}
		}
	})
}

func TestQuantBlocksRefuses(t *testing.T) {
	for name, c := range map[string]struct{ err, want error }{
		"integers":                 {QuantBlocks(0, 0, 0, Int32, 1, 1, 1), ErrType},
		"no blocks":                {QuantBlocks(0, 0, 0, Float32, 1, 1, 0), ErrShape},
		"rows less than none":      {QuantBlocks(0, 0, 0, Float32, -1, 1, 1), ErrShape},
		"elements less than none":  {QuantBlocks(0, 0, 0, Float32, 1, -1, 1), ErrShape},
		"more elements than fit":   {QuantBlocks(0, 0, 0, Float32, math.MaxInt, 2, 1), ErrShape},
		"more blocks than can fit": {QuantBlocks(0, 0, 0, Float32, 2, 1, math.MaxInt), ErrShape},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	if err := QuantBlocks(0, 0, 0, Float32, 0, 8, 2); err != nil {
		t.Errorf("no rows: %v", err)
	}
}

// errorBound is how far a finite x of a block with this scale may be from what its code stands for.
// Half a place of 4 significant bits is 2^-4 of the quotient while that is normal, and 2^-10 below.
// Each of the two roundings to float32 on the way, of the quotient here and of the product there,
// adds less than 2^-23 of x.
func errorBound(x, scale float64) float64 {
	return math.Max(math.Abs(x)*0x1p-4, scale*0x1p-10) * (1 + 0x1p-18)
}

func FuzzQuantBlocks(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 1, 0, 0, 0}, uint8(1))
	f.Add([]byte{0, 0, 0x80, 0x7f, 0xff, 0xff, 0x7f, 0x7f, 1, 0, 0xc0, 0xff}, uint8(2))
	f.Add(bytes.Repeat([]byte{1, 0x22, 0x93, 0x41}, 600), uint8(7))
	f.Fuzz(func(t *testing.T, data []byte, b uint8) {
		h, blocks := len(data)/4, 1+int(b)%64
		src, dst, scales := guarded(t, 4*h, 0), guarded(t, h, 0), guarded(t, 4*blocks, 0)
		copy(src, data)
		quantBlocks(t, dst, scales, src, Float32, 1, h, blocks)
		out := guarded(t, 4*h, 0)
		if err := SumQuantRows(addr(out), Float32, 1, h, blocks, []uint64{addr(dst)}, []uint64{addr(scales)}, nil); err != nil {
			t.Fatal(err)
		}
		for i := range h {
			x, got := float64(get(src, Float32, i)), float64(get(out, Float32, i))
			scale := float64(get(scales, Float32, i/((h+blocks-1)/blocks)))
			if math.IsNaN(x) || math.IsInf(x, 0) {
				if !math.IsNaN(got) {
					t.Fatalf("element %d: %g came back as %g", i, x, got)
				}
				continue
			}
			if e := math.Abs(x - got); !(e <= errorBound(x, scale)) {
				t.Fatalf("element %d: %g came back as %g, which is %g off; the bound is %g", i, x, got, e, errorBound(x, scale))
			}
		}
	})
}

// FuzzConvert: what was converted to a type converts to float32 and back to the same bits, and all
// is as in the model.
func FuzzConvert(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x3f, 0, 0, 0x88, 0x3f}, uint8(2), false)
	f.Add([]byte{0, 0, 0x80, 0x7f, 1, 0, 0x80, 0xff, 1, 0, 0, 0}, uint8(3), true)
	f.Add([]byte{0, 0x80, 0x80, 0x3f, 0, 0x80, 0x81, 0xbf}, uint8(1), false)
	f.Fuzz(func(t *testing.T, data []byte, b uint8, saturate bool) {
		n, typ := len(data)/4, floats[int(b)%len(floats)]
		size := int(typ.Size())
		src, there, back, again := guarded(t, 4*n, 1), guarded(t, size*n, 1), guarded(t, 4*n, 1), guarded(t, size*n, 1)
		copy(src, data)
		convert(t, there, typ, src, Float32, n, saturate)
		convert(t, back, Float32, there, typ, n, saturate)
		convert(t, again, typ, back, Float32, n, saturate)
		if !bytes.Equal(there, again) {
			t.Fatalf("%x to %s is %x, and by way of float32 %x", src, typ, there, again)
		}
		if typ == Float32 {
			return
		}
		want := make([]byte, size)
		for i := range n {
			put(want, typ, 0, get(src, Float32, i), saturate)
			if got := there[i*size:][:size]; !bytes.Equal(got, want) {
				t.Fatalf("%#08x to %s is %x, want %x", binary.NativeEndian.Uint32(src[4*i:]), typ, got, want)
			}
		}
	})
}
