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

var floats = []DType{Float32, BFloat16, Float8E4M3FN, Float8E4M3FNUZ}

var allVariants = []string{"portable", "avx2", "avx512"}

// onEachVariant runs test with each variant that this machine has.
func onEachVariant(t *testing.T, test func(t *testing.T)) {
	before := Variant()
	t.Cleanup(func() { useVariant(before) })
	for _, name := range allVariants {
		if useVariant(name) {
			t.Run(name, test)
		}
	}
}

func TestVariantIsOneOfThoseThatRun(t *testing.T) {
	before := Variant()
	defer useVariant(before)
	if !useVariant("portable") || Variant() != "portable" {
		t.Error("the portable variant does not run")
	}
	if useVariant("no such unit") || Variant() != "portable" {
		t.Error("a variant that is not there was put in use")
	}
	for _, name := range allVariants {
		if name == before {
			return
		}
	}
	t.Errorf("variant %q is unknown", before)
}

// The values are worked out by hand from the definitions of the formats.
func TestConvertRoundsAsTheFormatSays(t *testing.T) {
	nan, inf, negZero := float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1))
	cases := []struct {
		name     string
		x        float32
		saturate bool
		fn, fnuz byte
	}{
		{"zero", 0, false, 0x00, 0x00},
		{"negative zero is kept by the one and dropped by the other", negZero, false, 0x80, 0x00},
		{"one", 1, false, 0x38, 0x40},
		{"minus one", -1, false, 0xb8, 0xc0},
		{"a tie goes to the even mantissa below", 1.0625, false, 0x38, 0x40},
		{"a tie goes to the even mantissa above", 1.1875, false, 0x3a, 0x42},
		{"a little more than a tie goes up", 1.0625001, false, 0x39, 0x41},
		{"rounding carries into the exponent", 1.9999, false, 0x40, 0x48},
		{"the largest of fnuz", 240, false, 0x77, 0x7f},
		{"just short of half way past fnuz", 247.99998, false, 0x77, 0x7f},
		{"half way past fnuz is NaN there", 248, false, 0x78, 0x80},
		{"past fnuz saturates", -300, true, 0xf9, 0xff},
		{"the largest of fn", 448, false, 0x7e, 0x80},
		{"half way past fn still is the largest", 464, false, 0x7e, 0x80},
		{"more than half way past fn is NaN", 464.00003, false, 0x7f, 0x80},
		{"more than half way past fn, negative", -464.00003, false, 0xff, 0x80},
		{"more than half way past fn saturates", 464.00003, true, 0x7e, 0x7f},
		{"the largest float32", math.MaxFloat32, false, 0x7f, 0x80},
		{"the largest float32 saturates", -math.MaxFloat32, true, 0xfe, 0xff},
		{"infinity", inf, false, 0x7f, 0x80},
		{"infinity saturates", -inf, true, 0xfe, 0xff},
		{"NaN", nan, false, 0x7f, 0x80},
		{"NaN does not saturate", nan, true, 0x7f, 0x80},
		{"the smallest normal of fn", 0x1p-6, false, 0x08, 0x10},
		{"the smallest normal of fnuz", 0x1p-7, false, 0x04, 0x08},
		{"the smallest subnormal of fn", 0x1p-9, false, 0x01, 0x02},
		{"the smallest subnormal of fnuz", 0x1p-10, false, 0x00, 0x01},
		{"half of fnuz's smallest is a tie to zero", 0x1p-11, false, 0x00, 0x00},
		{"negative and too small has no sign in fnuz", -0x1p-11, false, 0x80, 0x00},
		{"a float32 subnormal", math.SmallestNonzeroFloat32, false, 0x00, 0x00},
		{"subnormals round to the smallest normal", 0x1.fp-7, false, 0x08, 0x10},
	}
	onEachVariant(t, func(t *testing.T) {
		for _, c := range cases {
			src, dst := guarded(t, 4, 0), guarded(t, 1, 0)
			put(src, Float32, 0, c.x, false)
			for _, to := range []struct {
				t    DType
				want byte
			}{{Float8E4M3FN, c.fn}, {Float8E4M3FNUZ, c.fnuz}} {
				convert(t, dst, to.t, src, Float32, 1, c.saturate)
				if dst[0] != to.want {
					t.Errorf("%s: %g to %s = %#02x, want %#02x", c.name, c.x, to.t, dst[0], to.want)
				}
			}
		}
	})
}

func convert(t testing.TB, dst []byte, dstType DType, src []byte, srcType DType, n int, saturate bool) {
	t.Helper()
	if err := Convert(addr(dst), dstType, addr(src), srcType, n, saturate); err != nil {
		t.Fatal(err)
	}
}

