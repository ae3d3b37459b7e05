// SPDX-License-Identifier: MIT

package p2p

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/native/gpu/gputest"
)

// poolBytes is the memory that blocks are chosen from, beyond what a GPU's L2 holds; an emulated
// GPU has less.
func poolBytes() uint64 {
	if gputest.Real() {
		return 1 << 30
	}
	return 32 << 20
}

// scattered makes ops of count blocks of size bytes, in random order on both sides, each op of
// other blocks while the pools last.
func scattered(tb testing.TB, local *registered, key uint64, kind fabric.OpKind, count, size uint64) (ops []fabric.Op) {
	from, to := rand.Perm(int(local.Len/size)), rand.Perm(int(local.Len/size))
	for len(from) >= int(count) && len(ops) < 8 {
		here, there := make([]uint64, count), make([]uint64, count)
		for i := range here {
			here[i], there[i] = uint64(from[i])*size, uint64(to[i])*size
		}
		blocks := new(fabric.Blocks)
		ok(tb, blocks.Set(size, here, there))
		op := fabric.Op{Kind: kind, Blocks: blocks, Seg: local.seg(0, local.Len), RSeg: fabric.RSeg{Len: local.Len, Key: key}}
		from, to = from[count:], to[count:]
		ops = append(ops, op)
	}
	return ops
}

// flow keeps depth of the ops under way until count of them have ended. It returns the time of the
// quickest call.
func flow(tb testing.TB, e *end, ops []fabric.Op, depth, count int) (submit time.Duration) {
	tb.Helper()
	submit = time.Hour
	for begun, ended := 0, 0; ended < count; {
		for begun < count && begun-ended < depth {
			at := time.Now()
			ok(tb, e.submit(ops[begun%len(ops)]))
			submit = min(submit, time.Since(at))
			begun++
		}
		_, err := e.next()
		ok(tb, err)
		ended++
	}
	return submit
}

// raw is the median time of a copy of n bytes between two addresses by the driver, on its own, from
// the call to its end.
func raw(tb testing.TB, d *device.Device, dst, src, n uint64) time.Duration {
	tb.Helper()
	s, err := d.NewStream(device.Normal)
	ok(tb, err)
	defer func() { ok(tb, s.Close()) }()
	var all []time.Duration
	for range 20 {
		begun := time.Now()
		ok(tb, s.Copy(dst, src, n))
		for {
			done, err := s.Done()
			ok(tb, err)
			if done {
				break
			}
		}
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkGPUBlocks copies lists of blocks between two GPUs in two processes, next to a peer
// memcpy of as many bytes within one process.
func BenchmarkGPUBlocks(b *testing.B) {
	gputest.Need(b, 2)
	for _, blocks := range []int{0, 8} {
		pool := poolBytes()
		a, _, key := newChildWith(b, Options{Blocks: blocks}, 1, 0, pool)
		local, beside := a.memory(b, 0, 0, pool), a.memory(b, 1, 0, 256<<20/scale())
		ok(b, local.dev.EnablePeer(beside.dev))
		for _, c := range []struct {
			kind        fabric.OpKind
			count, size uint64
			depth       int
		}{
			{fabric.OpWrite, 8192, 4 << 10, 1}, {fabric.OpWrite, 8192, 4 << 10, 4}, {fabric.OpRead, 8192, 4 << 10, 4},
			{fabric.OpWrite, 8192, 16 << 10, 4}, {fabric.OpWrite, 4096, 64 << 10, 4}, {fabric.OpWrite, 1024, 256 << 10, 4},
		} {
			b.Run(fmt.Sprintf("%v/%dx%dKiB/blocks=%d/depth=%d", c.kind, c.count, c.size>>10, blocks, c.depth), func(b *testing.B) {
				count := c.count / scale()
				ops := scattered(b, local, key, c.kind, count, c.size)
				flow(b, a, ops, c.depth, 3*c.depth)
				memcpy := raw(b, local.dev, beside.Addr, local.Addr, count*c.size)
				b.SetBytes(int64(count * c.size))
				b.ResetTimer()
				submit := flow(b, a, ops, c.depth, b.N)
				b.StopTimer()
				report(b, memcpy, count*c.size)
				b.ReportMetric(float64(submit)/float64(count), "caller-ns/entry")
			})
		}
		a.byGPU(b)
	}
}

// scale is how much less an emulated GPU has to do.
func scale() uint64 {
	if gputest.Real() {
		return 1
	}
	return 64
}

// report adds the driver's speed and the ratio to it.
func report(b *testing.B, memcpy time.Duration, n uint64) {
	b.ReportMetric(float64(n)/float64(memcpy), "rawGB/s")
	b.ReportMetric(float64(memcpy)*float64(b.N)/float64(b.Elapsed()), "ratio")
}

// BenchmarkGPUWrite4KiB is the time of one small write and the wait for it, next to the driver's
// copy of it and to a Copier's.
func BenchmarkGPUWrite4KiB(b *testing.B) {
	gputest.Need(b, 2)
	const n = 4096
	a, _, key := newChildWith(b, Options{}, 1, 0, n)
	local, beside := a.memory(b, 0, 0, n), a.memory(b, 1, 0, n)
	ok(b, local.dev.EnablePeer(beside.dev))
	op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
	ops := []fabric.Op{op}
	done := make([]fabric.Completion, 1)
	round := func() {
		if _, err := a.ep.Submit(ops); err != nil {
			b.Fatal(err)
		}
		for {
			if n, _ := a.cq.Read(done); n == 1 {
				return
			}
		}
	}
	for range 200 {
		round()
	}
	memcpy := raw(b, local.dev, beside.Addr, local.Addr, n)
	kernel := rawCopier(b, local.dev, device.CopySegment{Dst: beside.Addr, Src: local.Addr, Bytes: n})
	var all []time.Duration
	b.ResetTimer()
	for range b.N {
		begun := time.Now()
		round()
		all = append(all, time.Since(begun))
	}
	b.StopTimer()
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2])/1e3, "median-us")
	b.ReportMetric(float64(all[len(all)*99/100])/1e3, "p99-us")
	b.ReportMetric(float64(memcpy)/1e3, "memcpy-us")
	b.ReportMetric(float64(kernel)/1e3, "kernel-us")
	a.byGPU(b)
}

