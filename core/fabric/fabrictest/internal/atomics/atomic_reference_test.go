// SPDX-License-Identifier: MIT

package atomics

import (
	"testing"

	"mori/core/fabric"
)

// The reference is held against results that were worked out by hand.
func TestReference(t *testing.T) {
	for _, c := range []struct {
		op         fabric.AtomicOp
		t          fabric.DataType
		x, v, c, r complex128
	}{
		{fabric.AtomicMin, fabric.Int8, -3, 2, 0, -3},
		{fabric.AtomicMin, fabric.Uint8, 253, 2, 0, 2},
		{fabric.AtomicMax, fabric.Int64, -3, 2, 0, 2},
		{fabric.AtomicMax, fabric.Float32, 1, 1.5, 0, 1.5},
		{fabric.AtomicSum, fabric.Uint16, 65535, 3, 0, 2},
		{fabric.AtomicSum, fabric.Complex64, 1 + 2i, 3 + 4i, 0, 4 + 6i},
		{fabric.AtomicProd, fabric.Complex128, 1 + 2i, 3 + 4i, 0, -5 + 10i},
		{fabric.AtomicProd, fabric.Int32, -3, 5, 0, -15},
		{fabric.AtomicLOr, fabric.Complex64, 0, 1i, 0, 1},
		{fabric.AtomicLAnd, fabric.Float64, 2, 0, 0, 0},
		{fabric.AtomicLXor, fabric.Uint64, 7, 9, 0, 0},
		{fabric.AtomicBOr, fabric.Uint32, 5, 2, 0, 7},
		{fabric.AtomicBAnd, fabric.Uint32, 5, 4, 0, 4},
		{fabric.AtomicBXor, fabric.Uint32, 5, 4, 0, 1},
		{fabric.AtomicRead, fabric.Int16, 5, 4, 0, 5},
		{fabric.AtomicWrite, fabric.Int16, 5, 4, 0, 4},
		{fabric.AtomicCSwap, fabric.Int16, 5, 4, 5, 4},
		{fabric.AtomicCSwap, fabric.Float32, 5, 4, 6, 5},
		{fabric.AtomicCSwapNE, fabric.Int16, 5, 4, 5, 5},
		{fabric.AtomicCSwapLE, fabric.Int16, 5, 4, -6, 4},
		{fabric.AtomicCSwapLE, fabric.Int16, 5, 4, 5, 4},
		{fabric.AtomicCSwapLT, fabric.Int16, 5, 4, 5, 5},
		{fabric.AtomicCSwapGE, fabric.Uint8, 5, 4, 5, 4},
		{fabric.AtomicCSwapGT, fabric.Uint8, 5, 4, 250, 4},
		{fabric.AtomicCSwapGT, fabric.Int8, 5, 4, -6, 5},
		{fabric.AtomicMSwap, fabric.Uint8, 0b1100, 0b1010, 0b0110, 0b1010},
	} {
		got := reference(c.op, c.t, number(c.t, c.x), number(c.t, c.v), number(c.t, c.c))
		if !same(c.t, got, number(c.t, c.r)) {
			t.Errorf("%v of %v: %v with %v, compared to %v, is %x, want %v", c.op, c.t, c.x, c.v, c.c, got, c.r)
		}
	}
}