// compare converts the n elements of src and holds the bytes against the model's.
func compare(t *testing.T, dstType DType, src []byte, srcType DType, n int, saturate bool) {
	t.Helper()
	size := int(dstType.Size())
	dst, want := guarded(t, n*size, 0), make([]byte, n*size)
	convert(t, dst, dstType, src, srcType, n, saturate)
	for i := range n {
		put(want, dstType, i, get(src, srcType, i), saturate)
	}
	if bytes.Equal(dst, want) {
		return
	}
	for i := range n {
		if got, want := dst[i*size:(i+1)*size], want[i*size:(i+1)*size]; !bytes.Equal(got, want) {
			x := src[i*int(srcType.Size()):][:srcType.Size()]
			t.Fatalf("%s %x (%g) to %s, saturate %t: got %x, want %x", srcType, x, get(src, srcType, i), dstType, saturate, got, want)
		}
	}
}

func TestConvertOfEveryNarrowNumber(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		src := guarded(t, 2<<16, 1)
		for i := range 1 << 16 {
			binary.NativeEndian.PutUint16(src[2*i:], uint16(i))
		}
		bytes := guarded(t, 256, 3)
		for i := range bytes {
			bytes[i] = byte(i)
		}
		for _, to := range floats {
			for _, saturate := range []bool{false, true} {
				if to != BFloat16 {
					compare(t, to, src, BFloat16, 1<<16, saturate)
				}
				for _, from := range []DType{Float8E4M3FN, Float8E4M3FNUZ} {
					if from != to {
						compare(t, to, bytes, from, 256, saturate)
					}
				}
			}
		}
	})
}

// hardFloats are numbers near every place where a rounding changes, and of random bits.
func hardFloats(seed uint64) []float32 {
	var hard []float32
	near := func(x float64) {
		u := math.Float32bits(float32(x))
		for d := -2; d <= 2; d++ {
			hard = append(hard, math.Float32frombits(u+uint32(d)), -math.Float32frombits(u+uint32(d)))
		}
	}
	for _, f := range []e4m3{fn, fnuz} {
		for c := 1; c <= f.last+2; c++ {
			near(f.magnitude(c))
			near((f.magnitude(c-1) + f.magnitude(c)) / 2)
		}
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 1 << 15 {
		u := rng.Uint32()
		hard = append(hard, math.Float32frombits(u), math.Float32frombits(u&^0xffff|0x8000), math.Float32frombits(u>>9|0x3c000000))
	}
	return append(hard, 0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
		math.MaxFloat32, math.SmallestNonzeroFloat32, math.Float32frombits(0x7f7fffff), math.Float32frombits(0xff800001))
}

func TestConvertOfHardFloats(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		hard := hardFloats(7)
		src := guarded(t, 4*len(hard), 2)
		for i, x := range hard {
			put(src, Float32, i, x, false)
		}
		for _, to := range []DType{BFloat16, Float8E4M3FN, Float8E4M3FNUZ} {
			compare(t, to, src, Float32, len(hard), false)
			compare(t, to, src, Float32, len(hard), true)
		}
	})
}

func TestConvertOfOneTypeKeepsNumbers(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		for _, typ := range floats {
			src, dst := guarded(t, 1024, 1), guarded(t, 1024, 0)
			n := 1024 / int(typ.Size())
			rng := rand.New(rand.NewPCG(3, uint64(typ)))
			for i := range n {
				put(src, typ, i, float32(rng.NormFloat64()), false)
			}
			convert(t, dst, typ, src, typ, n, false)
			if !bytes.Equal(dst, src) {
				t.Errorf("%s to itself changes numbers", typ)
			}
		}
	})
}

func TestConvertRefuses(t *testing.T) {
	for name, err := range map[string]error{
		"integers":                   Convert(0, Float32, 0, Int32, 1, false),
		"pairs of float4":            Convert(0, Float4E2M1FNx2, 0, Float32, 1, false),
		"a type that no number has":  Convert(0, 17, 0, Float32, 1, false),
		"a negative number for type": Convert(0, Float32, 0, -1, 1, false),
	} {
		if !errors.Is(err, ErrType) {
			t.Errorf("%s: %v, want ErrType", name, err)
		}
	}
	if err := Convert(0, Float32, 0, BFloat16, -1, false); !errors.Is(err, ErrShape) {
		t.Errorf("less than no elements: %v, want ErrShape", err)
	}
	if err := Convert(0, Float32, 0, BFloat16, 0, false); err != nil {
		t.Errorf("no elements: %v", err)
	}
}

func TestDTypeNames(t *testing.T) {
	for i, want := range []string{"float32", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "int32", "float4_e2m1fn_x2", "dtype 6"} {
		if got := DType(i).String(); got != want {
			t.Errorf("DType(%d) = %q, want %q", i, got, want)
		}
	}
	for i, want := range []uint64{4, 2, 1, 1, 4, 1, 0} {
		if got := DType(i).Size(); got != want {
			t.Errorf("DType(%d).Size() = %d, want %d", i, got, want)
		}
	}
	if DType(-1).Size() != 0 {
		t.Error("a negative number has a size")
	}
}
