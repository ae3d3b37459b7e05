// SPDX-License-Identifier: MIT

package reduceop

import (
	"math"

	"mori/core/fabric"
)

// halfBlock is the number of 2-byte floats that are widened at a time.
const halfBlock = 512

// halves computes in float32 and rounds after each step. In float32 the sum and the product of two
// halves are exact or rounded below a half's precision, so the result is rounded once.
func halves(op Op, typ fabric.DataType) Func {
	return pairs(func(d, x, y []uint16) {
		var wideX, wideY [halfBlock]float32
		for len(d) > 0 {
			n := min(len(d), halfBlock)
			widen(typ, wideX[:n], x[:n])
			widen(typ, wideY[:n], y[:n])
			combineFloats(op, wideX[:n], wideY[:n])
			narrow(typ, d[:n], wideX[:n])
			d, x, y = d[n:], x[n:], y[n:]
		}
	})
}

// combineFloats combines x and y into x.
func combineFloats(op Op, x, y []float32) {
	y = y[:len(x)]
	switch op {
	case Sum:
		for i := range x {
			x[i] += y[i]
		}
	case Prod:
		for i := range x {
			x[i] *= y[i]
		}
	case Min:
		for i := range x {
			x[i] = min(x[i], y[i])
		}
	case Max:
		for i := range x {
			x[i] = max(x[i], y[i])
		}
	}
}

func widen(typ fabric.DataType, wide []float32, h []uint16) {
	h = h[:len(wide)]
	if typ == BFloat16 {
		for i := range wide {
			wide[i] = FromBFloat16(h[i])
		}
		return
	}
	for i := range wide {
		wide[i] = FromFloat16(h[i])
	}
}

func narrow(typ fabric.DataType, h []uint16, wide []float32) {
	wide = wide[:len(h)]
	if typ == BFloat16 {
		for i := range h {
			h[i] = ToBFloat16(wide[i])
		}
		return
	}
	for i := range h {
		h[i] = ToFloat16(wide[i])
	}
}

// FromBFloat16 widens; every value is exact.
func FromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBFloat16 rounds to nearest even. A NaN stays a NaN.
func ToBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromFloat16 widens; every value is exact. The product with 2^112 moves the exponent from a bias
// of 15 to one of 127, which is right for subnormal numbers, too.
func FromFloat16(h uint16) float32 {
	sign, rest := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	f := math.Float32frombits(rest<<13) * 0x1p112
	if rest >= 0x7c00 { // infinite, or no number
		f = math.Float32frombits(rest<<13 | 0x7f800000)
	}
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// ToFloat16 rounds to nearest even. A NaN stays a NaN.
func ToFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, rest := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case rest > 0x7f800000:
		return sign | 0x7e00
	case rest >= 0x477ff000: // 65520 and more round to infinity
		return sign | 0x7c00
	case rest < 0x38800000: // less than the smallest normal number: adding 0.5 rounds to multiples of 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(rest)+0.5)-0x3f000000)
	}
	return sign | uint16((rest-0x38000000+0xfff+rest>>13&1)>>13)
}
