// SPDX-License-Identifier: MIT

// Package plantest draws the experts that tokens choose, for the tests of plans and of ops.
//
// It does not import package plan, so that the tests inside that package can use it.
package plantest

import "math/rand/v2"

// Experts is how many experts an op has, and how many of them live on each rank.
type Experts struct{ All, PerRank int32 }

// A Routing draws the choices of one rank's tokens.
type Routing struct {
	Name   string
	choose func(r *rand.Rand, e Experts) int32
}

// Routings has all distributions that tests draw from. The first one is uniform.
var Routings = []Routing{
	{"uniform", func(r *rand.Rand, e Experts) int32 { return r.Int32N(e.All) }},
	{"skewed to the first experts", func(r *rand.Rand, e Experts) int32 {
		return int32(float64(e.All) * r.Float64() * r.Float64() * r.Float64())
	}},
	{"all to the last rank", func(r *rand.Rand, e Experts) int32 {
		return e.All - e.PerRank + r.Int32N(e.PerRank)
	}},
	{"to nobody", func(r *rand.Rand, _ Experts) int32 { return -1 - r.Int32N(3) }},
	{"every other choice is no expert", func(r *rand.Rand, e Experts) int32 {
		odd := []int32{-1, -1 << 31, 1<<31 - 1, e.All}
		if i := r.IntN(2 * len(odd)); i < len(odd) {
			return odd[i]
		}
		return r.Int32N(e.All)
	}},
}

// Choices draws n choices.
func (g Routing) Choices(r *rand.Rand, e Experts, n int) []int32 {
	indices := make([]int32, n)
	for i := range indices {
		indices[i] = g.choose(r, e)
	}
	return indices
}
