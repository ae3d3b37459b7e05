// SPDX-License-Identifier: MIT

package ep

// Launch is how many blocks a kernel gets, and warps for each; what is not above 0 is chosen. More than the device runs at once are
// never launched, since blocks wait for each other.
type Launch struct{ Blocks, Warps int }

// A call is what a launch is chosen for.
type call int

const (
	callDispatch call = iota
	callCombine
	callCombineInPlace // the rows lie in CombineIn already
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
// The paces were measured between two H200s (NVLink), of dispatch with blocks of 16 warps: docs/performance.md, "Dispatch and combine". Those of a
// combine that moves its rows first were with 128 blocks, and are estimated with fewer.
// Combine has 16 warps and rows through registers with few blocks, and 8 warps and rows through shared memory from 32 on. A warp is as fast
// as the fewest blocks make it. The rest is estimated; mori tune ep knows better.
type cost struct {
	warps, fewWarps int     // of a block; with few tokens, so that their rows come by way of more multiprocessors
	few             int     // tokens
	fewBlocks       int     // below them blocks have pacedWarps, which hide each other's waits
	fixed           float64 // exchanges of flags, and the plan
	token           float64 // where a row begins and ends
	paces           []pace
}

const (
	largeRow   = 8 << 10 // bytes; rows above are paced by the second of two
	nearly     = 1.02    // more blocks that save less than this are not taken
	perBlock   = 0.03    // microseconds: all blocks arrive at one counter
	pacedWarps = 16      // of a block, when paces were measured
	leastPart  = 512     // bytes of a row that a warp takes at least: a line for each lane (mori/ep/call.hpp)
)

// costs by call, and by whether rows are large.
var costs = [...][2]cost{
	callDispatch: {
		{16, 4, 256, 0, 12, 0.5, []pace{{8, 90}, {24, 211}, {64, 264}, {128, 272}}},
		{16, 4, 256, 0, 12, 0.5, []pace{{8, 139}, {24, 249}, {64, 304}, {128, 312}}},
	},
	callCombine: {
		{8, 4, 256, 32, 10, 0.5, []pace{{8, 48}, {24, 150}, {32, 208}, {64, 228}, {128, 240}}},
		{8, 4, 256, 32, 10, 0.5, []pace{{8, 48}, {24, 150}, {32, 208}, {64, 228}, {128, 240}}},
	},
	callCombineInPlace: {
		{8, 4, 256, 32, 8, 0.5, []pace{{8, 82}, {24, 234}, {32, 303}, {128, 307}}},
		{8, 4, 256, 32, 8, 0.5, []pace{{8, 82}, {24, 234}, {32, 303}, {128, 307}}},
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
func (c *cost) warpsOf(tokens, blocks int) int {
	switch {
	case tokens <= c.few:
		return c.fewWarps
	case blocks < c.fewBlocks:
		return pacedWarps
	}
	return c.warps
}

// micros is how long a call takes whose tokens have so many bytes each on the way.
func (c *cost) micros(tokens int, bytes float64, rowBytes uint64, blocks int) float64 {
	all := blocks * c.warpsOf(tokens, blocks)
	each := (tokens + all - 1) / all
	parts := 1.0
	if tokens > 0 {
		parts = float64(max(1, min(all/tokens, int(rowBytes/leastPart))))
	}
	warp := c.paces[0].rate / float64(c.paces[0].blocks*pacedWarps)
	rows := float64(each) * (c.token + bytes/warp/1e3/parts)
	return c.fixed + perBlock*float64(blocks) + max(rows, float64(tokens)*bytes/c.rate(blocks)/1e3)
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
	return Launch{blocks, c.warpsOf(tokens, blocks)}
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
