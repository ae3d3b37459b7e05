// SPDX-License-Identifier: MIT

package shmem

import (
	"mori/shmem/internal/access"
	"mori/shmem/internal/gpu"
	"mori/shmem/internal/reduceop"
	"mori/shmem/internal/rma"
	"mori/shmem/internal/team"
	"mori/shmem/internal/wait"
)

// A Team is a subset of the PEs, renumbered from 0.
type Team = team.Team

// A ReduceOp is the operation of Reduce.
type ReduceOp = reduceop.Op

// The ops. Bitwise ops need integers; complex numbers have no minimum or maximum.
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

// A Module is code on a GPU, such as a user's or Triton's, that knows a World.
type Module = gpu.Module

// A SignalOp is how a signal, a word of 8 bytes of symmetric memory, is updated.
type SignalOp = rma.SignalOp

// The ways to update a signal.
const (
	SignalSet = rma.SignalSet
	SignalAdd = rma.SignalAdd
)

// An AtomicOp is an atomic operation on the word x with the value v.
type AtomicOp = access.AtomicOp

// The ops of Atomic, then those of FetchAtomic, which return x.
const (
	AtomicInc       = access.AtomicInc       // x + 1
	AtomicSet       = access.AtomicSet       // v
	AtomicAdd       = access.AtomicAdd       // x + v
	AtomicAnd       = access.AtomicAnd       // x & v
	AtomicOr        = access.AtomicOr        // x | v
	AtomicXor       = access.AtomicXor       // x ^ v
	AtomicSignal    = access.AtomicSignal    // v, 8 bytes
	AtomicSignalSet = access.AtomicSignalSet // v, 8 bytes
	AtomicSignalAdd = access.AtomicSignalAdd // x + v, 8 bytes

	AtomicFetch       = access.AtomicFetch       // x
	AtomicFetchInc    = access.AtomicFetchInc    // x + 1
	AtomicFetchAdd    = access.AtomicFetchAdd    // x + v
	AtomicFetchAnd    = access.AtomicFetchAnd    // x & v
	AtomicFetchOr     = access.AtomicFetchOr     // x | v
	AtomicFetchXor    = access.AtomicFetchXor    // x ^ v
	AtomicSwap        = access.AtomicSwap        // v
	AtomicCompareSwap = access.AtomicCompareSwap // v if x equals the other value, else x
)

// A Type is the element type of a call.
type Type = wait.Type

// A Cmp compares an element of memory, on the left, with a value.
type Cmp = wait.Cmp

// The comparisons, in OpenSHMEM's order.
const (
	CmpEQ = wait.CmpEQ
	CmpNE = wait.CmpNE
	CmpGT = wait.CmpGT
	CmpGE = wait.CmpGE
	CmpLT = wait.CmpLT
	CmpLE = wait.CmpLE
)
