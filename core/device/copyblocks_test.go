// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// blocksOf lists blocks of one size from one pool to the other, in any order, and makes their
// copies in the model.
func blocksOf(r *rand.Rand, dst, src *pool, n, size int) CopyBlocks {
	b := CopyBlocks{Dst: dst.mem.Addr() + 16, Src: src.mem.Addr() + 48, Bytes: uint64(size)}
	places := r.Perm((len(dst.model) - 64) / max(size, 1))
	for i := range n {
		to, from := places[i]*size, r.IntN(len(src.model)-size-48)
		b.DstOffsets, b.SrcOffsets = append(b.DstOffsets, uint64(to)), append(b.SrcOffsets, uint64(from))
		copy(dst.model[16+to:][:size], src.model[48+from:])
	}
	return b
}

// TestCopierBlocks: by the kernel, with as many segments before and after from the same Copier, and
// by the copy engines.
func TestCopierBlocks(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		for _, from := range []uint64{0, 1, 1 << 40} {
			t.Run(fmt.Sprintf("copy engines from %d bytes", from), func(t *testing.T) {
				r := rand.New(rand.NewPCG(5, 6))
				dst, src := newPool(t, d, r, 1<<20), newPool(t, d, r, 1<<20)
				k := copier(t, d, CopierOptions{EngineFrom: from})
				for _, c := range []struct{ n, size int }{{0, 64}, {1, 1000}, {3, 0}, {2, 64}, {300, 1}, {600, 64}, {40, 4096}, {3, 100_000}} {
					ok(t, must[Copy](t)(k.StartBlocks(blocksOf(r, dst, src, c.n, c.size))).Wait(bounded(t)))
					dst.check(t)
					ok(t, must[Copy](t)(k.Start(scatter(r, dst, src, make([]int, c.n), 0, 1))).Wait(bounded(t)))
				}
				dst.check(t)
				unequal := blocksOf(r, dst, src, 2, 8)
				unequal.SrcOffsets = unequal.SrcOffsets[:1]
				if _, err := k.StartBlocks(unequal); !errors.Is(err, ErrInvalid) {
					t.Errorf("two blocks from one place: %v", err)
				}
			})
		}
	})
}

// TestCopierBlocksDoNotAllocate once the Copier has seen as many.
func TestCopierBlocksDoNotAllocate(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		if b.sys == here {
			t.Skip("drivers of GPUs have threads of their own")
		}
		d := b.devices[0]
		r := rand.New(rand.NewPCG(7, 8))
		dst, src := newPool(t, d, r, 1<<16), newPool(t, d, r, 1<<16)
		k, list := copier(t, d, CopierOptions{}), blocksOf(r, dst, src, 500, 64)
		round := func() {
			c, err := k.StartBlocks(list)
			for done := false; err == nil && !done; {
				done, err = c.Done()
			}
			ok(t, err)
		}
		for range shortStreams {
			round()
		}
		if n := testing.AllocsPerRun(20, round); n >= 1 {
			t.Errorf("%v allocations", n)
		}
	})
}
