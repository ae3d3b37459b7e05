// SPDX-License-Identifier: MIT

package ep

import (
	"math/rand/v2"
	"slices"
)

// config returns a small valid configuration.
func config(rank, world, experts, topk, tokens int) Config {
	c := DefaultConfig()
	c.Rank, c.WorldSize, c.ExpertsPerRank, c.TopK, c.MaxNumInpToken = rank, world, experts, topk, tokens
	c.HiddenDim, c.MaxTokenTypeSize, c.GPUPerNode = 16, 2, world
	return c
}

// of returns the configuration of another rank.
func (c Config) of(rank int) Config {
	c.Rank = rank
	return c
}

// A received is a row as its destination sees it: who sent which token.
type received struct{ source, token int }

// destinations lists the distinct ranks that a token goes to, in the order in which it chose them.
func destinations(c Config, choices []int32) []int {
	var to []int
	for _, e := range choices {
		if d := int(e) / c.ExpertsPerRank; e >= 0 && d < c.WorldSize && !slices.Contains(to, d) {
			to = append(to, d)
		}
	}
	return to
}

// A model is what dispatch must do, said with appends: routings[s] are the indices of source s.
type model struct {
	rows     [][]received // by destination, in order
	admitted []bool
}

func newModel(c Config, routings [][]int32) model {
	m := model{rows: make([][]received, c.WorldSize), admitted: make([]bool, c.WorldSize)}
	for s, indices := range routings {
		next := make([][]received, c.WorldSize)
		for d := range next {
			next[d] = slices.Clone(m.rows[d])
		}
		for t := 0; t*c.TopK < len(indices); t++ {
			for _, d := range destinations(c, indices[t*c.TopK:(t+1)*c.TopK]) {
				next[d] = append(next[d], received{s, t})
			}
		}
		if !slices.ContainsFunc(next, func(rows []received) bool { return len(rows) > c.MaxRecv() }) {
			m.rows, m.admitted[s] = next, true
		}
	}
	return m
}

// A routing makes the choices of one rank's tokens.
type routing struct {
	name   string
	choose func(r *rand.Rand, c Config) int32
}

var allRoutings = []routing{
	{"uniform", func(r *rand.Rand, c Config) int32 { return r.Int32N(int32(c.Experts())) }},
	{"skewed to the first experts", func(r *rand.Rand, c Config) int32 {
		return int32(float64(c.Experts()) * r.Float64() * r.Float64() * r.Float64())
	}},
	{"all to the last rank", func(r *rand.Rand, c Config) int32 {
		return int32(c.Experts()-c.ExpertsPerRank) + r.Int32N(int32(c.ExpertsPerRank))
	}},
	{"to nobody", func(r *rand.Rand, c Config) int32 { return -1 - r.Int32N(3) }},
	{"every other choice is no expert", func(r *rand.Rand, c Config) int32 {
		odd := []int32{-1, -1 << 31, 1<<31 - 1, int32(c.Experts())}
		if i := r.IntN(2 * len(odd)); i < len(odd) {
			return odd[i]
		}
		return r.Int32N(int32(c.Experts()))
	}},
}

// choices draws the choices of n tokens.
func (g routing) choices(r *rand.Rand, c Config, n int) []int32 {
	indices := make([]int32, n*c.TopK)
	for i := range indices {
		indices[i] = g.choose(r, c)
	}
	return indices
}

// draw returns a configuration and the choices of all its ranks.
func draw(r *rand.Rand) (Config, [][]int32, string) {
	c := config(0, 1+r.IntN(9), 1+r.IntN(7), 1+r.IntN(9), 1+r.IntN(40))
	if r.IntN(3) == 0 {
		c.MaxTotalRecv = r.IntN(c.MaxSend() + 2)
	}
	if r.IntN(50) == 0 { // more ranks than a word has bits
		c = config(0, 60+r.IntN(80), 1+r.IntN(3), 1+r.IntN(9), 1+r.IntN(3))
	}
	if r.IntN(4) == 0 {
		c.KernelType = KernelInterNode
	}
	g := allRoutings[r.IntN(len(allRoutings))]
	routings := make([][]int32, c.WorldSize)
	for s := range routings {
		n := c.MaxNumInpToken
		if r.IntN(2) == 0 {
			n = r.IntN(n + 1)
		}
		routings[s] = g.choices(r, c, n)
	}
	return c, routings, g.name
}
