// SPDX-License-Identifier: MIT

// Package reduceop combines arrays of numbers element by element, for reductions. It does not check
// addresses and counts.
package reduceop

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/native/hostmath"
)

// An Op is a reduction operation.
type Op int

// The ops. Bitwise ops need integers; complex numbers have no minimum or maximum.
const (
	And Op = 1 + iota
	Or
	Xor
	Min
	Max
	Sum
	Prod

	End // one past the last one
)

var opNames = [...]string{And: "and", Or: "or", Xor: "xor", Min: "min", Max: "max", Sum: "sum", Prod: "prod"}

// String returns OpenSHMEM's name of the op.
func (op Op) String() string {
	if op < And || op >= End {
		return fmt.Sprintf("op %d", int(op))
	}
	return opNames[op]
}

// Types for reductions only: two-byte floats, which have no atomics.
const (
	Float16  fabric.DataType = 128 + iota // IEEE 754 binary16
	BFloat16                              // the upper half of a Float32
)

// A Func combines n elements at each address in srcs, at least two, in order into dst, which may be
// one of srcs. between is scratch memory for n elements.
type Func func(dst, between uint64, srcs []uint64, n int)

// funcs has the Func of each op and type. They are created once, because creating one allocates.
var funcs = func() map[Op]map[fabric.DataType]Func {
	all := map[Op]map[fabric.DataType]Func{}
	for op := And; op < End; op++ {
		all[op] = map[fabric.DataType]Func{}
		for typ := fabric.Int8; typ <= BFloat16; typ++ {
			if f := newFunc(op, typ); f != nil {
				all[op][typ] = f
			}
		}
	}
	return all
}()

// Of returns the Func of an op and the element size of the type in bytes. It returns false if the
// op does not apply to the type.
func Of(op Op, typ fabric.DataType) (f Func, size uint64, ok bool) {
	if f = funcs[op][typ]; f == nil {
		return nil, 1, false
	}
	return f, SizeOf(typ), true
}

// SizeOf returns the size in bytes of an element.
func SizeOf(typ fabric.DataType) uint64 {
	if typ == Float16 || typ == BFloat16 {
		return 2
	}
	return uint64(typ.Size())
}

// newFunc returns nil if the op does not apply to the type.
func newFunc(op Op, typ fabric.DataType) Func {
	switch {
	case op == Sum && typ == fabric.Float32:
		return sumRows(hostmath.Float32)
	case op == Sum && typ == BFloat16:
		return sumRows(hostmath.BFloat16)
	case op > Xor:
		return numberFunc(op, typ)
	case typ.Integer():
		return bitFunc(op, typ.Size())
	}
	return nil
}

// sumRows adds with the CPU's vector instructions.
func sumRows(typ hostmath.DType) Func {
	return func(dst, _ uint64, srcs []uint64, n int) {
		if err := hostmath.SumRows(dst, typ, 1, n, srcs, typ, nil); err != nil {
			panic(err) // it fails only for inconsistent arguments
		}
	}
}

// pairs returns a Func from a function that combines x and y into d, which may be x or y.
func pairs[T any](f func(d, x, y []T)) Func {
	return func(dst, between uint64, srcs []uint64, n int) {
		// All steps but the last write to between, because dst may still be needed as a source.
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

// TypeName returns the name of a type, such as "float16".
func TypeName(typ fabric.DataType) string {
	switch typ {
	case Float16:
		return "float16"
	case BFloat16:
		return "bfloat16"
	}
	return typ.String()
}

func numberFunc(op Op, typ fabric.DataType) Func {
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

// Ordered lists the types that have a minimum and a maximum.
type Ordered interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

type number interface {
	Ordered | ~complex64 | ~complex128
}

func arithmetic[T number](op Op) Func {
	switch op {
	case Sum:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)] // lets the compiler drop bounds checks
			for i := range d {
				d[i] = x[i] + y[i]
			}
		})
	case Prod:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = x[i] * y[i]
			}
		})
	}
	return nil
}

func ordered[T Ordered](op Op) Func {
	switch op {
	case Min:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = min(x[i], y[i])
			}
		})
	case Max:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = max(x[i], y[i])
			}
		})
	}
	return arithmetic[T](op)
}

// bitFunc works on words regardless of the integer type, because bits do not carry.
func bitFunc(op Op, size int) Func {
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

func bitwise[T uint8 | uint64](op Op) Func {
	switch op {
	case And:
		return pairs(func(d, x, y []T) {
			x, y = x[:len(d)], y[:len(d)]
			for i := range d {
				d[i] = x[i] & y[i]
			}
		})
	case Or:
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
