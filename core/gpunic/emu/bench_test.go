// SPDX-License-Identifier: MIT

package emu_test

import (
	"fmt"
	"testing"
	"time"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
)

// BenchmarkWrite is a write and its completion, one at a time, beside a plain copy of the same
// bytes. It says what tests cost and nothing of NICs.
func BenchmarkWrite(b *testing.B) {
	for _, wire := range wires {
		for _, n := range []int{8, 4096, 65536} {
			b.Run(fmt.Sprintf("%s/%d", wire, n), func(b *testing.B) {
				from, to := pair(b, setup{opts: emu.Options{Wire: wire}, bytes: 128 << 10})
				b.SetBytes(int64(n))
				for b.Loop() {
					at, err := from.post.Write(from.Span(0, n), to.Span(0, 0), mlx5.FlagSignalled)
					if err == nil {
						err = from.post.Until(at+1, patience)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				took := b.Elapsed()
				start := time.Now()
				for range b.N {
					copy(to.Mem[:n], from.Mem[:n])
				}
				b.ReportMetric(float64(took)/float64(max(time.Since(start), 1)), "x-copy")
			})
		}
	}
}
