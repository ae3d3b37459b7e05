// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// benches runs a benchmark on the emulated driver of CUDA, which leaves the cost of the calls, and
// on the GPUs.
func benches(b *testing.B, n int, bench func(b *testing.B, devices []*Device, image []byte)) {
	b.Run("calls", func(b *testing.B) {
		devices, err := emulatedSystem(b, CUDA).all()
		ok(b, err)
		bench(b, devices, []byte("fake code"))
	})
	b.Run("gpu", func(b *testing.B) {
		devices := needGPUs(b, n)
		image, err := os.ReadFile(filepath.Join("testdata", "fill.ptx"))
		ok(b, err)
		bench(b, devices, image)
	})
}

// BenchmarkDone is a query of an event that has happened.
func BenchmarkDone(b *testing.B) {
	benches(b, 1, func(b *testing.B, devices []*Device, _ []byte) {
		e, err := devices[0].NewEvent()
		closing(b, e, err)
		ok(b, e.Record(devices[0].ExternalStream(0)))
		ok(b, e.Wait(context.Background()))
		for b.Loop() {
			if done, err := e.Done(); !done || err != nil {
				b.Fatal(done, err)
			}
		}
	})
}

// BenchmarkLaunchWait is a launch of a kernel that does next to nothing, and the wait for it.
func BenchmarkLaunchWait(b *testing.B) {
	benches(b, 1, func(b *testing.B, devices []*Device, image []byte) {
		d := devices[0]
		m, err := d.Load(image)
		closing(b, m, err)
		fill := must[*Function](b)(m.Function("fill"))
		buf, err := d.Alloc(4096)
		closing(b, buf, err)
		s, err := d.NewStream(Normal)
		closing(b, s, err)
		args := new(Args).Uint64(buf.Addr()).Uint32(32).Uint32(1)
		for b.Loop() {
			ok(b, fill.Launch(s, Grid{Threads: [3]uint32{32}}, args))
			ok(b, s.Wait(context.Background()))
		}
	})
}

// BenchmarkCopy copies by the copy engines, timed by events: within a device, to the host, to a
// peer, and small ones one by one.
func BenchmarkCopy(b *testing.B) {
	devices := needGPUs(b, 1)
	d := devices[0]
	const n = 256 << 20
	here, err := d.Alloc(n)
	closing(b, here, err)
	host, err := d.AllocHost(n)
	closing(b, host, err)
	s, err := d.NewStream(Normal)
	closing(b, s, err)
	run := func(name string, size, times uint64, dst func(i uint64) uint64) {
		b.Run(name, func(b *testing.B) {
			from, err := d.NewTimer()
			closing(b, from, err)
			to, err := d.NewTimer()
			closing(b, to, err)
			var best time.Duration
			for b.Loop() {
				ok(b, from.Record(s))
				for i := range times {
					ok(b, s.Copy(dst(i*size), here.Addr()+i*size, size))
				}
				ok(b, to.Record(s))
				ok(b, to.Wait(context.Background()))
				if took := must[time.Duration](b)(to.Since(from)); best == 0 || took < best {
					best = took
				}
			}
			b.ReportMetric(float64(size*times)/float64(best.Nanoseconds()), "GB/s")
		})
	}
	run("to the host", n, 1, func(i uint64) uint64 { return host.Addr() + i })
	if len(devices) > 1 && must[Reach](b)(d.Reach(devices[1])).Access {
		ok(b, d.EnablePeer(devices[1]))
		there, err := devices[1].Alloc(n)
		closing(b, there, err)
		run("to a peer", n, 1, func(i uint64) uint64 { return there.Addr() + i })
		run("to a peer, 4 KiB each", 4096, 4096, func(i uint64) uint64 { return there.Addr() + i })
	}
}

// BenchmarkDeviceCopier copies lists of blocks in random order to a peer, four lists under way, by
// how many streams and blocks of the GPU, beside one copy of as many bytes by the copy engine.
func BenchmarkDeviceCopier(b *testing.B) {
	devices := needGPUs(b, 2)
	d := devices[0]
	if !must[Reach](b)(d.Reach(devices[1])).Access {
		b.Skip("the GPUs do not reach each other")
	}
	ok(b, d.EnablePeer(devices[1]))
	const pool, depth = 1 << 30, 4
	here, err := d.Alloc(pool)
	closing(b, here, err)
	there, err := devices[1].Alloc(pool)
	closing(b, there, err)
	for _, c := range []struct{ count, size uint64 }{{8192, 4 << 10}, {4096, 64 << 10}, {1, 4 << 10}} {
		lists := blockLists(here.Addr(), there.Addr(), pool, c.count, c.size)
		raw := copyTime(b, d, there.Addr(), here.Addr(), c.count*c.size)
		for _, o := range copierOptions(c.count) {
			o.Depth = depth
			b.Run(fmt.Sprintf("%dx%dKiB/streams=%d/blocks=%d", c.count, c.size>>10, o.Streams, o.Blocks), func(b *testing.B) {
				k, err := d.NewCopier(o)
				closing(b, k, err)
				runLists(b, k, lists, depth, 3*len(lists))
				b.SetBytes(int64(c.count * c.size))
				b.ResetTimer()
				runLists(b, k, lists, depth, b.N)
				b.StopTimer()
				b.ReportMetric(float64(raw)*float64(b.N)/float64(b.Elapsed()), "ratio")
			})
		}
	}
}

func copierOptions(count uint64) []CopierOptions {
	if count == 1 {
		return []CopierOptions{{}}
	}
	var all []CopierOptions
	for _, streams := range []int{1, 2, 4} {
		for _, blocks := range []int{8, 16, 32, 64} {
			all = append(all, CopierOptions{Streams: streams, Blocks: blocks})
		}
	}
	return all
}

// blockLists are lists of other blocks each, up to eight.
func blockLists(from, to, pool, count, size uint64) (lists [][]CopySegment) {
	src, dst := rand.Perm(int(pool/size)), rand.Perm(int(pool/size))
	for len(lists) < 8 && uint64(len(src)) >= count {
		list := make([]CopySegment, count)
		for i := range list {
			list[i] = CopySegment{Dst: to + uint64(dst[i])*size, Src: from + uint64(src[i])*size, Bytes: size}
		}
		lists, src, dst = append(lists, list), src[count:], dst[count:]
	}
	return lists
}

// runLists copies n of the lists in turn, depth of them under way.
func runLists(b *testing.B, k *Copier, lists [][]CopySegment, depth, n int) {
	b.Helper()
	var under []Copy
	for i := range n {
		if len(under) == depth {
			for done := false; !done; {
				var err error
				done, err = under[0].Done()
				ok(b, err)
			}
			under = under[1:]
		}
		under = append(under, must[Copy](b)(k.Start(lists[i%len(lists)])))
	}
	for _, c := range under {
		ok(b, c.Wait(context.Background()))
	}
}

// copyTime is the time of one copy by the copy engine, by events, the best of ten.
func copyTime(b *testing.B, d *Device, dst, src, n uint64) time.Duration {
	b.Helper()
	s, err := d.NewStream(Normal)
	ok(b, err)
	defer func() { ok(b, s.Close()) }()
	from, err := d.NewTimer()
	closing(b, from, err)
	to, err := d.NewTimer()
	closing(b, to, err)
	best := time.Hour
	for range 10 {
		ok(b, from.Record(s))
		ok(b, s.Copy(dst, src, n))
		ok(b, to.Record(s))
		ok(b, to.Wait(context.Background()))
		best = min(best, must[time.Duration](b)(to.Since(from)))
	}
	return best
}
