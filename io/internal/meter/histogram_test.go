// SPDX-License-Identifier: MIT

package meter

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsArePowersOfTwoOfMicroseconds(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want uint64 // µs at which the bucket ends; 0: no end
	}{
		{-time.Second, 1}, {0, 1}, {999, 1}, {time.Microsecond, 2}, {1999, 2}, {2 * time.Microsecond, 4}, {time.Millisecond, 1024},
		{time.Second, 1 << 20}, {67 * time.Second, 1 << 26}, {68 * time.Second, 0}, {math.MaxInt64, 0},
	} {
		var h Histogram
		h.Add(c.d)
		s := h.Read()
		if s.Count != 1 || len(s.Buckets) != 1 || s.Buckets[0].Count != 1 {
			t.Fatalf("%v: %+v", c.d, s)
		}
		switch b := s.Buckets[0].BelowUS; {
		case c.want == 0 && b != nil:
			t.Errorf("%v is below %d µs, want no bound", c.d, *b)
		case c.want != 0 && (b == nil || *b != c.want):
			t.Errorf("%v is in %+v, want below %d µs", c.d, s.Buckets[0], c.want)
		}
	}
}

func TestBoundsAreThoseOfTheBuckets(t *testing.T) {
	all := Bounds()
	if len(all) != Buckets-1 || all[0] != 1 || all[len(all)-1] != 1<<26 {
		t.Errorf("%v", all)
	}
}

// Quantiles are accurate to a factor of two for every distribution.
func TestQuantilesAgainstSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		var h Histogram
		all := make([]float64, 1+rng.IntN(2000))
		sum := 0.0
		for i := range all {
			d := time.Duration(math.Exp(rng.Float64()*14+7)) * time.Nanosecond
			h.Add(d)
			all[i] = float64(d) / 1e3
			sum += all[i]
		}
		slices.Sort(all)
		s := h.Read()
		if math.Abs(s.SumUS-sum) > sum*1e-9 || math.Abs(s.MeanUS-sum/float64(len(all))) > sum*1e-9 || s.Count != uint64(len(all)) {
			t.Fatalf("round %d: %+v, want a sum of %v over %d", round, s, sum, len(all))
		}
		for q, got := range map[float64]float64{0.5: s.P50US, 0.9: s.P90US, 0.99: s.P99US} {
			want := all[min(len(all)-1, max(0, int(math.Ceil(q*float64(len(all))))-1))]
			if got > max(2*want, 1) || got < want/2.0001 && want > 1 {
				t.Errorf("round %d: quantile %v of %d is %v µs, sorted says %v", round, q, len(all), got, want)
			}
		}
	}
}

func TestThroughputOfTheLastSecondAndTen(t *testing.T) {
	var r rate
	if r.perSecond(time.Second) != 0 {
		t.Error("throughput without a sample")
	}
	total := uint64(0)
	at := int64(1e15)
	step := func(n int, perSample uint64) {
		for range n {
			at += int64(sampleEvery)
			total += perSample
			r.sample(at, total)
			r.sample(at+1, total+1e12) // too soon: ignored
		}
	}
	for _, c := range []struct {
		what      string
		samples   int
		perSample uint64
		one, ten  float64
	}{
		{"the first sample counts from 0", 1, 100, 1000, 1000},
		{"steady", 30, 100, 1000, 1000},
		{"ten times faster for 2 s", 20, 1000, 10000, (31*100 + 20*1000) / 5.1},
		{"nothing for 1 s", 10, 0, 0, (31*100 + 20*1000) / 6.1},
		{"nothing for 20 s", 200, 0, 0, 0},
		{"on after that", 10, 500, 5000, 500},
	} {
		step(c.samples, c.perSample)
		one, ten := r.perSecond(time.Second), r.perSecond(10*time.Second)
		if math.Abs(one-c.one) > 1e-6*c.one || math.Abs(ten-c.ten) > 1e-6*c.ten {
			t.Errorf("%s: %v and %v per second, want %v and %v", c.what, one, ten, c.one, c.ten)
		}
	}
}
