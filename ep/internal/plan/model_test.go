// SPDX-License-Identifier: MIT

package plan

import (
	"math/rand/v2"
	"slices"

	"mori/ep/internal/plan/plantest"
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

// choices draws the choices of n tokens.
func choices(g plantest.Routing, r *rand.Rand, c Config, n int) []int32 {
	e := plantest.Experts{All: int32(c.Experts()), PerRank: int32(c.ExpertsPerRank)}
	return g.Choices(r, e, n*c.TopK)
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
	g := plantest.Routings[r.IntN(len(plantest.Routings))]
	routings := make([][]int32, c.WorldSize)
	for s := range routings {
		n := c.MaxNumInpToken
		if r.IntN(2) == 0 {
			n = r.IntN(n + 1)
		}
		routings[s] = choices(g, r, c, n)
	}
	return c, routings, g.Name
}
