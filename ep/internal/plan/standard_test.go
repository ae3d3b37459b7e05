// SPDX-License-Identifier: MIT

package plan

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"mori/ep/internal/plan/plantest"
	"mori/ep/internal/view"
)

// packed are the received rows of each expert of this rank, made the slow way.
func packed(c Config, indices []int32) [][]int32 {
	rows := make([][]int32, c.ExpertsPerRank)
	for e := range rows {
		for row := range len(indices) / c.TopK {
			if slices.Contains(indices[row*c.TopK:(row+1)*c.TopK], int32(c.FirstExpert()+e)) {
				rows[e] = append(rows[e], int32(row))
			}
		}
	}
	return rows
}

func TestExpertsArePackedAsTheModelSays(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for round := range 2000 {
		c, _, _ := draw(r)
		c.Rank = r.IntN(c.WorldSize)
		g := plantest.Routings[r.IntN(len(plantest.Routings))]
		indices := choices(g, r, c, r.IntN(c.MaxRecv()+1))
		counts, slots := slices.Repeat([]int32{-7}, c.ExpertsPerRank), make([]int32, len(indices))
		info := make([]int32, c.ExpertsPerRank*c.PackedRows())
		if err := c.PackExperts(indices, counts, info, slots); err != nil {
			t.Fatal(err)
		}
		for e, want := range packed(c, indices) {
			if got := info[e*c.PackedRows():][:counts[e]]; !slices.Equal(got, want) {
				t.Fatalf("round %d, %s: expert %d has rows %v, want %v", round, g.Name, e, got, want)
			}
		}
		for i, slot := range slots {
			e := int(indices[i]) - c.FirstExpert()
			local := indices[i] >= 0 && e >= 0 && e < c.ExpertsPerRank
			if local != (slot >= 0) || local && (int(slot)/c.PackedRows() != e || int(info[slot]) != i/c.TopK) {
				t.Fatalf("round %d, %s: choice %d of expert %d has slot %d", round, g.Name, i, indices[i], slot)
			}
		}
	}
}

func TestExpertsAreCounted(t *testing.T) {
	c := config(1, 3, 2, 2, 4)
	counts, indices := []int32{9, 9}, []int32{2, 3, 2, 2, 0, 5, -1, 3, -1 << 31, 1<<31 - 1}
	if err := c.CountReceived(view.Addr(counts), view.Addr(indices), len(indices)/c.TopK); err != nil || !slices.Equal(counts, []int32{3, 2}) {
		t.Errorf("%v, %v", counts, err)
	}
	if err := c.CountReceived(view.Addr(counts), view.Addr(indices), c.MaxRecv()+1); !errors.Is(err, ErrShape) {
		t.Errorf("more rows than can be: %v", err)
	}
	runtime.KeepAlive(indices)
}

func TestPackRefusesOtherShapes(t *testing.T) {
	c := config(1, 3, 2, 2, 4)
	const rows, info = 12, 2 * 12
	huge := config(0, 1, 1<<20, 1, 1<<20)
	for _, s := range []struct {
		name                         string
		c                            Config
		indices, counts, info, slots int
	}{
		{"half a row", c, 3, 2, info, 3},
		{"more rows than are received", c, 2 * (rows + 1), 2, info, 2 * (rows + 1)},
		{"counts of another rank", c, 4, 3, info, 4},
		{"too few rows for an expert", c, 4, 2, info - 1, 4},
		{"too few slots", c, 4, 2, info, 3},
		{"more rows than an int32 counts", huge, 1, 1, 1, 1},
	} {
		t.Run(s.name, func(t *testing.T) {
			err := s.c.PackExperts(make([]int32, s.indices), make([]int32, s.counts), make([]int32, s.info), make([]int32, s.slots))
			if !errors.Is(err, ErrShape) {
				t.Error(err)
			}
		})
	}
}

func BenchmarkPackExperts(b *testing.B) {
	c := config(1, 4, 8, 8, 4096)
	indices := choices(plantest.Routings[0], rand.New(rand.NewPCG(17, 18)), c, 12000)
	counts, info, slots := make([]int32, 8), make([]int32, 8*c.PackedRows()), make([]int32, len(indices))
	b.ReportAllocs()
	for b.Loop() {
		if err := c.PackExperts(indices, counts, info, slots); err != nil {
			b.Fatal(err)
		}
	}
}
