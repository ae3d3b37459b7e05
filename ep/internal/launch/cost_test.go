// SPDX-License-Identifier: MIT

package launch

import (
	"math"
	"slices"
	"testing"

	"mori/ep/internal/plan"
)

func TestTheFewestBlocksThatAreNearlyTheFastestAreTaken(t *testing.T) {
	for what := range costs {
		for _, row := range []uint64{1, 7168, 14336, 28672} {
			for _, most := range []int{1, 8, 24, 66, 132} {
				for n := 0; n <= 1<<14; n = 2*n + 1 {
					l := suggest(Call(what), n, row, 1, most)
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

// Some 27 blocks are nearly as fast as more for combine in place, and 16 as fast as 24 where all
// their warps have as many tokens.
func TestManyTokensGetMostOfTheBlocks(t *testing.T) {
	for what := range costs {
		for _, most := range []int{8, 24, 66} {
			if l := suggest(Call(what), 4096, 14336, 1, most); l.Blocks < min(most*2/3, 26) {
				t.Errorf("%s of 4096 tokens gets %+v of %d blocks", callNames[what], l, most)
			}
		}
	}
}

// One block more than that has the exchange of flags.
func TestOneTokenGetsNoMoreWarpsThanShareItsRow(t *testing.T) {
	for what := range costs {
		for _, row := range []uint64{1, 511, 7168, 14336} {
			l := suggest(Call(what), 1, row, 1, 132)
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
		if got := reach(plan.Config{WorldSize: c.world, TopK: c.topk}); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%d ranks, top %d: %v, want %v", c.world, c.topk, got, c.want)
		}
	}
}

func TestWhatIsAskedForComesFirst(t *testing.T) {
	for _, c := range []struct{ asked, other, want Shape }{
		{Shape{}, Shape{3, 4}, Shape{3, 4}},
		{Shape{9, 0}, Shape{3, 4}, Shape{9, 4}},
		{Shape{0, 9}, Shape{3, 4}, Shape{3, 9}},
		{Shape{-1, -1}, Shape{3, 4}, Shape{3, 4}},
	} {
		if got := c.asked.or(c.other); got != c.want {
			t.Errorf("%+v, then %+v: %+v, want %+v", c.asked, c.other, got, c.want)
		}
	}
	d := plan.DefaultConfig()
	if got := configured(d); got != (Shape{}) {
		t.Errorf("defaults of the configuration ask for %+v", got)
	}
	d.BlockNum = 21
	if got := configured(d); got != (Shape{21, 8}) {
		t.Errorf("a configuration with 21 blocks asks for %+v", got)
	}
}

func BenchmarkSuggest(b *testing.B) {
	for i := range b.N {
		suggest(Dispatch, i%4096, 14336, 1, 66)
	}
}

// A choice is remembered, and the memory of choices is bounded.
func TestChoicesAreRemembered(t *testing.T) {
	rules := []Rule{{"dispatch", 4, 4, 7, 3, 1}}
	c := NewChooser(plan.Config{WorldSize: 2, TopK: 8}, rules, 66)
	for range 2 {
		if got := c.Choose(Shape{}, Dispatch, 3, 16); got != (Shape{7, 3}) || len(c.chosen) != 1 {
			t.Errorf("%+v with %d choices remembered, want that of the rule, with 1", got, len(c.chosen))
		}
	}
	if got := c.Choose(Shape{Blocks: 2}, Dispatch, 3, 16); got != (Shape{2, 3}) {
		t.Errorf("a call that asks for 2 blocks gets %+v", got)
	}
	for n := range mostChosen + 10 {
		c.Choose(Shape{}, Combine, n, 16)
	}
	if len(c.chosen) > mostChosen {
		t.Errorf("%d choices are remembered, at most %d should be", len(c.chosen), mostChosen)
	}
}
