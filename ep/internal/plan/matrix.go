// SPDX-License-Identifier: MIT

package plan

import "fmt"

// A CountMatrix has how many rows each rank sends to each other in one dispatch: row s is what rank
// s published. All ranks have the same matrix, so all of them decide alike who may send and where
// rows lie, without another message.
//
//	copy(m.Row(s), ...)  // for each source s
//	err := m.Admit()
//	... m.Base, m.Count, m.Total, Plan.Place ...
type CountMatrix struct {
	cfg      Config
	counts   []int32 // [source, destination], as published
	bases    []int32 // [source, destination], of the sources that were admitted
	totals   []int   // by destination
	overflow []*CapError
}

// NewCountMatrix returns a matrix of zeros.
func NewCountMatrix(cfg Config) *CountMatrix {
	n := cfg.WorldSize
	return &CountMatrix{cfg: cfg, counts: make([]int32, n*n), bases: make([]int32, n*n),
		totals: make([]int, n), overflow: make([]*CapError, n)}
}

// Row returns the counts of a source, for the caller to fill.
func (m *CountMatrix) Row(source int) []int32 {
	n := m.cfg.WorldSize
	return m.counts[source*n : (source+1)*n : (source+1)*n]
}

// Admit decides for each source, in the order of ranks, whether it may send. If a source sends more
// rows than any one rank has room for, it may send none at all. If a count is impossible, Admit
// admits no source and returns an error that wraps ErrCounts.
func (m *CountMatrix) Admit() error {
	clear(m.totals)
	clear(m.overflow)
	for source := range m.overflow {
		if err := m.check(source); err != nil {
			clear(m.counts)
			clear(m.totals)
			return err
		}
	}
	for source := range m.overflow {
		m.admit(source)
	}
	return nil
}

func (m *CountMatrix) check(source int) error {
	for d, count := range m.Row(source) {
		if count < 0 || int(count) > m.cfg.SendPerRank() {
			return fmt.Errorf("rank %d sends %d rows to rank %d, want at most %d: %w",
				source, count, d, m.cfg.SendPerRank(), ErrCounts)
		}
	}
	return nil
}

// admit sets the bases of the source if there is room for all its rows.
func (m *CountMatrix) admit(source int) {
	row, room := m.Row(source), m.cfg.MaxRecv()
	for d, count := range row {
		if m.totals[d]+int(count) > room {
			m.overflow[source] = &CapError{Source: source, Dest: d, Rows: int(count), Used: m.totals[d], Cap: room}
			return
		}
	}
	bases := m.bases[source*len(row):][:len(row)]
	for d, count := range row {
		bases[d] = int32(m.totals[d])
		m.totals[d] += int(count)
	}
}

// Overflow returns nil for a source that was admitted, else a *CapError.
func (m *CountMatrix) Overflow(source int) error {
	if e := m.overflow[source]; e != nil {
		return e
	}
	return nil
}

// Count returns how many rows the source sends to d: none if it was not admitted.
func (m *CountMatrix) Count(source, d int) int {
	if m.overflow[source] != nil {
		return 0
	}
	return int(m.counts[source*m.cfg.WorldSize+d])
}

// Base returns the first slot of the source's block at d. It is undefined if Count is 0.
func (m *CountMatrix) Base(source, d int) int { return int(m.bases[source*m.cfg.WorldSize+d]) }

// Total returns how many rows d receives.
func (m *CountMatrix) Total(d int) int { return m.totals[d] }
