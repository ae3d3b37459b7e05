// SPDX-License-Identifier: MIT

package meter

import "time"

// How often throughput is sampled, and how many samples are kept: 10 s, and one more sample to
// subtract.
const (
	sampleEvery = 100 * time.Millisecond
	samples     = 102
)

// A rate converts samples of a counter into growth per second. It has no clock: the caller passes
// times in nanoseconds.
type rate struct {
	at    [samples]int64
	total [samples]uint64
	n     int // samples taken so far; the newest is at (n-1) % samples
}

// sample records the counter's value, unless the last sample is too recent. Before the first
// sample, the counter counts as 0.
func (r *rate) sample(now int64, total uint64) {
	if r.n == 0 {
		r.at[0], r.n = now-int64(sampleEvery), 1
	}
	if now-r.at[(r.n-1)%samples] < int64(sampleEvery) {
		return
	}
	r.at[r.n%samples], r.total[r.n%samples] = now, total
	r.n++
}

// perSecond returns the growth per second over the given span before the newest sample, or over a
// shorter span if fewer samples exist.
func (r *rate) perSecond(span time.Duration) float64 {
	if r.n < 2 {
		return 0
	}
	last := (r.n - 1) % samples
	from := last
	for k := r.n - 2; k >= 0 && k > r.n-1-samples; k-- {
		from = k % samples
		if r.at[last]-r.at[from] >= int64(span) {
			break
		}
	}
	return float64(r.total[last]-r.total[from]) / (float64(r.at[last]-r.at[from]) / 1e9)
}
