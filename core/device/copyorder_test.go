// SPDX-License-Identifier: MIT

package device

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Copies of which each reads what the one before writes, none of which is waited for but the last,
// by the kernel and the copy engines in turn.
func TestCopierInOrder(t *testing.T) {
	t.Setenv("FAKE_GPU_SEED", "7")
	each(t, 1, func(t *testing.T, b *bench) {
		r := rand.New(rand.NewPCG(9, 10))
		d := b.devices[0]
		const n, steps = 1 << 17, 8
		pools := []*pool{newPool(t, d, r, n)}
		for range steps {
			pools = append(pools, newPool(t, d, r, n))
		}
		k := copier(t, d, CopierOptions{Depth: steps, Blocks: 1, EngineFrom: n, InOrder: true})
		for range 3 {
			var under []Copy
			for i := range steps {
				to, from := pools[i+1].mem.Addr(), pools[i].mem.Addr()
				list := []CopySegment{{to, from, n}}
				if i%2 == 0 {
					list = []CopySegment{{to + n/2, from + n/2, n / 2}, {to, from, n / 2}}
				}
				under = append(under, must[Copy](t)(k.Start(list)))
				pools[i+1].model = bytes.Clone(pools[i].model)
			}
			ok(t, under[steps-1].Wait(bounded(t)))
			for _, p := range pools {
				p.check(t)
			}
			for _, c := range under[:steps-1] {
				ok(t, c.Wait(bounded(t)))
			}
			p := newPool(t, d, r, n)
			pools[0] = p
		}
	})
}
