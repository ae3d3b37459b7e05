// SPDX-License-Identifier: MIT

package plan

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"mori/ep/internal/plan/plantest"
)

func TestPlanOfOneRank(t *testing.T) {
	const none = 2 * 2 * 4 // world x MaxRecv
	for _, c := range []struct {
		name    string
		indices []int32 // 2 ranks with 3 experts, 2 choices
		counts  []int32
		blocks  [][]int32
		slots   []int32 // with both blocks at slot 1
	}{
		{"no tokens", []int32{}, []int32{0, 0}, [][]int32{{}, {}}, []int32{}},
		{"each choice to a rank of its own", []int32{0, 3, 5, 2}, []int32{2, 2}, [][]int32{{0, 1}, {0, 1}}, []int32{1, 9, 10, 2}},
		{"two choices of one rank are one row", []int32{4, 3, 0, 2}, []int32{1, 1}, [][]int32{{1}, {0}}, []int32{9, 9, 1, 1}},
		{"one expert twice is one row", []int32{1, 1}, []int32{1, 0}, [][]int32{{0}, {}}, []int32{1, 1}},
		{"numbers of no expert go nowhere", []int32{-1, 6, 1<<31 - 1, 5}, []int32{0, 1}, [][]int32{{}, {1}}, []int32{none, none, none, 9}},
		{"a token of sentinels between others", []int32{0, -1, -1, -1, 0, -1}, []int32{2, 0}, [][]int32{{0, 2}, {}}, []int32{1, none, none, none, 2, none}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(0, 2, 3, 2, 4)
			p := New(cfg)
			if err := p.Build(c.indices); err != nil {
				t.Fatal(err)
			}
			p.bases[0], p.bases[1] = 1, 1
			slots := make([]int32, len(c.indices))
			p.Map(slots)
			blocks := [][]int32{p.Block(0), p.Block(1)}
			if !slices.Equal(p.Counts(), c.counts) || !slices.EqualFunc(blocks, c.blocks, slices.Equal) || !slices.Equal(slots, c.slots) {
				t.Errorf("counts %v, blocks %v, slots %v", p.Counts(), blocks, slots)
			}
		})
	}
}

func TestPlanRefusesOtherShapes(t *testing.T) {
	cfg := config(0, 2, 3, 2, 4)
	p := New(cfg)
	for _, c := range []struct {
		name string
		fill func([]int32) error
	}{{"Build", p.Build}, {"FromMap", p.FromMap}} {
		for _, n := range []int{1, 7, 10} {
			if err := p.Build([]int32{0, 1, 2, 3}); err != nil {
				t.Fatal(err)
			}
			if err := c.fill(make([]int32, n)); !errors.Is(err, ErrShape) {
				t.Errorf("%s of %d choices: %v", c.name, n, err)
			}
			if p.Tokens() != 0 || p.Len() != 0 || len(p.Block(0)) != 0 {
				t.Errorf("%s of %d choices left %d tokens", c.name, n, p.Tokens())
			}
		}
	}
}

// Every rank plans with what it has, and all together must make what the model says.
func TestRanksAgreeWithTheModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	left := 0
	for round := range 3000 {
		c, routings, name := draw(r)
		want := newModel(c, routings)
		plans, matrix := dispatched(t, c, routings)
		got := make([][]received, c.WorldSize)
		for d := range got {
			got[d] = slices.Repeat([]received{{-1, -1}}, matrix.Total(d))
		}
		for s, p := range plans {
			if matrix.Overflow(s) != nil {
				left++
			}
			if (matrix.Overflow(s) == nil) != want.admitted[s] {
				t.Fatalf("round %d, %s: rank %d: %v", round, name, s, matrix.Overflow(s))
			}
			for token := range p.Tokens() {
				for d, slot := range p.Rows(token) {
					if got[d][slot].source >= 0 {
						t.Fatalf("round %d, %s: slot %d of rank %d was given twice", round, name, slot, d)
					}
					got[d][slot] = received{s, token}
				}
			}
		}
		for d, rows := range got {
			if !slices.Equal(rows, want.rows[d]) {
				t.Fatalf("round %d, %s: rank %d receives\n%v, want\n%v", round, name, d, rows, want.rows[d])
			}
		}
	}
	if left == 0 {
		t.Error("no source was ever left out: the cap was not tried")
	}
}

