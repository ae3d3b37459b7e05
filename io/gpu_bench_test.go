// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mori/core/device"
	"mori/native/gpu/gputest"
)

// gpuRig is a session between two GPUs, or within the only one, with a raw copy of the same bytes
// for comparison.
type gpuRig struct {
	s      *Session
	stream *device.Stream
	src    *device.Memory
	dst    *device.Memory
}

func newGPURig(b *testing.B, kind BackendType, bytes uint64) *gpuRig {
	b.Helper()
	gputest.Need(b)
	all, err := device.Devices()
	if err != nil {
		b.Fatal(err)
	}
	r := new(gpuRig)
	from, to := all[0], all[min(1, len(all)-1)]
	var errs [4]error
	errs[0] = from.EnablePeer(to)
	r.src, errs[1] = from.Alloc(bytes)
	r.dst, errs[2] = to.Alloc(bytes)
	r.stream, errs[3] = from.NewStream(device.Normal)
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() { _, _, _ = r.stream.Close(), r.src.Close(), r.dst.Close() })
	engines := [2]*Engine{}
	descs := [2]MemoryDesc{}
	for i, m := range []*device.Memory{r.src, r.dst} {
		if engines[i], err = NewEngine(string(rune('a'+i)), EngineConfig{}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = engines[i].Close() })
		if err := engines[i].CreateBackend(kind, nil); err != nil {
			b.Fatal(err)
		}
		if descs[i], err = engines[i].RegisterMemory(m.Addr(), bytes, -1, LocGPU); err != nil {
			b.Fatal(err)
		}
	}
	if err := engines[0].RegisterRemoteEngine(engines[1].Desc()); err != nil {
		b.Fatal(err)
	}
	if r.s, err = engines[0].CreateSession(descs[0], descs[1]); err != nil || r.s == nil {
		b.Fatalf("session %v, %v", r.s, err)
	}
	return r
}

// raw returns the time in which the driver copies the same bytes in one piece: the best of a few.
func (r *gpuRig) raw(b *testing.B, bytes uint64) time.Duration {
	best := time.Hour
	for range 5 {
		start := time.Now()
		if err := r.stream.Copy(r.dst.Addr(), r.src.Addr(), bytes); err != nil {
			b.Fatal(err)
		}
		if err := r.stream.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	return best
}

// BenchmarkGPUBlocks writes random blocks from GPU to GPU, with up to depth pending batches. ratio
// compares with one raw copy of the same bytes.
func BenchmarkGPUBlocks(b *testing.B) {
	for _, c := range []struct {
		kind  BackendType
		n     int
		size  uint64
		depth int
	}{
		{BackendXGMI, 8192, 4 << 10, 1}, {BackendXGMI, 8192, 4 << 10, 4}, {BackendXGMI, 4096, 64 << 10, 1}, {BackendXGMI, 1, 4 << 10, 1},
		{BackendTCP, 1, 64 << 20, 1},
	} {
		b.Run(fmt.Sprintf("%v/%dx%d, %d under way", c.kind, c.n, c.size, c.depth), func(b *testing.B) {
			bytes := uint64(c.n) * c.size
			r := newGPURig(b, c.kind, bytes)
			lo, ro, sz := make([]uint64, c.n), make([]uint64, c.n), make([]uint64, c.n)
			for i, at := range rand.Perm(c.n) {
				lo[i], ro[i], sz[i] = uint64(i)*c.size, uint64(at)*c.size, c.size
			}
			raw := r.raw(b, bytes)
			var under []*Status
			done := func(leave int) {
				for ; len(under) > leave; under = under[1:] {
					if code := under[0].Wait(b.Context()); code != CodeSuccess {
						b.Fatalf("%v: %s", code, under[0].Message())
					}
				}
			}
			under = append(under, r.s.Write(lo, ro, sz, 0))
			done(0)
			b.SetBytes(int64(bytes))
			for b.Loop() {
				under = append(under, r.s.Write(lo, ro, sz, 0))
				done(c.depth - 1)
			}
			done(0)
			b.ReportMetric(float64(raw)*float64(b.N)/float64(b.Elapsed()), "ratio")
		})
	}
}

// BenchmarkAfter measures the cost of waiting for an idle stream: a write of 8 bytes, without and
// with After.
func BenchmarkAfter(b *testing.B) {
	for name, gated := range map[string]bool{"without": false, "with": true} {
		b.Run(name, func(b *testing.B) {
			r := newGPURig(b, BackendXGMI, 4096)
			at, sz := []uint64{0}, []uint64{8}
			for b.Loop() {
				var after After
				if gated {
					after = AfterStream(r.stream)
				}
				st := r.s.Submit(&Request{Write: true, After: after, Local: at, Remote: at, Sizes: sz})
				if code := st.Wait(b.Context()); code != CodeSuccess {
					b.Fatalf("%v: %s", code, st.Message())
				}
			}
		})
	}
}

// BenchmarkAfterLate measures the delay from the end of a stream, which takes some milliseconds, to
// the end of an 8-byte write that waits for it. late-us is the median.
func BenchmarkAfterLate(b *testing.B) {
	gputest.NeedEmulated(b)
	r := newGPURig(b, BackendXGMI, 4096)
	at, sz := []uint64{0}, []uint64{8}
	var late []time.Duration
	for b.Loop() {
		release := gputest.Hold(b)
		if err := r.stream.Set(r.src.Addr(), 0, 8); err != nil {
			b.Fatal(err)
		}
		st := r.s.Submit(&Request{Write: true, After: AfterStream(r.stream), Local: at, Remote: at, Sizes: sz})
		time.Sleep(3 * time.Millisecond)
		begin := time.Now()
		release()
		if code := st.Wait(b.Context()); code != CodeSuccess {
			b.Fatalf("%v: %s", code, st.Message())
		}
		late = append(late, time.Since(begin))
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2].Nanoseconds())/1e3, "late-us")
}
