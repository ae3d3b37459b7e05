// SPDX-License-Identifier: MIT

package launch

import "mori/ep/internal/plan"

// A Chooser chooses the shapes of one op's launches. It remembers its choices, so that a repeated
// call does not run the cost model again. Not safe for concurrent use.
type Chooser struct {
	cfg    plan.Config
	rules  []Rule // of mode AUTO
	most   int    // blocks that the cost model may suggest
	chosen map[likeCall]Shape
}

// A likeCall is what a choice depends on besides what the call asks for.
type likeCall struct {
	what     Call
	tokens   int
	rowBytes uint64
}

// mostChosen is how many choices are kept. Programs have few numbers of tokens. One that has more
// runs the cost model more often.
const mostChosen = 1 << 12

// NewChooser returns a Chooser for an op. rules may be nil. most is the largest number of blocks
// that the cost model may suggest.
func NewChooser(cfg plan.Config, rules []Rule, most int) *Chooser {
	return &Chooser{cfg: cfg, rules: rules, most: most, chosen: map[likeCall]Shape{}}
}

// Choose returns the shape of a call: what it asks for, then what a tuning table has, then what the
// configuration asks for, then what the cost model suggests.
func (c *Chooser) Choose(asked Shape, what Call, tokens int, rowBytes uint64) Shape {
	if asked.Blocks > 0 && asked.Warps > 0 {
		return asked
	}
	like := likeCall{what, tokens, rowBytes}
	s, known := c.chosen[like]
	if !known {
		if len(c.chosen) >= mostChosen {
			clear(c.chosen)
		}
		s = c.decide(like)
		c.chosen[like] = s
	}
	return asked.or(s)
}

func (c *Chooser) decide(like likeCall) Shape {
	suggested := suggest(like.what, like.tokens, like.rowBytes, reach(c.cfg), c.most)
	return ruled(c.rules, like.what, like.tokens, like.rowBytes).or(configured(c.cfg)).or(suggested)
}

// reach returns how many other ranks a token is sent to if experts are chosen evenly: all TopK
// choices miss a rank, or one does not.
func reach(c plan.Config) float64 {
	missed, share := 1.0, 1-1/float64(c.WorldSize)
	for range c.TopK {
		missed *= share
	}
	return float64(c.WorldSize-1) * (1 - missed)
}

// configured returns what the configuration asks for, or nothing if it has its defaults: those suit
// other devices.
func configured(c plan.Config) Shape {
	if d := plan.DefaultConfig(); c.BlockNum == d.BlockNum && c.WarpNumPerBlock == d.WarpNumPerBlock {
		return Shape{}
	}
	return Shape{c.BlockNum, c.WarpNumPerBlock}
}
