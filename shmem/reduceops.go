// SPDX-License-Identifier: MIT

package shmem

import "mori/shmem/internal/reduceop"

// A ReduceOp is how Reduce combines two elements.
type ReduceOp = reduceop.Op

// The ops. Bitwise ops are of integers only; complex numbers have no minimum and no maximum.
const (
	ReduceAnd  = reduceop.And
	ReduceOr   = reduceop.Or
	ReduceXor  = reduceop.Xor
	ReduceMin  = reduceop.Min
	ReduceMax  = reduceop.Max
	ReduceSum  = reduceop.Sum
	ReduceProd = reduceop.Prod
)

// Types for reductions only: two-byte floats, which have no atomics.
const (
	Float16  = reduceop.Float16  // IEEE 754 binary16
	BFloat16 = reduceop.BFloat16 // the upper half of a Float32
)
