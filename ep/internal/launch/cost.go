// SPDX-License-Identifier: MIT

package launch

// A Shape is how many blocks a kernel gets, and how many warps each has. A value that is not above
// 0 is chosen by a Chooser. A launch never gets more blocks than the device runs at once, since
// blocks wait for each other.
type Shape struct{ Blocks, Warps int }

// or fills what s leaves open from other.
func (s Shape) or(other Shape) Shape {
	if s.Blocks <= 0 {
		s.Blocks = other.Blocks
	}
	if s.Warps <= 0 {
		s.Warps = other.Warps
	}
	return s
}

// A Call is the kind of call that a shape is chosen for.
type Call int

// The kinds of calls.
const (
	Dispatch       Call = iota
	Combine             // rows that lie elsewhere are pushed, or copied and pulled if they are few
	CombineInPlace      // the rows lie in CombineIn already
)

// The names of calls in tuning tables.
var callNames = [...]string{"dispatch", "combine", "combine_in_place"}

// A pace is the rate of rows on the wire with a number of blocks.
type pace struct {
	blocks int
	rate   float64 // GB/s, of one GPU
}

// A cost is the time of a call in microseconds. It is a fixed part, a little for each block, and
// the longer one of two times: that of the rows of a warp one after the other, or that of all rows
// at the pace of the blocks. If there are fewer tokens than warps, several warps share a row.
//
// The paces were measured between two H200s (NVLink) with blocks of 8 warps: docs/lab/ep.md. A warp
// is as fast as with the fewest blocks that were measured. The rest is estimated. A table of `mori
// tune ep` is more exact.
type cost struct {
	warps, fewWarps int     // of a block; with few tokens, so that more multiprocessors take part
	few             int     // tokens
	fixed           float64 // exchange of flags, and the plan
	token           float64 // begin and end of a row
	alone           float64 // GB/s of a warp with a part of a row; 0: as with whole rows
	late            float64 // added if every block has a part of a row: none is free to set Ready early
	paces           []pace
}

const (
	largeRow   = 8 << 10 // bytes; larger rows have the second cost of two
	nearly     = 1.02    // the factor that more blocks must save
	perBlock   = 0.03    // microseconds: all blocks arrive at one counter
	pacedWarps = 8       // of a block, when paces were measured
	leastPart  = 512     // bytes of the smallest part of a row: a line for each lane (mori/ep/call.hpp)
)

// costs by call, and by whether rows are large.
var costs = [...][2]cost{
	Dispatch: {
		{8, 4, 256, 11, 0.5, 0, 0, []pace{{8, 169}, {16, 250}, {24, 255}, {64, 277}, {128, 280}}},
		{8, 4, 256, 11, 0.5, 0, 0, []pace{{8, 182}, {16, 286}, {24, 288}, {64, 317}, {128, 323}}},
	},
	Combine: {
		{8, 8, 256, 12, 0.5, 0.72, 0, []pace{{8, 102}, {16, 192}, {24, 240}, {48, 270}, {64, 288}, {96, 302}, {128, 303}}},
		{8, 8, 256, 12, 0.5, 0.72, 0, []pace{{8, 102}, {16, 192}, {24, 240}, {48, 270}, {64, 288}, {96, 302}, {128, 303}}},
	},
	CombineInPlace: {
		{8, 8, 256, 9, 0.5, 1.05, 1.5, []pace{{8, 136}, {16, 270}, {24, 318}, {32, 325}, {128, 326}}},
		{8, 8, 256, 9, 0.5, 1.05, 1.5, []pace{{8, 136}, {16, 270}, {24, 318}, {32, 325}, {128, 326}}},
	},
}

// rate returns the pace with a number of blocks, interpolated between those that were measured.
// Above the largest measured number it stays the same.
func (c *cost) rate(blocks int) float64 {
	before := pace{}
	for _, p := range c.paces {
		if blocks <= p.blocks {
			part := float64(blocks-before.blocks) / float64(p.blocks-before.blocks)
			return before.rate + part*(p.rate-before.rate)
		}
		before = p
	}
	return before.rate
}

// warpsOf returns how many warps a block has.
func (c *cost) warpsOf(tokens int) int {
	if tokens <= c.few {
		return c.fewWarps
	}
	return c.warps
}

// micros returns the microseconds of a call, each of whose tokens moves a number of bytes.
func (c *cost) micros(tokens int, bytes float64, rowBytes uint64, blocks int) float64 {
	all := blocks * c.warpsOf(tokens)
	each := (tokens + all - 1) / all
	parts := 1.0
	if tokens > 0 {
		parts = float64(max(1, min(all/tokens, int(rowBytes/leastPart))))
	}
	warp := c.paces[0].rate / float64(c.paces[0].blocks*pacedWarps)
	if all > tokens && c.alone > 0 {
		warp = c.alone
	}
	rows := float64(each) * (c.token + bytes/warp/1e3/parts)
	late := 0.0
	if all > tokens && all-c.warpsOf(tokens) < tokens*int(parts) {
		late = c.late
	}
	paced := tokens // as if all warps had as many tokens as the one with the most
	if all <= tokens {
		paced = each * all
	}
	return c.fixed + late + perBlock*float64(blocks) + max(rows, float64(paced)*bytes/c.rate(blocks)/1e3)
}

// suggest returns the fewest blocks with which a call takes nearly as long as with the best number
// of blocks up to most. Each token is sent to reach other ranks, as a row of rowBytes.
func suggest(what Call, tokens int, rowBytes uint64, reach float64, most int) Shape {
	c := &costs[what][0]
	if rowBytes > largeRow {
		c = &costs[what][1]
	}
	bytes := float64(rowBytes) * reach
	best := c.micros(tokens, bytes, rowBytes, most)
	for blocks := 1; blocks < most; blocks++ {
		best = min(best, c.micros(tokens, bytes, rowBytes, blocks))
	}
	blocks := 1
	for blocks < most && c.micros(tokens, bytes, rowBytes, blocks) > best*nearly {
		blocks++
	}
	return Shape{blocks, c.warpsOf(tokens)}
}
