// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

// A Plan is what one rank's tokens become: for each token one row to every rank that it chose an expert of. Build or FromMap make
// it, Place says where the rows lie at their destinations. It keeps its memory from one Build to the next. Not for use by several
// goroutines while one of them changes it; reading is free.
//
// Rows are numbered by token. The rows to one destination are its block: at the destination they lie next to each
// other, in the order of tokens, from the base on that Board gives.
type Plan struct {
	cfg     Config
	experts uint32
	maxRecv int32
	noSlot  int32
	perRank divisor
	perRecv divisor
	n       int

	counts, bases []int32 // by destination: rows of its block, and its first slot there
	last          []int32 // by destination: its newest row while the plan is built

	offsets, tokens []int32 // the block of d is tokens[offsets[d]:offsets[d+1]]
	starts          []int32 // the rows of token t are starts[t] to starts[t+1]
	dests, places   []int32 // by row: where it goes, and its place in the block
	carriers        []int32 // by token and choice: the row that carries it, or -1
}

// NewPlan returns a plan of no tokens.
func NewPlan(cfg Config) *Plan {
	p := &Plan{cfg: cfg, experts: uint32(cfg.Experts()), maxRecv: int32(cfg.MaxRecv()), noSlot: cfg.NoSlot()}
	p.perRank, p.perRecv = newDivisor(cfg.ExpertsPerRank), newDivisor(cfg.MaxRecv())
	p.counts, p.bases = make([]int32, cfg.WorldSize), make([]int32, cfg.WorldSize)
	p.last, p.offsets = make([]int32, cfg.WorldSize), make([]int32, cfg.WorldSize+1)
	p.starts = make([]int32, 1)
	return p
}

// Build plans for the experts that each token chose, [n, TopK]. A number that is no expert's goes nowhere. On error the
// plan is one of no tokens.
func (p *Plan) Build(indices []int32) error {
	if err := p.start(len(indices)); err != nil {
		return fmt.Errorf("plan a dispatch: %w", err)
	}
	next := int32(0)
	for t := range p.n {
		next = p.route(t, next, indices[t*p.cfg.TopK:(t+1)*p.cfg.TopK])
	}
	p.finish(next)
	return nil
}

// route makes the rows of token t, the first of which is number first, and returns the number that comes next.
//
// Whether a choice makes a new row or rides on an earlier one is as good as random, so there is no branch on it: with one
// a plan took twice as long.
func (p *Plan) route(t int, first int32, choices []int32) int32 {
	p.starts[t] = first
	carriers := p.carriers[t*len(choices):][:len(choices)]
	counts, last := p.counts, p.last[:len(p.counts)]
	next := first
	for k, expert := range choices {
		if uint32(expert) >= p.experts {
			carriers[k] = -1
			continue
		}
		d := p.perRank.divide(uint32(expert))
		isNew := (last[d] - first) >> 31 // all ones, or 0 if a choice before this one made the row
		row := last[d] ^ (last[d]^next)&isNew
		p.dests[next], p.places[next] = int32(d), counts[d] // counts only if next moves on
		counts[d] -= isNew
		next -= isNew
		last[d], carriers[k] = row, row
	}
	return next
}

// FromMap plans what a routing map says, [n, TopK], which Map has made: with the same slots. On error the plan is one of no tokens.
func (p *Plan) FromMap(slots []int32) error {
	if err := p.start(len(slots)); err != nil {
		return fmt.Errorf("plan from a routing map: %w", err)
	}
	next := int32(0)
	for t := range p.n {
		p.starts[t] = next
		for k := range p.cfg.TopK {
			added, err := p.restore(t, k, next, slots[t*p.cfg.TopK+k])
			if err != nil {
				p.reset()
				return fmt.Errorf("plan from a routing map: token %d, choice %d: %w", t, k, err)
			}
			next += added
		}
	}
	p.finish(next)
	return nil
}

// restore takes one value of a routing map and returns how many rows it made, 0 or 1.
func (p *Plan) restore(t, k int, next, value int32) (int32, error) {
	carrier := &p.carriers[t*p.cfg.TopK+k]
	if value == p.noSlot {
		*carrier = -1
		return 0, nil
	}
	if value < 0 || value > p.noSlot {
		return 0, fmt.Errorf("%d, of at most %d: %w", value, p.noSlot, ErrMap)
	}
	d := p.perRecv.divide(uint32(value))
	slot := value - int32(d)*p.maxRecv
	if row := p.last[d]; row >= p.starts[t] {
		if expected := p.bases[d] + p.places[row]; slot != expected {
			return 0, fmt.Errorf("slots %d and %d of rank %d for one token: %w", expected, slot, d, ErrMap)
		}
		*carrier = row
		return 0, nil
	}
	if p.counts[d] == 0 {
		p.bases[d] = slot
	}
	if expected := p.bases[d] + p.counts[d]; slot != expected {
		return 0, fmt.Errorf("slot %d of rank %d where %d comes next: %w", slot, d, expected, ErrMap)
	}
	p.dests[next], p.places[next] = int32(d), p.counts[d]
	p.counts[d]++
	p.last[d], *carrier = next, next
	return 1, nil
}

