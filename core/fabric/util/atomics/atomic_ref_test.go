// SPDX-License-Identifier: MIT

package atomics

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"

	"mori/core/fabric"
)

// This file is the slow and obvious side of the tests of Execute: integers are big.Ints, all floats
// are float64 (whose sums and products, rounded once more, are those of float32), complex numbers
// are pairs.

// refIntegers are the types of integers.
var refIntegers = map[fabric.DataType]struct {
	bits   uint
	signed bool
}{
	fabric.Int8: {8, true}, fabric.Uint8: {8, false}, fabric.Int16: {16, true}, fabric.Uint16: {16, false},
	fabric.Int32: {32, true}, fabric.Uint32: {32, false}, fabric.Int64: {64, true}, fabric.Uint64: {64, false},
}

// refCombine is what op makes of the elements x, v and c.
func refCombine(op fabric.AtomicOp, t fabric.DataType, x, v, c []byte) []byte {
	if _, ok := refIntegers[t]; ok {
		return refEncode(t, refBig(op, refDecode(t, x), refDecode(t, v), refDecode(t, c)))
	}
	var re, im float64
	x0, x1 := refFloats(t, x)
	v0, v1 := refFloats(t, v)
	c0, c1 := refFloats(t, c)
	if t.Complex() {
		re, im = refComplex(op, [2]float64{x0, x1}, [2]float64{v0, v1}, [2]float64{c0, c1})
	} else {
		re = refFloat(op, x0, v0, c0)
	}
	return refPutFloats(t, re, im)
}

func refDecode(t fabric.DataType, b []byte) *big.Int {
	bits := refIntegers[t]
	n := new(big.Int)
	for i := len(b) - 1; i >= 0; i-- {
		n.Or(n.Lsh(n, 8), big.NewInt(int64(b[i])))
	}
	if bits.signed && n.Bit(int(bits.bits)-1) == 1 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), bits.bits))
	}
	return n
}

func refEncode(t fabric.DataType, n *big.Int) []byte {
	rest := new(big.Int).Mod(n, new(big.Int).Lsh(big.NewInt(1), refIntegers[t].bits))
	out := make([]byte, t.Size())
	for i := range out {
		out[i] = byte(new(big.Int).And(rest, big.NewInt(255)).Int64())
		rest.Rsh(rest, 8)
	}
	return out
}

func refBool(b bool) *big.Int {
	if b {
		return big.NewInt(1)
	}
	return big.NewInt(0)
}

func refBig(op fabric.AtomicOp, x, v, c *big.Int) *big.Int {
	if take, compares := refTake(op, v.Cmp(x), c.Cmp(x)); compares {
		if take {
			return v
		}
		return x
	}
	xTrue, vTrue := x.Sign() != 0, v.Sign() != 0
	switch op {
	case fabric.AtomicSum:
		return new(big.Int).Add(x, v)
	case fabric.AtomicProd:
		return new(big.Int).Mul(x, v)
	case fabric.AtomicLOr:
		return refBool(xTrue || vTrue)
	case fabric.AtomicLAnd:
		return refBool(xTrue && vTrue)
	case fabric.AtomicLXor:
		return refBool(xTrue != vTrue)
	case fabric.AtomicBOr:
		return new(big.Int).Or(x, v)
	case fabric.AtomicBAnd:
		return new(big.Int).And(x, v)
	case fabric.AtomicBXor:
		return new(big.Int).Xor(x, v)
	case fabric.AtomicMSwap:
		return new(big.Int).Or(new(big.Int).And(v, c), new(big.Int).AndNot(x, c))
	}
	panic(op)
}

