// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// benches runs a benchmark on the fake driver of CUDA, which leaves the cost of the calls, and on the GPUs.
func benches(b *testing.B, n int, bench func(b *testing.B, devices []*Device, image []byte)) {
	b.Run("calls", func(b *testing.B) {
		devices, err := fakeSystem(b, CUDA).all()
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
		ok(b, e.Record(devices[0].BorrowStream(0)))
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

// BenchmarkCopy copies by the copy engines, timed by events: within a device, to the host, to a peer, and small ones one by one.
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
