// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"math"
)

// PackedRows is how many rows an expert has room for in the standard-MoE form.
func (c Config) PackedRows() int { return c.MaxSend() }

// PackExperts sorts received rows by the experts of this rank that they are for, out of the indices [rows, TopK] that came with
// them: the standard-MoE form, in which each expert's rows lie together.
//
//	counts [ExpertsPerRank]            how many rows expert e has
//	info [ExpertsPerRank, PackedRows]  which received rows these are, in the order of rows; what lies behind them is left as it was
//	slots [rows, TopK]                 e x PackedRows + place of the choice's row, -1 if the expert lives elsewhere
//
// A row that names an expert twice is there once, and both choices have its slot.
func (c Config) PackExperts(indices, counts, info, slots []int32) error {
	rows, stride, first := len(indices)/c.TopK, c.PackedRows(), int32(c.FirstExpert())
	switch {
	case len(indices)%c.TopK != 0 || rows > c.MaxRecv():
		return fmt.Errorf("pack %d choices, %d for each of at most %d rows: %w", len(indices), c.TopK, c.MaxRecv(), ErrShape)
	case c.checkPacked() != nil:
		return c.checkPacked()
	case len(counts) != c.ExpertsPerRank || len(info) != c.ExpertsPerRank*stride || len(slots) != len(indices):
		return fmt.Errorf("pack %d choices into %d counts, %d rows and %d slots: want %d, %d and %d: %w",
			len(indices), len(counts), len(info), len(slots), c.ExpertsPerRank, c.ExpertsPerRank*stride, len(indices), ErrShape)
	}
	clear(counts)
	for row := range rows {
		for i := row * c.TopK; i < (row+1)*c.TopK; i++ {
			e := indices[i] - first
			if e < 0 || int(e) >= len(counts) {
				slots[i] = -1
				continue
			}
			mine := info[int(e)*stride:][:stride]
			if n := counts[e]; n == 0 || mine[n-1] != int32(row) {
				mine[n] = int32(row)
				counts[e]++
			}
			slots[i] = int32(int(e)*stride) + counts[e] - 1
		}
	}
	return nil
}

// checkPacked looks whether places of the standard-MoE form can be counted.
func (c Config) checkPacked() error {
	if c.ExpertsPerRank > math.MaxInt32/c.PackedRows() {
		return fmt.Errorf("pack %d x %d rows: more than an int32 counts: %w", c.ExpertsPerRank, c.PackedRows(), ErrShape)
	}
	return nil
}
