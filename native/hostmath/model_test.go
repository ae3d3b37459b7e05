// SPDX-License-Identifier: MIT

package hostmath

import (
	"encoding/binary"
	"math"
	"sort"
)

// The model is the arithmetic as the formats define it, one element at a time and slowly. It shares
// nothing with the kernels: a float8 is decoded by its definition in float64, and encoded by a
// search for the nearest of all its values.

// e4m3 is a format of 1 sign bit, 4 exponent bits and 3 mantissa bits.
type e4m3 struct {
	bias    int
	last    int // the largest magnitude that is a number
	nan     byte
	negZero bool
	signed  bool // NaN has a sign
}

// OCP OFP8 1.0, tables 1 and 2; the FNUZ form is that of ONNX and LLVM, without negative zero.
var (
	fn   = e4m3{bias: 7, last: 0x7e, nan: 0x7f, negZero: true, signed: true}
	fnuz = e4m3{bias: 8, last: 0x7f, nan: 0x80}
)

// magnitude is the value of the code c, as if c past the last went on.
func (f e4m3) magnitude(c int) float64 {
	e, m := c>>3, c&7
	if e == 0 {
		return math.Ldexp(float64(m), 1-f.bias-3)
	}
	return math.Ldexp(float64(8+m), e-f.bias-3)
}

func (f e4m3) decode(b byte) float64 {
	v := f.magnitude(int(b & 0x7f))
	switch {
	case b == f.nan && !f.signed:
		return math.NaN()
	case f.signed && b&0x7f == f.nan:
		v = math.NaN()
	}
	if b&0x80 != 0 {
		v = math.Copysign(v, -1)
	}
	return v
}

func (f e4m3) encode(x float64, saturate bool) byte {
	var sign byte
	if math.Signbit(x) {
		sign, x = 0x80, -x
	}
	if math.IsNaN(x) {
		if f.signed {
			return f.nan | sign
		}
		return f.nan
	}
	// The code above x, and whether x is nearer to the one below; of two as near, the even one.
	c := sort.Search(f.last+1, func(c int) bool { return f.magnitude(c) >= x })
	if c > 0 {
		below, above := x-f.magnitude(c-1), f.magnitude(c)-x
		if below < above || (below == above && (c-1)%2 == 0) {
			c--
		}
	}
	switch {
	case c > f.last && saturate:
		c = f.last
	case c > f.last && f.signed:
		return f.nan | sign
	case c > f.last:
		return f.nan
	case c == 0 && !f.negZero:
		return 0
	}
	return byte(c) | sign
}

// bf16 is x as a bfloat16: the nearer of its two neighbours there.
func bf16(x float32) uint16 {
	if x != x {
		return uint16(math.Float32bits(x)>>16&0x8000 | 0x7fc0)
	}
	low := math.Float32bits(x) >> 16 // towards zero
	if math.IsInf(float64(x), 0) {
		return uint16(low)
	}
	value := func(b uint32) float64 { // past the largest as if exponents went on
		e, m := int(b>>7&0xff), float64(b&0x7f)
		if e == 0 {
			return math.Ldexp(m, -133)
		}
		return math.Ldexp(128+m, e-127-7)
	}
	a := math.Abs(float64(x))
	below, above := a-value(low), value(low+1)-a
	if below > above || (below == above && low%2 == 1) {
		low++
	}
	return uint16(low)
}

// get is element i of b as a float32.
func get(b []byte, t DType, i int) float32 {
	switch t {
	case Float32:
		return math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
	case BFloat16:
		return math.Float32frombits(uint32(binary.NativeEndian.Uint16(b[2*i:])) << 16)
	case Float8E4M3FN:
		return float32(fn.decode(b[i]))
	default:
		return float32(fnuz.decode(b[i]))
	}
}

// put makes x element i of b.
func put(b []byte, t DType, i int, x float32, saturate bool) {
	switch t {
	case Float32:
		binary.NativeEndian.PutUint32(b[4*i:], math.Float32bits(x))
	case BFloat16:
		binary.NativeEndian.PutUint16(b[2*i:], bf16(x))
	case Float8E4M3FN:
		b[i] = fn.encode(float64(x), saturate)
	default:
		b[i] = fnuz.encode(float64(x), saturate)
	}
}

// modelSum is SumRows over sources in buffers; nil is no source. scales, of blocks for each source,
// may be nil.
func modelSum(dst []byte, dstType DType, n, h int, srcs [][]byte, srcType DType, scales [][]byte, blocks int, weights []float32) {
	for t := range n {
		m := len(srcs) / n
		for i := range h {
			var sum float32
			first := true
			for j := t * m; j < (t+1)*m; j++ {
				if srcs[j] == nil {
					continue
				}
				x := get(srcs[j], srcType, i)
				if scales != nil {
					x = float32(x * get(scales[j], Float32, i/((h+blocks-1)/blocks)))
				}
				if weights != nil {
					x = float32(weights[j] * x)
				}
				if first {
					sum, first = x, false
				} else {
					sum = float32(sum + x)
				}
			}
			if sum != sum {
				sum = math.Float32frombits(0x7fc00000)
			}
			put(dst, dstType, t*h+i, sum, false)
		}
	}
}

// modelQuant is QuantBlocks.
func modelQuant(dst, scales, src []byte, srcType DType, rows, h, blocks int) {
	l := (h + blocks - 1) / blocks
	for r := range rows {
		for b := range blocks {
			from, to := min(b*l, h), min((b+1)*l, h)
			most := 0.0
			for i := from; i < to; i++ {
				if x := math.Abs(float64(get(src, srcType, r*h+i))); x > most && x <= math.MaxFloat32 {
					most = x
				}
			}
			scale := max(float32(most)/448, 0x1p-126)
			if most == 0 {
				scale = 1
			}
			put(scales, Float32, r*blocks+b, scale, false)
			for i := from; i < to; i++ {
				put(dst, Float8E4M3FN, r*h+i, get(src, srcType, r*h+i)/scale, false)
			}
		}
	}
}
