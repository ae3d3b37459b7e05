// SPDX-License-Identifier: MIT

package atomics

import (
	"encoding/binary"
	"math"

	"mori/core/fabric"
)

// reference is what an element x of type t is after an atomic op with operand v and comparison c:
// slow and obvious. Numbers that are not integers must be small integers, of which all results are
// exact.
func reference(op fabric.AtomicOp, t fabric.DataType, x, v, c []byte) []byte {
	switch {
	case op == fabric.AtomicRead:
		return x
	case op == fabric.AtomicWrite:
		return v
	case op == fabric.AtomicBOr || op == fabric.AtomicBAnd || op == fabric.AtomicBXor || op == fabric.AtomicMSwap:
		return bitwise(op, x, v, c)
	case op >= fabric.AtomicCSwap:
		if compares(op, t, c, x) {
			return v
		}
		return x
	case op == fabric.AtomicMin || op == fabric.AtomicMax:
		if less := compares(fabric.AtomicCSwapLT, t, v, x); less == (op == fabric.AtomicMin) {
			return v
		}
		return x
	case op == fabric.AtomicLOr || op == fabric.AtomicLAnd || op == fabric.AtomicLXor:
		return number(t, logical(op, value(t, x) != 0, value(t, v) != 0))
	case t.Integer():
		return wrapped(op, x, v)
	case op == fabric.AtomicSum:
		return number(t, value(t, x)+value(t, v))
	}
	return number(t, value(t, x)*value(t, v))
}

func bitwise(op fabric.AtomicOp, x, v, c []byte) []byte {
	out := make([]byte, len(x))
	for i := range out {
		switch op {
		case fabric.AtomicBOr:
			out[i] = x[i] | v[i]
		case fabric.AtomicBAnd:
			out[i] = x[i] & v[i]
		case fabric.AtomicBXor:
			out[i] = x[i] ^ v[i]
		default:
			out[i] = v[i]&c[i] | x[i]&^c[i]
		}
	}
	return out
}

// compares reports whether the comparison of op holds for c and x, in this order.
func compares(op fabric.AtomicOp, t fabric.DataType, c, x []byte) bool {
	less, equal := lessThan(t, c, x), value(t, c) == value(t, x)
	if t.Integer() {
		equal = string(c) == string(x)
	}
	switch op {
	case fabric.AtomicCSwap:
		return equal
	case fabric.AtomicCSwapNE:
		return !equal
	case fabric.AtomicCSwapLE:
		return less || equal
	case fabric.AtomicCSwapLT:
		return less
	case fabric.AtomicCSwapGE:
		return !less
	}
	return !less && !equal
}

func lessThan(t fabric.DataType, c, x []byte) bool {
	switch {
	case !t.Integer():
		return real(value(t, c)) < real(value(t, x))
	case t == fabric.Uint8 || t == fabric.Uint16 || t == fabric.Uint32 || t == fabric.Uint64:
		return unsigned(c) < unsigned(x)
	}
	return signed(c) < signed(x)
}

func logical(op fabric.AtomicOp, x, v bool) complex128 {
	holds := x != v
	switch op {
	case fabric.AtomicLOr:
		holds = x || v
	case fabric.AtomicLAnd:
		holds = x && v
	}
	if holds {
		return 1
	}
	return 0
}

// wrapped is the sum or product of integers, which are the same bits with and without a sign.
func wrapped(op fabric.AtomicOp, x, v []byte) []byte {
	sum := unsigned(x) + unsigned(v)
	if op == fabric.AtomicProd {
		sum = unsigned(x) * unsigned(v)
	}
	return binary.LittleEndian.AppendUint64(nil, sum)[:len(x)]
}

func unsigned(b []byte) uint64 {
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:])
}

func signed(b []byte) int64 {
	shift := 64 - 8*len(b)
	return int64(unsigned(b)<<shift) >> shift
}

// value is an element as a number. Large integers lose their last bits, but never become zero.
func value(t fabric.DataType, b []byte) complex128 {
	switch t {
	case fabric.Float32:
		return complex(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 0)
	case fabric.Float64:
		return complex(math.Float64frombits(binary.LittleEndian.Uint64(b)), 0)
	case fabric.Complex64:
		return complex(real(value(fabric.Float32, b)), real(value(fabric.Float32, b[4:])))
	case fabric.Complex128:
		return complex(real(value(fabric.Float64, b)), real(value(fabric.Float64, b[8:])))
	}
	return complex(float64(unsigned(b)), 0)
}

// number is the inverse of value, for small numbers.
func number(t fabric.DataType, v complex128) []byte {
	switch t {
	case fabric.Float32:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(real(v))))
	case fabric.Float64:
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(real(v)))
	case fabric.Complex64:
		return append(number(fabric.Float32, v), number(fabric.Float32, complex(imag(v), 0))...)
	case fabric.Complex128:
		return append(number(fabric.Float64, v), number(fabric.Float64, complex(imag(v), 0))...)
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(int64(real(v))))[:t.Size()]
}

// same reports whether two elements are the same number: zero has a sign that does not matter.
func same(t fabric.DataType, a, b []byte) bool {
	if t.Integer() {
		return string(a) == string(b)
	}
	return value(t, a) == value(t, b)
}