// dispatched returns the plans of all ranks, placed.
func dispatched(t testing.TB, c Config, routings [][]int32) ([]*Plan, *CountMatrix) {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	matrix := NewCountMatrix(c)
	plans := make([]*Plan, c.WorldSize)
	for s := range plans {
		plans[s] = New(c.of(s))
		if err := plans[s].Build(routings[s]); err != nil {
			t.Fatal(err)
		}
		copy(matrix.Row(s), plans[s].Counts())
	}
	if err := matrix.Admit(); err != nil {
		t.Fatal(err)
	}
	for s, p := range plans {
		if err := p.Place(matrix); !errors.Is(err, matrix.Overflow(s)) {
			t.Fatalf("rank %d: placed with %v, but the matrix says %v", s, err, matrix.Overflow(s))
		}
	}
	return plans, matrix
}

// All views of a plan agree.
func TestViewsOfAPlanAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 2000 {
		c, routings, name := draw(r)
		plans, matrix := dispatched(t, c, routings)
		s := r.IntN(c.WorldSize)
		p := plans[s]
		blocks := make([][]int32, c.WorldSize)
		rows := 0
		for token := range p.Tokens() {
			for d, slot := range p.Rows(token) {
				if slot != p.Base(d)+len(blocks[d]) {
					t.Fatalf("round %d, %s: token %d has slot %d of rank %d", round, name, token, slot, d)
				}
				blocks[d] = append(blocks[d], int32(token))
				rows++
			}
		}
		for d, block := range blocks {
			positions := make([]int32, len(block))
			p.Positions(positions, d)
			for i, position := range positions {
				if source, token := c.DecodePosition(position); source != s || token != int(block[i]) {
					t.Fatalf("round %d: position %d is token %d of rank %d, want %d of %d", round, position, token, source, block[i], s)
				}
			}
			if !slices.Equal(p.Block(d), block) || matrix.Count(s, d) != len(block) || int(p.Counts()[d]) != len(block) {
				t.Fatalf("round %d, %s: block %v for rank %d, want %v", round, name, p.Block(d), d, block)
			}
		}
		if p.Len() != rows {
			t.Fatalf("round %d: %d rows, want %d", round, p.Len(), rows)
		}
	}
}

