// SPDX-License-Identifier: MIT

package proxy

import (
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// BenchmarkProxyPut puts 8 bytes through a queue, as a kernel would that costs nothing: one at a time, and 256 under way. x_provider is the time
// by that of the provider alone, in the same run.
func BenchmarkProxyPut(b *testing.B) {
	for name, open := range providers {
		for _, window := range []int{1, 256} {
			label := "/latency"
			if window > 1 {
				label = "/rate"
			}
			b.Run(name+label, func(b *testing.B) {
				need(b, name)
				benchPut(b, open(), window)
			})
		}
	}
}

const benchBytes = 8

func benchPut(b *testing.B, from fabric.Provider, window int) {
	near, far := newEnd(b, from, 4096), newEnd(b, from, 4096)
	alone := bare(b, near, far, window, b.N)
	q := near.queue(Config{Slots: 2 * window}, far)
	p := &poster{q: q}
	b.ResetTimer()
	for i := range b.N {
		p.put(0, uint64(i%512*benchBytes), uint64(i%512*benchBytes), benchBytes)
		for p.head-p.ended() >= uint64(window) {
			sys.Yield()
		}
	}
	p.wait(b)
	b.StopTimer()
	near.must(q.Err(0))
	b.ReportMetric(float64(b.Elapsed())/float64(alone), "x_provider")
}

// bare is how long n puts by the endpoint itself take.
func bare(b *testing.B, near, far *end, window, n int) time.Duration {
	b.Helper()
	peer := near.reach(far)
	to := peer.Regions[0]
	var done [64]fabric.Completion
	began := time.Now()
	for sent, ended := 0, 0; ended < n; {
		for sent < n && sent-ended < window {
			off := uint64(sent % 512 * benchBytes)
			op := fabric.Op{Kind: fabric.OpWrite, Dest: peer.Dest, Seg: fabric.Seg{Addr: near.local[0].Addr + off, Len: benchBytes, MR: near.local[0].Desc},
				RSeg: fabric.RSeg{Addr: to.Base + off, Len: benchBytes, Key: to.Key}}
			if _, err := near.port.ep.Submit([]fabric.Op{op}); errors.Is(err, fabric.ErrAgain) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			sent++
		}
		k, err := near.port.cq.Read(done[:])
		if err != nil && !errors.Is(err, fabric.ErrAgain) {
			b.Fatal(err)
		}
		if ended += k; k == 0 {
			sys.Yield()
		}
	}
	return time.Since(began)
}