// refTake decides for the ops that leave x or take v, from the comparisons of v with x and of c
// with x: -1, 0, 1 or, if one is NaN, 2.
func refTake(op fabric.AtomicOp, vx, cx int) (take, compares bool) {
	switch op {
	case fabric.AtomicMin:
		return vx == -1, true
	case fabric.AtomicMax:
		return vx == 1, true
	case fabric.AtomicRead:
		return false, true
	case fabric.AtomicWrite:
		return true, true
	case fabric.AtomicCSwap:
		return cx == 0, true
	case fabric.AtomicCSwapNE:
		return cx != 0, true
	case fabric.AtomicCSwapLE:
		return cx == -1 || cx == 0, true
	case fabric.AtomicCSwapLT:
		return cx == -1, true
	case fabric.AtomicCSwapGE:
		return cx == 1 || cx == 0, true
	case fabric.AtomicCSwapGT:
		return cx == 1, true
	}
	return false, false
}

func refCmp(a, b float64) int {
	if math.IsNaN(a) || math.IsNaN(b) {
		return 2
	}
	return big.NewFloat(a).Cmp(big.NewFloat(b))
}

func refFloat(op fabric.AtomicOp, x, v, c float64) float64 {
	if take, compares := refTake(op, refCmp(v, x), refCmp(c, x)); compares {
		if take {
			return v
		}
		return x
	}
	switch op {
	case fabric.AtomicSum:
		return x + v
	case fabric.AtomicProd:
		return x * v
	}
	n, _ := refBig(op, refBool(x != 0), refBool(v != 0), bigZero).Float64()
	return n
}

var bigZero = big.NewInt(0)

func refComplex(op fabric.AtomicOp, x, v, c [2]float64) (re, im float64) {
	differ := func(a, b [2]float64) int {
		if a == b {
			return 0
		}
		return 2
	}
	if take, compares := refTake(op, differ(v, x), differ(c, x)); compares {
		if take {
			return v[0], v[1]
		}
		return x[0], x[1]
	}
	switch op {
	case fabric.AtomicSum:
		return x[0] + v[0], x[1] + v[1]
	case fabric.AtomicProd:
		return x[0]*v[0] - x[1]*v[1], x[0]*v[1] + x[1]*v[0]
	}
	zero := [2]float64{}
	n, _ := refBig(op, refBool(x != zero), refBool(v != zero), bigZero).Float64()
	return n, 0
}

func refFloats(t fabric.DataType, b []byte) (re, im float64) {
	one := func(b []byte) float64 {
		if t == fabric.Float32 || t == fabric.Complex64 {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	if re = one(b); t.Complex() {
		im = one(b[len(b)/2:])
	}
	return re, im
}

func refPutFloats(t fabric.DataType, re, im float64) (out []byte) {
	parts := []float64{re, im}
	if !t.Complex() {
		parts = parts[:1]
	}
	for _, p := range parts {
		if t == fabric.Float32 || t == fabric.Complex64 {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(p)))
		} else {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(p))
		}
	}
	return out
}

// refSame compares elements: NaN is NaN, whatever its other bits.
func refSame(t fabric.DataType, a, b []byte) bool {
	if _, ok := refIntegers[t]; ok || t.Complex() {
		return string(a) == string(b)
	}
	x, _ := refFloats(t, a)
	y, _ := refFloats(t, b)
	return string(a) == string(b) || math.IsNaN(x) && math.IsNaN(y)
}

// refRandom is an element, often of a value where something changes. Complex numbers are small
// whole ones, so that products are exact.
func refRandom(rng *rand.Rand, t fabric.DataType) []byte {
	if _, ok := refIntegers[t]; ok {
		b := make([]byte, t.Size())
		fill := []byte{0, 0xff, byte(rng.Uint32())}[rng.IntN(3)]
		for i := range b {
			if b[i] = fill; rng.IntN(4) == 0 {
				b[i] = byte(rng.Uint32())
			}
		}
		b[len(b)-1] ^= []byte{0, 0x80, 0}[rng.IntN(3)]
		return b
	}
	if t.Complex() {
		return refPutFloats(t, float64(rng.IntN(9)-4), float64(rng.IntN(5)-2))
	}
	special := []float64{0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat32, math.MaxFloat32}
	if n := rng.IntN(2 * len(special)); n < len(special) {
		return refPutFloats(t, special[n], 0)
	}
	return refPutFloats(t, rng.NormFloat64()*math.Exp(20*rng.NormFloat64()), 0)
}
