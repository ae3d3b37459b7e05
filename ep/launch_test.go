// SPDX-License-Identifier: MIT

package ep

import (
	"math"
	"slices"
	"testing"
)

func TestTheFewestBlocksThatAreNearlyTheFastestAreTaken(t *testing.T) {
	for what := range costs {
		for _, row := range []uint64{1, 7168, 14336, 28672} {
			for _, most := range []int{1, 8, 24, 66, 132} {
				for n := 0; n <= 1<<14; n = 2*n + 1 {
					l := suggest(call(what), n, row, 1, most)
					if l.Blocks < 1 || l.Blocks > most || l.Warps < 1 || l.Warps > 16 {
						t.Fatalf("%s: %d tokens of %d bytes get %+v of %d blocks", callNames[what], n, row, l, most)
					}
					c := &costs[what][0]
					if row > largeRow {
						c = &costs[what][1]
					}
					best := math.Inf(1)
					took := make([]float64, most+1)
					for blocks := 1; blocks <= most; blocks++ {
						took[blocks] = c.micros(n, float64(row), row, blocks)
						best = min(best, took[blocks])
					}
					if took[l.Blocks] > best*nearly || l.Blocks > 1 && slices.Min(took[1:l.Blocks]) <= best*nearly {
						t.Errorf("%s: %d tokens of %d bytes get %+v of %d blocks: %.1f, and the best take %.1f", callNames[what], n, row, l, most, took[l.Blocks], best)
					}
				}
			}
		}
	}
}

// Some 27 blocks are nearly as fast as more for combine in place, and 16 as fast as 24 where all their warps have as many tokens.
func TestManyTokensGetMostOfTheBlocks(t *testing.T) {
	for what := range costs {
		for _, most := range []int{8, 24, 66} {
			if l := suggest(call(what), 4096, 14336, 1, most); l.Blocks < min(most*2/3, 26) {
				t.Errorf("%s of 4096 tokens gets %+v of %d blocks", callNames[what], l, most)
			}
		}
	}
}

// And a block that tells the others.
func TestOneTokenGetsNoMoreWarpsThanShareItsRow(t *testing.T) {
	for what := range costs {
		for _, row := range []uint64{1, 511, 7168, 14336} {
			l := suggest(call(what), 1, row, 1, 132)
			if parts := max(1, int(row/leastPart)); (l.Blocks-2)*l.Warps >= parts {
				t.Errorf("%s of one token of %d bytes gets %+v for %d parts", callNames[what], row, l, parts)
			}
		}
	}
}

func TestThePaceGrowsBetweenWhatWasMeasured(t *testing.T) {
	for what := range costs {
		for _, c := range costs[what] {
			before := 0.0
			for blocks := 1; blocks <= 140; blocks++ {
				rate := c.rate(blocks)
				if rate < before {
					t.Fatalf("%s: %d blocks have %v GB/s, fewer than %d", callNames[what], blocks, rate, blocks-1)
				}
				before = rate
			}
			for _, p := range c.paces {
				if got := c.rate(p.blocks); math.Abs(got-p.rate) > 1e-9 {
					t.Errorf("%s: %d blocks have %v GB/s, measured were %v", callNames[what], p.blocks, got, p.rate)
				}
			}
		}
	}
}

func TestReachIsTheShareOfRanksThatATokenGoesTo(t *testing.T) {
	for _, c := range []struct {
		world, topk int
		want        float64
	}{{1, 8, 0}, {2, 1, 0.5}, {2, 8, 1 - 1.0/256}, {8, 1, 7.0 / 8}} {
		if got := (Config{WorldSize: c.world, TopK: c.topk}).reach(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%d ranks, top %d: %v, want %v", c.world, c.topk, got, c.want)
		}
	}
}

func TestWhatIsAskedForComesFirst(t *testing.T) {
	for _, c := range []struct{ asked, other, want Launch }{
		{Launch{}, Launch{3, 4}, Launch{3, 4}},
		{Launch{9, 0}, Launch{3, 4}, Launch{9, 4}},
		{Launch{0, 9}, Launch{3, 4}, Launch{3, 9}},
		{Launch{-1, -1}, Launch{3, 4}, Launch{3, 4}},
	} {
		if got := c.asked.or(c.other); got != c.want {
			t.Errorf("%+v, then %+v: %+v, want %+v", c.asked, c.other, got, c.want)
		}
	}
	d := DefaultConfig()
	if got := d.configured(); got != (Launch{}) {
		t.Errorf("defaults of the configuration ask for %+v", got)
	}
	d.BlockNum = 21
	if got := d.configured(); got != (Launch{21, 8}) {
		t.Errorf("a configuration with 21 blocks asks for %+v", got)
	}
}

// On a GPU: what a call gets, by who asked.
func TestLaunchesOnGPUs(t *testing.T) {
	cfg := gpuConfig(1)
	device := ""
	onGPUs(t, cfg, Options{}, func(j *gpuJob) error { device = j.dev.Name; return nil })
	rules := []Rule{{"dispatch", 4, 4, 7, 3, 1}, {"dispatch", 4096, 4, 5, 2, 1}}
	tuned := &Tuning{Version: tuningVersion, Tables: []Table{{"another", 1, []Rule{{"dispatch", 4, 4, 1, 1, 1}}}, {device, 1, rules}}}
	configured := cfg
	configured.BlockNum, configured.WarpNumPerBlock = 6, 5
	for name, c := range map[string]struct {
		cfg      Config
		opts     Options
		dispatch bool
		asked    Launch
		want     Launch
	}{
		"the tables":             {cfg, Options{Tuning: tuned}, true, Launch{}, Launch{7, 3}},
		"the call":               {configured, Options{Tuning: tuned}, true, Launch{2, 1}, Launch{2, 1}},
		"the call, in part":      {configured, Options{Tuning: tuned}, true, Launch{2, 0}, Launch{2, 3}},
		"the configuration":      {configured, Options{}, true, Launch{}, Launch{6, 5}},
		"no table for this call": {configured, Options{Tuning: tuned}, false, Launch{}, Launch{6, 5}},
		"the budget":             {cfg, Options{Blocks: 1}, true, Launch{}, Launch{1, 4}},
	} {
		onGPUs(t, c.cfg, c.opts, func(j *gpuJob) error {
			for range 2 { // the second answer was kept
				if got := j.gpu.LaunchOf(c.dispatch, c.asked, 3, 16); got.Blocks != min(c.want.Blocks, j.dev.Units) || got.Warps != min(c.want.Warps, mostThreads/j.dev.Warp) {
					t.Errorf("%s: %+v, want %+v", name, got, c.want)
				}
			}
			if got := j.host.LaunchOf(c.dispatch, c.asked, 3, 16); got != (Launch{}) {
				t.Errorf("%s: on host memory %+v", name, got)
			}
			return nil
		})
	}
}

func BenchmarkSuggest(b *testing.B) {
	for i := range b.N {
		suggest(callDispatch, i%4096, 14336, 1, 66)
	}
}
