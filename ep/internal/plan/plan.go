// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

// A Plan has the rows that one rank's tokens become: a token has one row for each rank with an
// expert that it chose. Build or FromMap make the rows, Place sets their slots at the destinations.
// A Plan keeps its memory from one Build to the next. Several goroutines may read it while none
// calls Build, FromMap, Place, Clear, Map, Same or Weights.
//
// Rows are numbered by token, then by destination. The rows to one destination are its block. At
// the destination a block lies without gaps, in the order of tokens, from the base that CountMatrix
// computes.
type Plan struct {
	cfg     Config
	experts uint32
	maxRecv int32
	noSlot  int32
	perRank divisor
	perRecv divisor
	n       int

	choices []int32 // by token and choice: the destination, or -1
	rows    []row
	starts  []int32 // the rows of token t are starts[t] to starts[t+1]
	tokens  []int32 // the block of d is counts[d] of them from d x n on

	counts, bases []int32 // by destination: rows of its block, and its first slot there
	at            []int32 // by destination: scratch about one token
}

// A row has its destination and its index in the block there.
type row struct{ dest, place int32 }

// New returns a plan of no tokens.
func New(cfg Config) *Plan {
	n := cfg.WorldSize
	p := &Plan{cfg: cfg, experts: uint32(cfg.Experts()), maxRecv: int32(cfg.MaxRecv()), noSlot: cfg.NoSlot()}
	p.perRank, p.perRecv = newDivisor(cfg.ExpertsPerRank), newDivisor(cfg.MaxRecv())
	p.counts, p.bases, p.at, p.starts = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, 1)
	return p
}

// Build plans for the experts that each token chose, [n, TopK]. A number of no expert makes no row.
// On error the plan has no tokens.
func (p *Plan) Build(indices []int32) error {
	if err := p.start(len(indices)); err != nil {
		return fmt.Errorf("plan a dispatch: %w", err)
	}
	p.route(indices, p.perRank, p.experts)
	return nil
}

// FromMap restores the plan of a routing map, [n, TopK], which Map filled, with the same slots. On
// error the plan has no tokens.
func (p *Plan) FromMap(slots []int32) error {
	if err := p.start(len(slots)); err != nil {
		return fmt.Errorf("plan from a routing map: %w", err)
	}
	p.route(slots, p.perRecv, uint32(p.noSlot))
	p.findBases(slots)
	if err := p.compare(slots); err != nil {
		p.reset()
		return fmt.Errorf("plan from a routing map: %w", err)
	}
	return nil
}

// route makes the rows. The destination of a choice is its value divided. A value that is not below
// limit has none.
//
// A token's destinations are the bits of a word, 64 ranks at a time: whether a choice adds one is
// random, and a mispredicted branch would take longer than all the rest.
func (p *Plan) route(values []int32, by divisor, limit uint32) {
	n, topk := p.n, p.cfg.TopK
	starts, rows, tokens, counts := p.starts[:n+1], p.rows, p.tokens, p.counts
	next := 0
	for t := range n {
		starts[t] = int32(next)
		choices := p.choices[t*topk:][:topk]
		dests := uint64(0)
		for k, value := range values[t*topk:][:len(choices)] {
			d := by.divide(uint32(value))
			if uint32(value) >= limit {
				d = 1<<32 - 1
			}
			choices[k] = int32(d)
			dests |= 1 << d // nothing for a rank above the first 64
		}
		for low := 0; ; {
			for ; dests != 0; dests &= dests - 1 {
				d := low + bits.TrailingZeros64(dests)
				place := counts[d]
				rows[next] = row{int32(d), place}
				tokens[d*n+int(place)] = int32(t)
				counts[d] = place + 1
				next++
			}
			if low += 64; low >= len(counts) {
				break
			}
			dests = among(choices, low)
		}
	}
	starts[n] = int32(next)
}

// among sets a bit for each destination among the 64 from low on.
func among(choices []int32, low int) (dests uint64) {
	for _, d := range choices {
		dests |= 1 << uint32(d-int32(low)) // which is 0 for a rank below or above these, and for -1
	}
	return dests
}

// findBases computes the base of each block from the slot of its first row.
func (p *Plan) findBases(slots []int32) {
	for d := range p.bases {
		block := p.Block(d)
		if len(block) == 0 {
			continue
		}
		first := int(block[0]) * p.cfg.TopK
		k := slices.Index(p.choices[first:first+p.cfg.TopK], int32(d))
		p.bases[d] = slots[first+k] - int32(d)*p.maxRecv
	}
}

// Same reports whether Map would fill this routing map.
func (p *Plan) Same(slots []int32) bool {
	return len(slots) == len(p.choices) && p.compare(slots) == nil
}

// compare returns an error if Map would fill another routing map than this.
func (p *Plan) compare(slots []int32) error {
	for t := range p.n {
		p.locate(t)
		first := t * p.cfg.TopK
		for k, d := range p.choices[first : first+p.cfg.TopK] {
			want := p.noSlot
			if d >= 0 {
				want = p.at[d]
			}
			if slots[first+k] != want {
				return fmt.Errorf("choice %d of token %d is %d, not %d: %w", k, t, slots[first+k], want, ErrMap)
			}
		}
	}
	return nil
}

// locate sets p.at to the routing map's entry for each destination of token t.
func (p *Plan) locate(t int) {
	for _, r := range p.rows[p.starts[t]:p.starts[t+1]] {
		p.at[r.dest] = r.dest*p.maxRecv + p.bases[r.dest] + r.place
	}
}

