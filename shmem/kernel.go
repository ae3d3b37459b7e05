// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/native/hostmath"
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

// A kernel combines n elements at each of srcs, of which there are at least two, in their order into dst. dst may be one of srcs, and between
// has room for n elements.
type kernel func(dst, between uint64, srcs []uint64, n int)

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
	switch {
	case op == ReduceSum && typ == fabric.Float32:
		return sumRows(hostmath.Float32)
	case op == ReduceSum && typ == BFloat16:
		return sumRows(hostmath.BFloat16)
	case op > ReduceXor:
		return numberKernel(op, typ)
	case typ.Integer():
		return bitKernel(op, typ.Size())
	}
	return nil
}

// sumRows adds with the CPU's vectors.
func sumRows(typ hostmath.DType) kernel {
	return func(dst, _ uint64, srcs []uint64, n int) {
		if err := hostmath.SumRows(dst, typ, 1, n, srcs, typ, nil); err != nil {
			panic(err) // it has no other reason than arguments that do not fit one another
		}
	}
}

// pairs makes a kernel of what combines x and y into d, which may be x or y.
func pairs[T any](f func(d, x, y []T)) kernel {
	return func(dst, between uint64, srcs []uint64, n int) {
		// All but the last step go to between, since dst may still be needed as a source.
		sum, last := srcs[0], len(srcs)-2
		for i, src := range srcs[1:] {
			to := between
			if i == last {
				to = dst
			}
			f(memory.Slice[T](to, n), memory.Slice[T](sum, n), memory.Slice[T](src, n))
			sum = to
		}
	}
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
	case Float16, BFloat16:
		return halves(op, typ)
	}
	return nil
}

type orderedNumber interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

type anyNumber interface {
	orderedNumber | ~complex64 | ~complex128
}

func arithmetic[T anyNumber](op ReduceOp) kernel {
	switch op {
	case ReduceSum:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)] // the compiler leaves the bounds checks out
			for i := range d {
				d[i] = x[i] + y[i]
			}
		})
	case ReduceProd:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = x[i] * y[i]
			}
		})
	}
	return nil
}

func ordered[T orderedNumber](op ReduceOp) kernel {
	switch op {
	case ReduceMin:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = min(x[i], y[i])
			}
		})
	case ReduceMax:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = max(x[i], y[i])
			}
		})
	}
	return arithmetic[T](op)
}

// bitKernel works on words, whatever the integers: bits have no carry.
func bitKernel(op ReduceOp, size int) kernel {
	words, bytes := bitwise[uint64](op), bitwise[uint8](op)
	return func(dst, between uint64, srcs []uint64, n int) {
		n *= size
		whole := n &^ 7
		words(dst, between, srcs, whole/8)
		if whole < n {
			for i := range srcs {
				srcs[i] += uint64(whole)
			}
			bytes(dst+uint64(whole), between, srcs, n-whole)
		}
	}
}

func bitwise[T uint8 | uint64](op ReduceOp) kernel {
	switch op {
	case ReduceAnd:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = x[i] & y[i]
			}
		})
	case ReduceOr:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = x[i] | y[i]
			}
		})
	}
	return pairs(func(d, x, y []T) {
		x, y = x[:len(d)], y[:len(d)]
		for i := range d {
			d[i] = x[i] ^ y[i]
		}
	})
}
