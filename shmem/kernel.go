// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"math"

	"mori/core/fabric"
	"mori/core/memory"
)

// A ReduceOp is how Reduce combines two elements.
type ReduceOp int

// The ops. Bits are of integers only; there is no smallest complex number.
const (
	ReduceAnd ReduceOp = 1 + iota
	ReduceOr
	ReduceXor
	ReduceMin
	ReduceMax
	ReduceSum
	ReduceProd

	reduceOpEnd
)

var reduceOpText = [...]string{ReduceAnd: "and", ReduceOr: "or", ReduceXor: "xor", ReduceMin: "min", ReduceMax: "max", ReduceSum: "sum", ReduceProd: "prod"}

// String is OpenSHMEM's word.
func (op ReduceOp) String() string {
	if op < ReduceAnd || op >= reduceOpEnd {
		return fmt.Sprintf("op %d", int(op))
	}
	return reduceOpText[op]
}

// Types that only Reduce knows: floats of two bytes, which no CPU has atomics of.
const (
	Float16  fabric.DataType = 128 + iota // IEEE 754 binary16
	BFloat16                              // the upper half of a Float32
)

// A kernel combines n elements at a with those at b into dst, which may be a or b.
type kernel func(dst, a, b uint64, n int)

// kernels are all there are. They are made once, as making one takes memory.
var kernels = func() map[ReduceOp]map[fabric.DataType]kernel {
	all := map[ReduceOp]map[fabric.DataType]kernel{}
	for op := ReduceAnd; op < reduceOpEnd; op++ {
		all[op] = map[fabric.DataType]kernel{}
		for typ := fabric.Int8; typ <= BFloat16; typ++ {
			if f := makeKernel(op, typ); f != nil {
				all[op][typ] = f
			}
		}
	}
	return all
}()

// kernelOf is the kernel of an op, and the size of the type's elements.
func kernelOf(op ReduceOp, typ fabric.DataType) (f kernel, size uint64, err error) {
	if f = kernels[op][typ]; f == nil {
		return nil, 1, fmt.Errorf("%v of elements of type %s: %w", op, typeText(typ), ErrInvalid)
	}
	return f, sizeOf(typ), nil
}

func sizeOf(typ fabric.DataType) uint64 {
	if typ == Float16 || typ == BFloat16 {
		return 2
	}
	return uint64(typ.Size())
}

// makeKernel makes a kernel, nil if the op does not go with the type.
func makeKernel(op ReduceOp, typ fabric.DataType) kernel {
	if op > ReduceXor {
		return numberKernel(op, typ)
	}
	if typ.Integer() {
		return bitKernel(op, typ.Size())
	}
	return nil
}

func typeText(typ fabric.DataType) string {
	switch typ {
	case Float16:
		return "float16"
	case BFloat16:
		return "bfloat16"
	}
	return typ.String()
}

func numberKernel(op ReduceOp, typ fabric.DataType) kernel {
	switch typ {
	case fabric.Int8:
		return ordered[int8](op)
	case fabric.Uint8:
		return ordered[uint8](op)
	case fabric.Int16:
		return ordered[int16](op)
	case fabric.Uint16:
		return ordered[uint16](op)
	case fabric.Int32:
		return ordered[int32](op)
	case fabric.Uint32:
		return ordered[uint32](op)
	case fabric.Int64:
		return ordered[int64](op)
	case fabric.Uint64:
		return ordered[uint64](op)
	case fabric.Float32:
		return ordered[float32](op)
	case fabric.Float64:
		return ordered[float64](op)
	case fabric.Complex64:
		return arithmetic[complex64](op)
	case fabric.Complex128:
		return arithmetic[complex128](op)
	case Float16:
		return halves(op, fromFloat16, toFloat16)
	case BFloat16:
		return halves(op, fromBFloat16, toBFloat16)
	}
	return nil
}

type orderedNumber interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

type anyNumber interface {
	orderedNumber | ~complex64 | ~complex128
}

