// SPDX-License-Identifier: MIT

package proxy

import (
	"context"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys/thread"
)

// BenchmarkProxyPut puts 8 bytes through a queue, as a kernel would that costs nothing: one at a
// time, and 256 under way. x_provider is the time by that of the provider alone, in the same run.
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
	near, far := newEnd(b, from, b.N*benchBytes), newEnd(b, from, b.N*benchBytes)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	alone, err := near.port.Puts(ctx, near.reach(far), near.local[0], benchBytes, b.N, window)
	near.must(err)
	q := near.queue(Config{Slots: 2 * window}, far)
	p := &poster{q: q}
	b.ResetTimer()
	for i := range b.N {
		p.put(0, uint64(i*benchBytes), uint64(i*benchBytes), benchBytes)
		for p.head-p.ended() >= uint64(window) {
			thread.Yield()
		}
	}
	p.wait(b)
	b.StopTimer()
	near.must(q.Err(0))
	b.ReportMetric(float64(b.Elapsed())/float64(alone), "x_provider")
}