// start makes room for a number of choices, TopK for each token.
func (p *Plan) start(choices int) error {
	p.reset()
	n := choices / p.cfg.TopK
	if choices%p.cfg.TopK != 0 || n > p.cfg.MaxNumInpToken {
		return fmt.Errorf("%d choices, %d for each of at most %d tokens: %w",
			choices, p.cfg.TopK, p.cfg.MaxNumInpToken, ErrShape)
	}
	p.choices, p.rows = resize(p.choices, choices), resize(p.rows, n*p.cfg.MaxRows())
	p.starts, p.tokens = resize(p.starts, n+1), resize(p.tokens, n*p.cfg.WorldSize)
	p.n = n
	return nil
}

// reset removes all tokens.
func (p *Plan) reset() {
	p.n, p.choices, p.starts = 0, p.choices[:0], p.starts[:1]
	p.Clear()
}

// Clear removes all rows. The tokens stay, without destinations.
func (p *Plan) Clear() {
	clear(p.counts)
	clear(p.bases)
	clear(p.starts)
	for i := range p.choices {
		p.choices[i] = -1
	}
}

// Place sets the bases to those of a matrix after Admit. If this rank was not admitted, Place
// clears the plan and returns a *CapError.
func (p *Plan) Place(m *CountMatrix) error {
	if err := m.Overflow(p.cfg.Rank); err != nil {
		p.Clear()
		return fmt.Errorf("dispatch: %w", err)
	}
	for d := range p.bases {
		p.bases[d] = int32(m.Base(p.cfg.Rank, d))
	}
	return nil
}

// Moved returns an error that wraps ErrMismatch if a matrix puts a block of rows elsewhere than
// this plan has it. That happens to a plan from a routing map if not all ranks replay the same
// dispatch.
func (p *Plan) Moved(m *CountMatrix) error {
	for d, count := range p.counts {
		if now := m.Base(p.cfg.Rank, d); count != 0 && int(p.bases[d]) != now {
			return fmt.Errorf("the block at rank %d starts at slot %[3]d instead of %[2]d, so not all ranks repeat the same routing: %[4]w",
				d, p.bases[d], now, ErrMismatch)
		}
	}
	return nil
}

// Tokens returns how many tokens were planned.
func (p *Plan) Tokens() int { return p.n }

// Len returns how many rows the tokens became.
func (p *Plan) Len() int { return int(p.starts[p.n]) }

// Counts returns how many rows each rank gets, for this rank to publish. It is valid until the plan
// changes.
func (p *Plan) Counts() []int32 { return p.counts }

// Base returns the first slot of d's block at d.
func (p *Plan) Base(d int) int { return int(p.bases[d]) }

// Block lists the tokens that have a row for d, in order. It is valid until the plan changes.
func (p *Plan) Block(d int) []int32 { return p.tokens[d*p.n:][:p.counts[d]:p.counts[d]] }

// Rows iterates over the ranks that get a row of token t, in order, and the slot of the row there.
func (p *Plan) Rows(t int) iter.Seq2[int, int] {
	return func(yield func(dest, slot int) bool) {
		for _, r := range p.rows[p.starts[t]:p.starts[t+1]] {
			if !yield(int(r.dest), int(p.bases[r.dest]+r.place)) {
				return
			}
		}
	}
}

// Positions fills the positions of d's block.
func (p *Plan) Positions(positions []int32, d int) {
	first := p.cfg.Position(p.cfg.Rank, 0)
	block := p.Block(d)
	positions = positions[:len(block)]
	for i, t := range block {
		positions[i] = first + t
	}
}

// Map fills the routing map [n, TopK]: rank x MaxRecv + slot of the row that carries a choice, or
// NoSlot. FromMap restores the plan from it.
func (p *Plan) Map(slots []int32) {
	for t := range p.n {
		p.locate(t)
		choices := p.choices[t*p.cfg.TopK:][:p.cfg.TopK]
		mine := slots[t*p.cfg.TopK:][:len(choices)]
		for k, d := range choices {
			mine[k] = p.noSlot
			if d >= 0 {
				mine[k] = p.at[d]
			}
		}
	}
}

// Weights sums, for each row, the weights of the choices that it carries, out of [n, TopK]. Rows
// are in the order of Rows(0), Rows(1) and so on. The order of the sum is that of the choices.
func (p *Plan) Weights(sums, weights []float32) {
	sums = sums[:p.Len()]
	clear(sums)
	for t := range p.n {
		for i := p.starts[t]; i < p.starts[t+1]; i++ {
			p.at[p.rows[i].dest] = i
		}
		choices := p.choices[t*p.cfg.TopK:][:p.cfg.TopK]
		mine := weights[t*p.cfg.TopK:][:len(choices)]
		for k, d := range choices {
			if d >= 0 {
				sums[p.at[d]] += mine[k]
			}
		}
	}
}

// resize returns s with length n and undefined contents, in the same memory if that is large
// enough.
func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// A divisor divides by a constant with one multiplication.
//
// It is 2^63/d rounded up. For dividends and divisors below 2^31 the quotient of n is too large by
// less than n/2^63 < 1/d, which never reaches the next integer.
type divisor uint64

func newDivisor(d int) divisor { return divisor(1<<63/uint64(d) + 1) }

func (d divisor) divide(n uint32) uint32 {
	high, low := bits.Mul64(uint64(d), uint64(n))
	return uint32(high<<1 | low>>63)
}
