// SPDX-License-Identifier: MIT

package atomics

import (
	"encoding/binary"
	"math"

	"mori/core/fabric"
)

type integer interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64
}

type float interface{ float32 | float64 }

type complexNumber interface{ complex64 | complex128 }

// combine returns the result of op for the current value x, the operand v and the comparand c. All
// are elements of type t, of up to 8 bytes, in the low bits. The bits of the result above the
// element are undefined.
func combine(op fabric.AtomicOp, t fabric.DataType, x, v, c uint64) uint64 {
	switch t {
	case fabric.Int8:
		return uint64(uint8(ofIntegers(op, int8(x), int8(v), int8(c))))
	case fabric.Uint8:
		return uint64(ofIntegers(op, uint8(x), uint8(v), uint8(c)))
	case fabric.Int16:
		return uint64(uint16(ofIntegers(op, int16(x), int16(v), int16(c))))
	case fabric.Uint16:
		return uint64(ofIntegers(op, uint16(x), uint16(v), uint16(c)))
	case fabric.Int32:
		return uint64(uint32(ofIntegers(op, int32(x), int32(v), int32(c))))
	case fabric.Uint32:
		return uint64(ofIntegers(op, uint32(x), uint32(v), uint32(c)))
	case fabric.Int64:
		return uint64(ofIntegers(op, int64(x), int64(v), int64(c)))
	case fabric.Uint64:
		return ofIntegers(op, x, v, c)
	case fabric.Float32:
		return uint64(math.Float32bits(ordered(op, float32of(x), float32of(v), float32of(c))))
	case fabric.Float64:
		return math.Float64bits(ordered(op, math.Float64frombits(x), math.Float64frombits(v), math.Float64frombits(c)))
	case fabric.Complex64:
		return complex64bits(common(op, complex64of(x), complex64of(v), complex64of(c)))
	}
	return x
}

// ofIntegers is combine for integers: ordered, and bitwise operations.
func ofIntegers[T integer](op fabric.AtomicOp, x, v, c T) T {
	switch op {
	case fabric.AtomicBOr:
		return x | v
	case fabric.AtomicBAnd:
		return x & v
	case fabric.AtomicBXor:
		return x ^ v
	case fabric.AtomicMSwap:
		return v&c | x&^c
	}
	return ordered(op, x, v, c)
}

// ordered is combine for types with an order: common, and the operations that need an order.
func ordered[T integer | float](op fabric.AtomicOp, x, v, c T) T {
	var take bool
	switch op {
	case fabric.AtomicMin:
		take = v < x
	case fabric.AtomicMax:
		take = v > x
	case fabric.AtomicCSwapLE:
		take = c <= x
	case fabric.AtomicCSwapLT:
		take = c < x
	case fabric.AtomicCSwapGE:
		take = c >= x
	case fabric.AtomicCSwapGT:
		take = c > x
	default:
		return common(op, x, v, c)
	}
	if take {
		return v
	}
	return x
}

// common is combine for the operations that all types have.
func common[T integer | float | complexNumber](op fabric.AtomicOp, x, v, c T) T {
	switch op {
	case fabric.AtomicSum:
		return x + v
	case fabric.AtomicProd:
		return x * v
	case fabric.AtomicLOr:
		return truth[T](x != 0 || v != 0)
	case fabric.AtomicLAnd:
		return truth[T](x != 0 && v != 0)
	case fabric.AtomicLXor:
		return truth[T]((x != 0) != (v != 0))
	case fabric.AtomicWrite:
		return v
	case fabric.AtomicCSwap:
		if c == x {
			return v
		}
	case fabric.AtomicCSwapNE:
		if c != x {
			return v
		}
	}
	return x
}

func truth[T integer | float | complexNumber](b bool) T {
	if b {
		return 1
	}
	return 0
}

func float32of(x uint64) float32 { return math.Float32frombits(uint32(x)) }

// A complex64 in a word has its real part in the low half. That is its layout in memory on
// little-endian hosts, and mori supports no others.
func complex64of(x uint64) complex64 { return complex(float32of(x), float32of(x>>32)) }

func complex64bits(z complex64) uint64 {
	return uint64(math.Float32bits(real(z))) | uint64(math.Float32bits(imag(z)))<<32
}

func load128(b []byte) complex128 {
	return complex(math.Float64frombits(binary.NativeEndian.Uint64(b)), math.Float64frombits(binary.NativeEndian.Uint64(b[8:])))
}

func store128(b []byte, z complex128) {
	binary.NativeEndian.PutUint64(b, math.Float64bits(real(z)))
	binary.NativeEndian.PutUint64(b[8:], math.Float64bits(imag(z)))
}
