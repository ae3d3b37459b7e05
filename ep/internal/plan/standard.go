// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"math"

	"mori/ep/internal/view"
	"mori/native/hostmath"
)

// PackedRows returns how many rows an expert has room for in the standard-MoE form.
func (c Config) PackedRows() int { return c.MaxSend() }

// PackExperts groups received rows by the experts of this rank, from the indices [rows, TopK] that
// came with them. The result is the standard-MoE form, in which each expert's rows lie together.
//
//	counts [ExpertsPerRank]            how many rows expert e has
//	info [ExpertsPerRank, PackedRows]  which received rows these are, in order; the rest is unchanged
//	slots [rows, TopK]                 e x PackedRows + index of the choice's row among e's, or -1
//
// The slot is -1 if the expert lives on another rank. A row that names an expert twice is packed
// once, and both choices have its slot.
func (c Config) PackExperts(indices, counts, info, slots []int32) error {
	rows, stride, first := len(indices)/c.TopK, c.PackedRows(), int32(c.FirstExpert())
	switch {
	case len(indices)%c.TopK != 0 || rows > c.MaxRecv():
		return fmt.Errorf("pack %d choices, %d for each of at most %d rows: %w",
			len(indices), c.TopK, c.MaxRecv(), ErrShape)
	case c.CheckPacked() != nil:
		return c.CheckPacked()
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

// CheckPacked returns an error if the standard-MoE form has more rows than an int32 can count.
func (c Config) CheckPacked() error {
	if c.ExpertsPerRank > math.MaxInt32/c.PackedRows() {
		return fmt.Errorf("pack %d x %d rows: more than an int32 can count: %w",
			c.ExpertsPerRank, c.PackedRows(), ErrShape)
	}
	return nil
}

// CountReceived counts how many choices among the int32 [rows, TopK] at address indices name each
// expert of this rank. The result is the int32 [ExpertsPerRank] at address counts.
func (c Config) CountReceived(counts, indices uint64, rows int) error {
	if rows < 0 || rows > c.MaxRecv() {
		return fmt.Errorf("count the experts of %d rows, want at most %d: %w", rows, c.MaxRecv(), ErrShape)
	}
	to := view.Of[int32](counts, c.ExpertsPerRank)
	clear(to)
	return hostmath.CountExperts(to, indices, rows, c.TopK, int32(c.FirstExpert()))
}
