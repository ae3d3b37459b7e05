// SPDX-License-Identifier: MIT

package reduceop

import (
	"fmt"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
)

const benchBlock = 16 << 10

// BenchmarkFunc reports how fast elements of two sources that are in the cache are combined: bytes
// of results in a second.
func BenchmarkFunc(b *testing.B) {
	at := memory.AddrOf(make([]byte, 4*benchBlock))
	for _, op := range []Op{Sum, Max, Xor} {
		for typ := fabric.Int8; typ <= BFloat16; typ++ {
			f, size, ok := Of(op, typ)
			if !ok {
				continue
			}
			b.Run(fmt.Sprintf("%v/%s", op, TypeName(typ)), func(b *testing.B) {
				b.SetBytes(benchBlock)
				srcs := make([]uint64, 2)
				for b.Loop() {
					srcs[0], srcs[1] = at+2*benchBlock, at+3*benchBlock
					f(at, at+benchBlock, srcs, int(benchBlock/size))
				}
			})
		}
	}
}
