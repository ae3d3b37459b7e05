// SPDX-License-Identifier: MIT

package plan

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func TestCountMatrixAdmits(t *testing.T) {
	for _, c := range []struct {
		name     string
		counts   [][]int32 // 3 ranks of 8 tokens, with room for 12 rows
		bases    [][]int   // nil for a source that is left out
		totals   []int
		overflow []CapError
	}{
		{"nobody sends", [][]int32{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, [][]int{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, []int{0, 0, 0}, nil},
		{"blocks follow each other by source", [][]int32{{1, 2, 3}, {4, 5, 6}, {7, 2, 1}}, [][]int{{0, 0, 0}, {1, 2, 3}, {5, 7, 9}}, []int{12, 9, 10}, nil},
		{"the last is left out as a whole", [][]int32{{8, 0, 1}, {4, 8, 0}, {1, 1, 1}}, [][]int{{0, 0, 0}, {8, 0, 1}, nil}, []int{12, 8, 1},
			[]CapError{{Source: 2, Dest: 0, Rows: 1, Used: 12, Cap: 12}}},
		{"who comes after one that was left out may fit", [][]int32{{0, 8, 0}, {8, 5, 8}, {0, 4, 8}}, [][]int{{0, 0, 0}, nil, {0, 8, 0}}, []int{0, 12, 8},
			[]CapError{{Source: 1, Dest: 1, Rows: 5, Used: 8, Cap: 12}}},
		{"the first destination without room is named", [][]int32{{8, 8, 8}, {0, 5, 6}, {5, 0, 0}}, [][]int{{0, 0, 0}, nil, nil}, []int{8, 8, 8},
			[]CapError{{Source: 1, Dest: 1, Rows: 5, Used: 8, Cap: 12}, {Source: 2, Dest: 0, Rows: 5, Used: 8, Cap: 12}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(0, 3, 1, 1, 8)
			cfg.MaxTotalRecv = 12
			b := NewCountMatrix(cfg)
			for s := range 3 { // what an earlier dispatch left must not matter
				copy(b.Row(s), []int32{8, 8, 8})
			}
			if err := b.Admit(); err != nil {
				t.Fatal(err)
			}
			for s, counts := range c.counts {
				copy(b.Row(s), counts)
			}
			if err := b.Admit(); err != nil {
				t.Fatal(err)
			}
			var overflow []CapError
			for s := range 3 {
				if e := new(CapError); errors.As(b.Overflow(s), &e) {
					overflow = append(overflow, *e)
				}
				for d := range 3 {
					count, base := int(c.counts[s][d]), -1
					if c.bases[s] == nil {
						count = 0
					} else {
						base = c.bases[s][d]
					}
					if b.Count(s, d) != count || base >= 0 && b.Base(s, d) != base {
						t.Errorf("rank %d brings %d rows to %d from %d on, want %d from %d", s, b.Count(s, d), d, b.Base(s, d), count, base)
					}
				}
			}
			for d, want := range c.totals {
				if b.Total(d) != want {
					t.Errorf("rank %d receives %d rows, want %d", d, b.Total(d), want)
				}
			}
			if !slices.Equal(overflow, c.overflow) {
				t.Errorf("left out %+v, want %+v", overflow, c.overflow)
			}
		})
	}
}

func TestOverflowNamesTheNumbers(t *testing.T) {
	cfg := config(1, 2, 1, 1, 8)
	cfg.MaxTotalRecv = 10
	b := NewCountMatrix(cfg)
	copy(b.Row(0), []int32{8, 0})
	p := New(cfg)
	if err := p.Build([]int32{0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	copy(b.Row(1), p.Counts())
	if err := b.Admit(); err != nil {
		t.Fatal(err)
	}
	err := p.Place(b)
	const want = "dispatch: rank 1 dispatches 3 rows to rank 0, which already receives 8 of at most 10: more rows than a rank may receive"
	if !errors.Is(err, ErrRecvCap) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	slots := make([]int32, 3)
	p.Map(slots)
	if none := cfg.NoSlot(); p.Tokens() != 3 || p.Len() != 0 || len(p.Block(0)) != 0 || !slices.Equal(slots, []int32{none, none, none}) {
		t.Errorf("the plan still has %d tokens, %d rows, slots %v", p.Tokens(), p.Len(), slots)
	}
}

func TestCountMatrixRefusesImpossibleCounts(t *testing.T) {
	for _, bad := range []int32{-1, 9, math.MaxInt32, math.MinInt32} {
		b := NewCountMatrix(config(0, 3, 1, 1, 8))
		copy(b.Row(0), []int32{8, 8, 8})
		b.Row(2)[1] = bad
		if err := b.Admit(); !errors.Is(err, ErrCounts) {
			t.Fatalf("%d rows: %v", bad, err)
		}
		for d := range 3 {
			if b.Total(d) != 0 || b.Count(0, d) != 0 {
				t.Errorf("%d rows: rank %d receives %d", bad, d, b.Total(d))
			}
		}
	}
}

func BenchmarkAdmit256Ranks(b *testing.B) {
	matrix := NewCountMatrix(config(0, 256, 1, 8, 64))
	for s := range 256 {
		for d := range matrix.Row(s) {
			matrix.Row(s)[d] = int32((s + d) % 65)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := matrix.Admit(); err != nil {
			b.Fatal(err)
		}
	}
}
