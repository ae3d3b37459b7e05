// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
)

// BenchmarkKernel tells how fast elements of two sources that are in the cache are combined: bytes of results in a second.
func BenchmarkKernel(b *testing.B) {
	at := memory.AddrOf(make([]byte, 4*reduceBlock))
	for _, op := range []ReduceOp{ReduceSum, ReduceMax, ReduceXor} {
		for typ := fabric.Int8; typ <= BFloat16; typ++ {
			f, size, err := kernelOf(op, typ)
			if err != nil {
				continue
			}
			b.Run(fmt.Sprintf("%v/%s", op, typeText(typ)), func(b *testing.B) {
				b.SetBytes(reduceBlock)
				srcs := make([]uint64, 2)
				for b.Loop() {
					srcs[0], srcs[1] = at+2*reduceBlock, at+3*reduceBlock
					f(at, at+reduceBlock, srcs, int(reduceBlock/size))
				}
			})
		}
	}
}