// three are the slices of a kernel, as long as the compiler must see to leave the bounds checks out.
func three[T any](dst, a, b uint64, n int) (d, x, y []T) {
	d = memory.Slice[T](dst, n)
	return d, memory.Slice[T](a, n)[:len(d)], memory.Slice[T](b, n)[:len(d)]
}

func arithmetic[T anyNumber](op ReduceOp) kernel {
	switch op {
	case ReduceSum:
		return func(dst, a, b uint64, n int) {
			d, x, y := three[T](dst, a, b, n)
			for i := range d {
				d[i] = x[i] + y[i]
			}
		}
	case ReduceProd:
		return func(dst, a, b uint64, n int) {
			d, x, y := three[T](dst, a, b, n)
			for i := range d {
				d[i] = x[i] * y[i]
			}
		}
	}
	return nil
}

func ordered[T orderedNumber](op ReduceOp) kernel {
	switch op {
	case ReduceMin:
		return func(dst, a, b uint64, n int) {
			d, x, y := three[T](dst, a, b, n)
			for i := range d {
				d[i] = min(x[i], y[i])
			}
		}
	case ReduceMax:
		return func(dst, a, b uint64, n int) {
			d, x, y := three[T](dst, a, b, n)
			for i := range d {
				d[i] = max(x[i], y[i])
			}
		}
	}
	return arithmetic[T](op)
}

// bitKernel works on words, whatever the integers: bits have no carry.
func bitKernel(op ReduceOp, size int) kernel {
	words, bytes := bitwise[uint64](op), bitwise[uint8](op)
	return func(dst, a, b uint64, n int) {
		n *= size
		whole := n / 8
		words(dst, a, b, whole)
		if done := uint64(whole) * 8; n > whole*8 {
			bytes(dst+done, a+done, b+done, n-whole*8)
		}
	}
}

func bitwise[T uint8 | uint64](op ReduceOp) kernel {
	switch op {
	case ReduceAnd:
		return func(dst, a, b uint64, n int) {
			d, x, y := three[T](dst, a, b, n)
			for i := range d {
				d[i] = x[i] & y[i]
			}
		}
	case ReduceOr:
		return func(dst, a, b uint64, n int) {
			d, x, y := three[T](dst, a, b, n)
			for i := range d {
				d[i] = x[i] | y[i]
			}
		}
	}
	return func(dst, a, b uint64, n int) {
		d, x, y := three[T](dst, a, b, n)
		for i := range d {
			d[i] = x[i] ^ y[i]
		}
	}
}

// halves computes in float32: the sum and the product of two halves are exact there, or rounded where it does not matter, so one
// rounding is all there is.
func halves(op ReduceOp, from func(uint16) float32, to func(float32) uint16) kernel {
	var f func(x, y float32) float32
	switch op {
	case ReduceSum:
		f = func(x, y float32) float32 { return x + y }
	case ReduceProd:
		f = func(x, y float32) float32 { return x * y }
	case ReduceMin:
		f = func(x, y float32) float32 { return min(x, y) }
	case ReduceMax:
		f = func(x, y float32) float32 { return max(x, y) }
	}
	return func(dst, a, b uint64, n int) {
		d, x, y := three[uint16](dst, a, b, n)
		for i := range d {
			d[i] = to(f(from(x[i]), from(y[i])))
		}
	}
}

func fromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBFloat16 rounds to the nearest, and from the middle to the even one. A NaN stays one.
func toBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// fromFloat16 moves the exponent by a product: 2^112 is between the biases of 127 and 15, and subnormal numbers come out right.
func fromFloat16(h uint16) float32 {
	sign, rest := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	f := math.Float32frombits(rest<<13) * 0x1p112
	if rest >= 0x7c00 { // infinite, or no number
		f = math.Float32frombits(rest<<13 | 0x7f800000)
	}
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// toFloat16 rounds to the nearest, and from the middle to the even one. A NaN stays one.
func toFloat16(f float32) uint16 {
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
