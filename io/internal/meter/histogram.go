// SPDX-License-Identifier: MIT

package meter

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets is the number of buckets of a histogram. The first counts durations below 1 µs. The limit
// doubles from bucket to bucket, and the last counts everything from 2^26 µs (67 s) on.
const Buckets = 28

// A Histogram counts durations by their binary logarithm. The zero value is empty and ready; safe
// for concurrent use.
type Histogram struct {
	bucket [Buckets]atomic.Uint64
	ns     atomic.Uint64 // sum
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	ns := uint64(max(d, 0))
	h.bucket[bucketOf(ns)].Add(1)
	h.ns.Add(ns)
}

func bucketOf(ns uint64) int { return min(bits.Len64(ns/1000), Buckets-1) }

// A Bucket counts the durations below its bound that no earlier bucket counts.
type Bucket struct {
	BelowUS *uint64 `json:"below_us"` // the bound in microseconds; null: none
	Count   uint64  `json:"count"`
}

// LatencyStats is a snapshot of a Histogram. Quantiles are interpolated within a bucket, so they
// are accurate to a factor of 2.
type LatencyStats struct {
	Count   uint64   `json:"count"`
	SumUS   float64  `json:"sum_us"`
	MeanUS  float64  `json:"mean_us"`
	P50US   float64  `json:"p50_us"`
	P90US   float64  `json:"p90_us"`
	P99US   float64  `json:"p99_us"`
	Buckets []Bucket `json:"buckets"` // non-empty buckets, shortest first
}

// Read returns a snapshot of the histogram.
func (h *Histogram) Read() LatencyStats {
	var n [Buckets]uint64
	s := LatencyStats{Buckets: []Bucket{}}
	for i := range n {
		n[i] = h.bucket[i].Load()
		s.Count += n[i]
		if n[i] > 0 {
			s.Buckets = append(s.Buckets, Bucket{bound(i), n[i]})
		}
	}
	if s.Count == 0 {
		return s
	}
	s.SumUS = float64(h.ns.Load()) / 1000
	s.MeanUS = s.SumUS / float64(s.Count)
	s.P50US, s.P90US, s.P99US = quantile(&n, s.Count, 0.5), quantile(&n, s.Count, 0.9), quantile(&n, s.Count, 0.99)
	return s
}

// bound returns the upper end of bucket i in microseconds, nil for the last one.
func bound(i int) *uint64 {
	if i == Buckets-1 {
		return nil
	}
	us := uint64(1) << i
	return &us
}

// quantile returns the duration in microseconds below which a share q of the durations lies. total
// is the sum of n and not 0.
func quantile(n *[Buckets]uint64, total uint64, q float64) float64 {
	rank, before := q*float64(total), 0.0
	for i, c := range n {
		if c == 0 || before+float64(c) < rank {
			before += float64(c)
			continue
		}
		low, width := 0.0, 1.0
		if i > 0 {
			low = float64(uint64(1) << (i - 1))
			width = low
		}
		return low + width*(rank-before)/float64(c)
	}
	return float64(uint64(1) << (Buckets - 2))
}

// Bounds returns the upper ends of the buckets in microseconds. The last bucket has none.
func Bounds() []uint64 {
	out := make([]uint64, 0, Buckets-1)
	for i := range Buckets - 1 {
		out = append(out, *bound(i))
	}
	return out
}
