// SPDX-License-Identifier: MIT

package ep

import "fmt"

// A Board is how many rows every rank brings to every rank: the row of counts that each published. All ranks see the same
// board, so all come to the same answer about who is admitted and where rows lie, and no further word is needed.
//
//	copy(b.Row(s), ...)  // for every source s
//	err := b.Admit()
//	... b.Base, b.Count, b.Total, Plan.Place ...
type Board struct {
	cfg      Config
	counts   []int32 // [source, destination], as published
	bases    []int32 // [source, destination], of those admitted
	totals   []int   // by destination
	overflow []*CapError
}

// NewBoard returns an empty board.
func NewBoard(cfg Config) *Board {
	n := cfg.WorldSize
	return &Board{cfg: cfg, counts: make([]int32, n*n), bases: make([]int32, n*n), totals: make([]int, n), overflow: make([]*CapError, n)}
}

// Row is where the counts of a source go.
func (b *Board) Row(source int) []int32 {
	n := b.cfg.WorldSize
	return b.counts[source*n : (source+1)*n : (source+1)*n]
}

// Admit lets the sources in, in the order of ranks. One that would bring more rows than there is room for, to any rank, is left out as a whole. An
// error means that a count is impossible; then nobody is admitted.
func (b *Board) Admit() error {
	clear(b.totals)
	clear(b.overflow)
	for source := range b.overflow {
		if err := b.check(source); err != nil {
			clear(b.counts)
			clear(b.totals)
			return err
		}
	}
	for source := range b.overflow {
		b.admit(source)
	}
	return nil
}

func (b *Board) check(source int) error {
	for d, count := range b.Row(source) {
		if count < 0 || int(count) > b.cfg.SendPerRank() {
			return fmt.Errorf("rank %d brings %d rows to rank %d, at most %d can be: %w", source, count, d, b.cfg.SendPerRank(), ErrCounts)
		}
	}
	return nil
}

// admit gives the source its bases if there is room for all its rows.
func (b *Board) admit(source int) {
	row, room := b.Row(source), b.cfg.MaxRecv()
	for d, count := range row {
		if b.totals[d]+int(count) > room {
			b.overflow[source] = &CapError{Source: source, Dest: d, Rows: int(count), Used: b.totals[d], Cap: room}
			return
		}
	}
	bases := b.bases[source*len(row):][:len(row)]
	for d, count := range row {
		bases[d] = int32(b.totals[d])
		b.totals[d] += int(count)
	}
}

// Overflow is nil for a source that was admitted, else a *CapError.
func (b *Board) Overflow(source int) error {
	if e := b.overflow[source]; e != nil {
		return e
	}
	return nil
}

// Count is how many rows the source brings to d: none if it was not admitted.
func (b *Board) Count(source, d int) int {
	if b.overflow[source] != nil {
		return 0
	}
	return int(b.counts[source*b.cfg.WorldSize+d])
}

// Base is the first slot of the source's block at d. It says nothing if Count is 0.
func (b *Board) Base(source, d int) int { return int(b.bases[source*b.cfg.WorldSize+d]) }

// Total is how many rows d receives.
func (b *Board) Total(d int) int { return b.totals[d] }
