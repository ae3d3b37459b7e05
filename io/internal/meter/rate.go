// SPDX-License-Identifier: MIT

package meter

import "time"

// How often and how long throughput is remembered: 10 s, and one sample to subtract.
const (
	sampleEvery = 100 * time.Millisecond
	samples     = 102
)

// A rate turns samples of a counter into its growth per second. It has no clock: times are
// nanoseconds of the caller's.
type rate struct {
	at    [samples]int64
	total [samples]uint64
	n     int // samples taken so far; the newest is at (n-1) % samples
}

// sample notes the counter's value, unless the last one is too young. Before the first sample the
// counter was 0.
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

// perSecond is the growth over the last span, or over what is known of it; the span ends with the
// newest sample.
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