// rawCopier is the median time of a segment by a Copier's kernel.
func rawCopier(tb testing.TB, d *device.Device, s device.CopySegment) time.Duration {
	tb.Helper()
	c, err := d.NewCopier(device.CopierOptions{})
	ok(tb, err)
	defer func() { ok(tb, c.Close()) }()
	var all []time.Duration
	for range 200 {
		begun := time.Now()
		k, err := c.Start([]device.CopySegment{s})
		ok(tb, err)
		ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
		ok(tb, k.Wait(ctx))
		cancel()
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkGPULarge copies one long piece to and from memory of another process, next to a memcpy
// by the driver: to pinned host memory where one end is the host's.
func BenchmarkGPULarge(b *testing.B) {
	for _, r := range []route{{0, 1}, {0, -1}, {-1, 0}} {
		for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
			gputest.Need(b, 1+max(r.local, r.remote, 0))
			benchLarge(b, kind, r, 64<<20/scale())
		}
	}
}

func benchLarge(b *testing.B, kind fabric.OpKind, r route, n uint64) {
	a, _, key := newChildWith(b, Options{}, r.remote, 0, n)
	local, gpu := a.memory(b, r.local, 0, n), a.memory(b, max(r.local, 0), 0, n)
	other := gpu
	if r.remote > 0 {
		other = a.memory(b, r.remote, 0, n)
		ok(b, gpu.dev.EnablePeer(other.dev))
	}
	dst, src := other.Addr, gpu.Addr
	if r.remote <= 0 {
		pinned, err := gpu.dev.AllocHost(n)
		ok(b, err)
		defer func() { ok(b, pinned.Close()) }()
		dst = pinned.Addr()
		if (kind == fabric.OpRead) == (r.local >= 0) {
			dst, src = src, dst
		}
	}
	op := fabric.Op{Kind: kind, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
	b.Run(fmt.Sprintf("%v/%v/%dMiB", kind, r, n>>20), func(b *testing.B) {
		flow(b, a, []fabric.Op{op}, 1, 10)
		memcpy := raw(b, gpu.dev, dst, src, n)
		b.SetBytes(int64(n))
		b.ResetTimer()
		flow(b, a, []fabric.Op{op}, 1, b.N)
		b.StopTimer()
		report(b, memcpy, n)
	})
	a.byGPU(b)
}