// A plan from a routing map reports that its blocks moved, unless it has no rows there.
func TestMovedNamesTheBlock(t *testing.T) {
	cfg := config(1, 2, 3, 2, 4)
	p, matrix := New(cfg), NewCountMatrix(cfg)
	none := cfg.NoSlot()
	if err := p.FromMap([]int32{3, none, none, 4}); err != nil { // slots 3 and 4 of rank 0
		t.Fatal(err)
	}
	for first, want := range map[int32]string{
		3: "",
		2: "the block at rank 0 starts at slot 2 instead of 3, so not all ranks repeat the same routing: ",
	} {
		copy(matrix.Row(0), []int32{first, 4})
		copy(matrix.Row(1), p.Counts())
		if err := matrix.Admit(); err != nil {
			t.Fatal(err)
		}
		switch err := p.Moved(matrix); {
		case want == "" && err != nil:
			t.Errorf("%d rows of rank 0 come first: %v", first, err)
		case want != "" && (!errors.Is(err, ErrMismatch) || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%d rows of rank 0 come first: %v, want %s", first, err, want)
		}
	}
}

func TestRowsMayBeLeft(t *testing.T) {
	p := New(config(0, 3, 1, 3, 1))
	if err := p.Build([]int32{2, 1, 0}); err != nil {
		t.Fatal(err)
	}
	var seen []int
	for d := range p.Rows(0) {
		if seen = append(seen, d); d == 1 {
			break
		}
	}
	if !slices.Equal(seen, []int{0, 1}) {
		t.Errorf("saw %v", seen)
	}
}

func TestWeightsAreSummedByRow(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 1000 {
		c, routings, name := draw(r)
		plans, _ := dispatched(t, c, routings)
		s := r.IntN(c.WorldSize)
		p := plans[s]
		weights := make([]float32, len(routings[s]))
		for i := range weights {
			weights[i] = r.Float32()
		}
		sums := make([]float32, p.Len())
		p.Weights(sums, weights)
		row := 0
		for token := range p.Tokens() {
			for d := range p.Rows(token) {
				want := float32(0)
				for k, e := range routings[s][token*c.TopK : (token+1)*c.TopK] {
					if e >= 0 && int(e)/c.ExpertsPerRank == d {
						want += weights[token*c.TopK+k]
					}
				}
				if sums[row] != want {
					t.Fatalf("round %d, %s: token %d, rank %d: weight %v, want %v", round, name, token, d, sums[row], want)
				}
				row++
			}
		}
	}
}

func TestDivisor(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const top = 1<<31 - 1
	check := func(n, d uint32) {
		if got := newDivisor(int(d)).divide(n); got != n/d {
			t.Fatalf("%d / %d = %d", n, d, got)
		}
	}
	for range 200000 {
		d := 1 + r.Uint32N(top)>>r.Uint32N(31)
		quotient := r.Uint32N(top/d + 1)
		check(r.Uint32N(top), d)
		check(quotient*d, d)
		check(max(quotient*d, 1)-1, d)
		check(top, d)
		check(0, d)
	}
}

// usual is a dispatch of 4096 tokens to 8 of 32 experts on 4 ranks.
func usual(tb testing.TB) (*Plan, []int32) {
	c := config(1, 4, 8, 8, 4096)
	r := rand.New(rand.NewPCG(9, 10))
	indices := choices(plantest.Routings[0], r, c, 4096)
	p := New(c)
	if err := p.Build(indices); err != nil {
		tb.Fatal(err)
	}
	return p, indices
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	p, indices := usual(t)
	slots, sums, positions := make([]int32, len(indices)), make([]float32, p.Len()), make([]int32, p.Tokens())
	weights := make([]float32, len(indices))
	b := NewCountMatrix(p.cfg)
	total := 0
	allocs := testing.AllocsPerRun(10, func() {
		if p.Build(indices) != nil {
			t.Error("plan failed")
		}
		copy(b.Row(1), p.Counts())
		if b.Admit() != nil || p.Place(b) != nil {
			t.Error("matrix failed")
		}
		for token := range p.Tokens() {
			for d, slot := range p.Rows(token) {
				total += d + slot
			}
		}
		p.Map(slots)
		p.Positions(positions, 2)
		p.Weights(sums, weights)
		if p.FromMap(slots) != nil {
			t.Error("map failed")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkBuild(b *testing.B) {
	p, indices := usual(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Build(indices); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMap(b *testing.B) {
	p, indices := usual(b)
	slots := make([]int32, len(indices))
	for b.Loop() {
		p.Map(slots)
	}
}

func BenchmarkFromMap(b *testing.B) {
	p, indices := usual(b)
	slots := make([]int32, len(indices))
	p.Map(slots)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.FromMap(slots); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRows(b *testing.B) {
	p, _ := usual(b)
	total := 0
	for b.Loop() {
		for token := range p.Tokens() {
			for d, slot := range p.Rows(token) {
				total += d + slot
			}
		}
	}
}

func BenchmarkWeights(b *testing.B) {
	p, indices := usual(b)
	weights, sums := make([]float32, len(indices)), make([]float32, p.Len())
	for b.Loop() {
		p.Weights(sums, weights)
	}
}
