// SPDX-License-Identifier: MIT

package hostmath

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// 4096 tokens of DeepSeek-V3's hidden size: 56 MiB in bfloat16, more than caches hold.
const (
	benchRows   = 4096
	benchHidden = 7168
	benchTotal  = benchRows * benchHidden * 2
	benchBlocks = 56
)

// beside times f, which reads and writes moved bytes, in turns with a memcpy of benchTotal bytes,
// and reports the ratio of their bandwidths, best against best, because other work often runs on
// this machine.
func beside(b *testing.B, moved int, f func()) {
	from, to := guarded(b, benchTotal, 0), guarded(b, benchTotal, 0)
	memcpy(addr(to), addr(from), benchTotal)
	f()
	best, bestCopy := time.Hour, time.Hour
	b.SetBytes(int64(moved))
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
		b.StopTimer()
		start = time.Now()
		memcpy(addr(to), addr(from), benchTotal)
		bestCopy = min(bestCopy, time.Since(start))
		b.StartTimer()
	}
	rate, copyRate := float64(moved)/best.Seconds(), 2*float64(benchTotal)/bestCopy.Seconds()
	b.ReportMetric(rate/1e9, "best-GB/s")
	b.ReportMetric(copyRate/1e9, "memcpy-GB/s")
	b.ReportMetric(rate/copyRate, "of-memcpy")
}

// withEachVariant runs bench with each variant that this machine has.
func withEachVariant(b *testing.B, bench func(b *testing.B)) {
	before := Variant()
	defer useVariant(before)
	for _, name := range allVariants {
		if useVariant(name) {
			b.Run(name, bench)
		}
	}
}

func permutation(n int) []int32 {
	idx := make([]int32, n)
	for i, p := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		idx[i] = int32(p)
	}
	return idx
}

func BenchmarkGatherRows(b *testing.B) {
	src, dst := guarded(b, benchTotal, 0), guarded(b, benchTotal, 0)
	for _, row := range []int{32, 512, 2 * benchHidden} {
		idx := permutation(benchTotal / row)
		b.Run(fmt.Sprintf("row=%d", row), func(b *testing.B) {
			withEachVariant(b, func(b *testing.B) {
				beside(b, 2*benchTotal, func() { GatherRows(addr(dst), addr(src), uint64(row), idx) })
			})
		})
	}
}

func BenchmarkScatterRows(b *testing.B) {
	src, dst := guarded(b, benchTotal, 0), guarded(b, benchTotal, 0)
	idx := permutation(benchRows)
	beside(b, 2*benchTotal, func() { ScatterRows(addr(dst), addr(src), 2*benchHidden, idx) })
}

func BenchmarkCopyRows(b *testing.B) {
	src, dst := guarded(b, benchTotal, 0), guarded(b, benchTotal, 0)
	const row = 2*benchHidden - 64
	beside(b, 2*benchRows*row, func() { CopyRows(addr(dst), row+64, addr(src), row+64, row, benchRows) })
}

// sources are m addresses of rows for each of n rows, all apart, of numbers that are no special
// ones.
func sources(b *testing.B, n, m, h int, typ DType) []uint64 {
	size := h * int(typ.Size())
	all := guarded(b, n*m*size, 0)
	one := guarded(b, size, 0)
	rng := rand.New(rand.NewPCG(1, uint64(typ)))
	for i := range h {
		put(one, typ, i, float32(rng.NormFloat64()), true)
	}
	addrs := make([]uint64, n*m)
	for i, p := range permutation(n * m) {
		copy(all[i*size:], one)
		addrs[i] = addr(all[int(p)*size:])
	}
	return addrs
}

func BenchmarkSumRows(b *testing.B) {
	const n = benchRows / 4
	for _, c := range []struct {
		src, dst DType
		m        int
		weighted bool
	}{
		{BFloat16, BFloat16, 1, false}, {BFloat16, BFloat16, 4, false}, {BFloat16, BFloat16, 4, true}, {BFloat16, BFloat16, 8, false},
		{Float32, Float32, 4, false}, {Float8E4M3FN, BFloat16, 4, false}, {Float8E4M3FNUZ, BFloat16, 4, false}, {Float8E4M3FN, Float8E4M3FN, 4, false},
	} {
		b.Run(fmt.Sprintf("%s-%s/sources=%d/weighted=%t", c.src, c.dst, c.m, c.weighted), func(b *testing.B) {
			srcs := sources(b, n, c.m, benchHidden, c.src)
			dst := guarded(b, n*benchHidden*int(c.dst.Size()), 0)
			var weights []float32
			if c.weighted {
				weights = make([]float32, len(srcs))
			}
			withEachVariant(b, func(b *testing.B) {
				beside(b, n*benchHidden*(c.m*int(c.src.Size())+int(c.dst.Size())), func() {
					if err := SumRows(addr(dst), c.dst, n, benchHidden, srcs, c.src, weights); err != nil {
						b.Fatal(err)
					}
				})
			})
		})
	}
}

func BenchmarkSumQuantRows(b *testing.B) {
	const n, m = benchRows / 4, 4
	srcs := sources(b, n, m, benchHidden, Float8E4M3FN)
	scales := sources(b, n, m, benchBlocks, Float32)
	dst := guarded(b, n*benchHidden*2, 0)
	withEachVariant(b, func(b *testing.B) {
		beside(b, n*benchHidden*(m+2), func() {
			if err := SumQuantRows(addr(dst), BFloat16, n, benchHidden, benchBlocks, srcs, scales, nil); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkConvert(b *testing.B) {
	const n = benchRows * benchHidden / 2
	for _, c := range []struct{ src, dst DType }{
		{Float32, BFloat16}, {BFloat16, Float32}, {BFloat16, Float8E4M3FN}, {Float8E4M3FN, BFloat16}, {BFloat16, Float8E4M3FNUZ},
	} {
		b.Run(fmt.Sprintf("%s-%s", c.src, c.dst), func(b *testing.B) {
			src := addr(guarded(b, n*int(c.src.Size()), 0))
			dst := guarded(b, n*int(c.dst.Size()), 0)
			withEachVariant(b, func(b *testing.B) {
				beside(b, n*int(c.src.Size()+c.dst.Size()), func() {
					if err := Convert(addr(dst), c.dst, src, c.src, n, true); err != nil {
						b.Fatal(err)
					}
				})
			})
		})
	}
}

func BenchmarkQuantBlocks(b *testing.B) {
	const n = benchRows / 2
	src := guarded(b, n*benchHidden*2, 0)
	fill(rand.New(rand.NewPCG(1, 1)), src, BFloat16, n*benchHidden)
	dst, scales := guarded(b, n*benchHidden, 0), guarded(b, n*benchBlocks*4, 0)
	withEachVariant(b, func(b *testing.B) {
		beside(b, 3*n*benchHidden, func() {
			if err := QuantBlocks(addr(dst), addr(scales), addr(src), BFloat16, n, benchHidden, benchBlocks); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkCountExperts(b *testing.B) {
	const n, topk = benchRows, 8
	ids := guarded(b, 4*n*topk, 0)
	for i := range n * topk {
		ids[4*i] = byte(rand.IntN(64)) // the low byte, on the machines that there are
	}
	counts := make([]int32, 8)
	b.SetBytes(4 * n * topk)
	for range b.N {
		if err := CountExperts(counts, addr(ids), n, topk, 8); err != nil {
			b.Fatal(err)
		}
	}
}
