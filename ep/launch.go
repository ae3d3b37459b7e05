// SPDX-License-Identifier: MIT

package ep

// Launch is how many blocks a kernel gets, and warps for each; what is not above 0 is chosen. More than the device runs at once are
// never launched, since blocks wait for each other.
type Launch struct{ Blocks, Warps int }

// A call is what a launch is chosen for.
type call int

const (
	callDispatch       call = iota
	callCombine             // rows that lie elsewhere are sent, or copied and pulled if they are few
	callCombineInPlace      // the rows lie in CombineIn already
)

// The names of calls in tuning tables.
var callNames = [...]string{"dispatch", "combine", "combine_in_place"}

// A pace is how fast rows go over the wire with so many blocks.
type pace struct {
	blocks int
	rate   float64 // GB/s, of one GPU
}

// A cost is what a call takes, in microseconds: fixed, a little for each block, and then the longer one of two: each warp's rows after each
// other, or all rows at the pace that the blocks have. Where tokens are fewer than warps, these share rows.
//
// The paces were measured between two H200s (NVLink) with blocks of 8 warps: docs/lab/ep.md. A warp is as fast as the
// fewest blocks make it. The rest is estimated; mori tune ep knows better.
type cost struct {
	warps, fewWarps int     // of a block; with few tokens, so that their rows come by way of more multiprocessors
	few             int     // tokens
	fixed           float64 // exchanges of flags, and the plan
	token           float64 // where a row begins and ends
	alone           float64 // GB/s of a warp that has a part of a row, where rows come another way then; 0: they do not
	late            float64 // where each block has a part of a row, so that none tells at once that the rows lie ready
	paces           []pace
}

const (
	largeRow   = 8 << 10 // bytes; rows above are paced by the second of two
	nearly     = 1.02    // more blocks that save less than this are not taken
	perBlock   = 0.03    // microseconds: all blocks arrive at one counter
	pacedWarps = 8       // of a block, when paces were measured
	leastPart  = 512     // bytes of a row that a warp takes at least: a line for each lane (mori/ep/call.hpp)
)

// costs by call, and by whether rows are large.
var costs = [...][2]cost{
	callDispatch: {
		{8, 4, 256, 11, 0.5, 0, 0, []pace{{8, 169}, {16, 250}, {24, 255}, {64, 277}, {128, 280}}},
		{8, 4, 256, 11, 0.5, 0, 0, []pace{{8, 182}, {16, 286}, {24, 288}, {64, 317}, {128, 323}}},
	},
	callCombine: {
		{8, 8, 256, 12, 0.5, 0.72, 0, []pace{{8, 102}, {16, 192}, {24, 240}, {48, 270}, {64, 288}, {96, 302}, {128, 303}}},
		{8, 8, 256, 12, 0.5, 0.72, 0, []pace{{8, 102}, {16, 192}, {24, 240}, {48, 270}, {64, 288}, {96, 302}, {128, 303}}},
	},
	callCombineInPlace: {
		{8, 8, 256, 9, 0.5, 1.05, 1.5, []pace{{8, 136}, {16, 270}, {24, 318}, {32, 325}, {128, 326}}},
		{8, 8, 256, 9, 0.5, 1.05, 1.5, []pace{{8, 136}, {16, 270}, {24, 318}, {32, 325}, {128, 326}}},
	},
}

// rate is the pace between those that were measured; with more blocks than any, that of the most.
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

// warpsOf is how many warps a block has.
func (c *cost) warpsOf(tokens int) int {
	if tokens <= c.few {
		return c.fewWarps
	}
	return c.warps
}

// micros is how long a call takes whose tokens have so many bytes each on the way.
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
	paced := tokens // as if all warps had as many as those with the most
	if all <= tokens {
		paced = each * all
	}
	return c.fixed + late + perBlock*float64(blocks) + max(rows, float64(paced)*bytes/c.rate(blocks)/1e3)
}

// suggest is the fewest blocks, of at most so many, with which a call of tokens takes nearly as long as with the best number. Rows of
// rowBytes go to reach other ranks each.
func suggest(what call, tokens int, rowBytes uint64, reach float64, most int) Launch {
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
	return Launch{blocks, c.warpsOf(tokens)}
}

// reach is how many other ranks a token goes to, if experts are chosen evenly: each rank is missed by all TopK choices or it is not.
func (c Config) reach() float64 {
	missed, share := 1.0, 1-1/float64(c.WorldSize)
	for range c.TopK {
		missed *= share
	}
	return float64(c.WorldSize-1) * (1 - missed)
}

// configured is what the configuration asks for, nothing if it has its defaults: those suit other devices.
func (c Config) configured() Launch {
	if d := DefaultConfig(); c.BlockNum == d.BlockNum && c.WarpNumPerBlock == d.WarpNumPerBlock {
		return Launch{}
	}
	return Launch{c.BlockNum, c.WarpNumPerBlock}
}

// or fills what l leaves open from other.
func (l Launch) or(other Launch) Launch {
	if l.Blocks <= 0 {
		l.Blocks = other.Blocks
	}
	if l.Warps <= 0 {
		l.Warps = other.Warps
	}
	return l
}