// start makes room for the choices of len/TopK tokens. The room is a row more than can be, for route writes before it knows.
func (p *Plan) start(choices int) error {
	p.reset()
	n := choices / p.cfg.TopK
	if choices%p.cfg.TopK != 0 || n > p.cfg.MaxNumInpToken {
		return fmt.Errorf("%d choices, %d for each of at most %d tokens: %w", choices, p.cfg.TopK, p.cfg.MaxNumInpToken, ErrShape)
	}
	rows := n*p.cfg.MaxRows() + 1
	p.dests, p.places, p.tokens = resize(p.dests, rows), resize(p.places, rows), resize(p.tokens, rows)
	p.starts, p.carriers = resize(p.starts, n+1), resize(p.carriers, choices)
	p.n = n
	return nil
}

// reset makes this a plan of no tokens.
func (p *Plan) reset() {
	clear(p.counts)
	clear(p.bases)
	clear(p.offsets)
	for d := range p.last {
		p.last[d] = -1
	}
	p.n = 0
	p.starts, p.carriers = p.starts[:1], p.carriers[:0]
	p.starts[0] = 0
}

// finish sorts rows into blocks.
func (p *Plan) finish(rows int32) {
	p.starts[p.n] = rows
	for d, count := range p.counts {
		p.offsets[d+1] = p.offsets[d] + count
	}
	for t := range p.n {
		for row := p.starts[t]; row < p.starts[t+1]; row++ {
			p.tokens[p.offsets[p.dests[row]]+p.places[row]] = int32(t)
		}
	}
}

// Clear takes all rows away and leaves the tokens, which then go nowhere.
func (p *Plan) Clear() {
	n, choices := p.n, len(p.carriers)
	p.reset()
	p.n = n
	p.starts, p.carriers = p.starts[:n+1], p.carriers[:choices]
	clear(p.starts)
	for i := range p.carriers {
		p.carriers[i] = -1
	}
}

// Place takes the bases from a board that has admitted. A plan whose rows were not admitted is cleared, and the answer is
// a *CapError.
func (p *Plan) Place(b *Board) error {
	if err := b.Overflow(p.cfg.Rank); err != nil {
		p.Clear()
		return fmt.Errorf("dispatch: %w", err)
	}
	for d := range p.bases {
		p.bases[d] = int32(b.Base(p.cfg.Rank, d))
	}
	return nil
}

// Tokens is how many tokens were planned.
func (p *Plan) Tokens() int { return p.n }

// Len is how many rows they became.
func (p *Plan) Len() int { return int(p.starts[p.n]) }

// Counts is how many rows go to each rank: what this rank publishes. It is valid until the plan changes.
func (p *Plan) Counts() []int32 { return p.counts }

// Base is the first slot of d's block at d.
func (p *Plan) Base(d int) int { return int(p.bases[d]) }

// Block lists the tokens whose rows go to d, in order. It is valid until the plan changes.
func (p *Plan) Block(d int) []int32 { return p.tokens[p.offsets[d]:p.offsets[d+1]] }

// Rows tells the ranks that token t goes to, in the order in which it chose them, and the slot of its row there.
func (p *Plan) Rows(t int) iter.Seq2[int, int] {
	return func(yield func(dest, slot int) bool) {
		for row := p.starts[t]; row < p.starts[t+1]; row++ {
			if d := p.dests[row]; !yield(int(d), int(p.bases[d]+p.places[row])) {
				return
			}
		}
	}
}

// Map fills the routing map [n, TopK]: rank x MaxRecv + slot of the row that carries a choice, or NoSlot. With it FromMap makes this plan again.
func (p *Plan) Map(slots []int32) {
	slots = slots[:p.n*p.cfg.TopK]
	for i, row := range p.carriers[:len(slots)] {
		slots[i] = p.noSlot
		if row >= 0 {
			d := p.dests[row]
			slots[i] = d*p.maxRecv + p.bases[d] + p.places[row]
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

// Weights sums, for each row, the weights of the choices that it carries, out of [n, TopK]. Rows are in the order of
// Rows(0), Rows(1) and so on. The sum is made in the order of choices.
func (p *Plan) Weights(sums, weights []float32) {
	sums = sums[:p.Len()]
	clear(sums)
	weights = weights[:p.n*p.cfg.TopK]
	for i, row := range p.carriers[:len(weights)] {
		if row >= 0 {
			sums[row] += weights[i]
		}
	}
}

// resize returns s with length n and any contents, in the same memory where that is large enough.
func resize(s []int32, n int) []int32 { return slices.Grow(s[:0], n)[:n] }

// A divisor divides by a constant with one multiplication.
//
// It is 2^63/d rounded up. For dividends and divisors below 2^31 the quotient of n is too large by less than n/2^63 < 1/d, which
// never reaches the next integer.
type divisor uint64

func newDivisor(d int) divisor { return divisor(1<<63/uint64(d) + 1) }

func (d divisor) divide(n uint32) uint32 {
	high, low := bits.Mul64(uint64(d), uint64(n))
	return uint32(high<<1 | low>>63)
}
