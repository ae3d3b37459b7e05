// SPDX-License-Identifier: MIT

package host

import (
	"fmt"

	"mori/core/memory"
	"mori/ep/internal/call"
	"mori/ep/internal/plan"
	"mori/ep/internal/view"
	"mori/native/hostmath"
)

// A combiner carries out combines. Most slices are scratch that it keeps between calls.
type combiner struct {
	*buffers
	flags   *flags
	state   *call.State
	last    *dispatcher // has the plan and the weights of the last dispatch
	threads workers
	puller  puller

	number   uint64 // of combines so far
	keep     bool   // the number of received rows
	replayed *plan.Plan

	sources []uint64  // addresses of rows
	scales  []uint64  // and of their scales
	factors []float32 // of rows, as sources lists these
	sums    []float32 // and by row of the plan
}

// begin puts the rows where the others find them, and sets Ready. The combine is complete when rest
// returns.
func (c *combiner) begin(out call.Output) (rest func() error, err error) {
	out.InPlace = out.InPlace || out.Input == c.at(c.layout.CombineIn)
	p, rows, err := c.check(out)
	if err != nil {
		return nil, fmt.Errorf("combine %d rows: %w", out.Rows, err)
	}
	format, err := out.Format(&c.cfg, &c.layout)
	if err != nil {
		return nil, fmt.Errorf("combine %d rows: %w", out.Rows, err)
	}
	if err := c.awaitPulled("combine after"); err != nil {
		return nil, err
	}
	if err := c.fill(out, rows, format); err != nil {
		return nil, c.state.Break(err)
	}
	c.number++
	signature := out.Signature(format)
	if err := c.flags.set(c.layout.Ready, c.number, signature); err != nil {
		return nil, err
	}
	return func() error { return c.finish(out, p, format, signature) }, nil
}

// awaitPulled waits until no rank reads the rows of the last combine any more.
func (c *combiner) awaitPulled(act string) error {
	return c.flags.await(act, c.layout.Pulled, c.number, anySignature, everyone)
}

// check returns an error if the call does not fit the op, else the plan of the dispatch that it
// answers and the number of rows that it brought.
func (c *combiner) check(out call.Output) (p *plan.Plan, rows int, err error) {
	if _, err := c.layout.RowBytes(out.Hidden, out.Type); err != nil {
		return nil, 0, err
	}
	if err := c.cfg.CheckQuant(out.Type, !out.InPlace); err != nil {
		return nil, 0, err
	}
	p, rows = c.last.plan, c.rows
	if out.Route != nil {
		p, rows = c.replayed, out.Route.Rows
		if rows < 0 || rows > c.cfg.MaxRecv() {
			return nil, 0, fmt.Errorf("a routing handle with %d received rows, want at most %d: %w",
				rows, c.cfg.MaxRecv(), plan.ErrShape)
		}
		if err := p.FromMap(view.Of[int32](out.Route.Slots, out.Route.N*c.cfg.TopK)); err != nil {
			return nil, 0, err
		}
	}
	switch {
	case out.Weighted && out.Route != nil && !c.repeatsLast(out.Route):
		return nil, 0, fmt.Errorf("weighted=True with a routing handle that is not the last dispatch's, whose weights are not kept: %w", plan.ErrShape)
	case out.Weighted && len(c.last.weights) != p.Tokens()*c.cfg.TopK:
		return nil, 0, fmt.Errorf("weighted=True after a dispatch without weights: %w", plan.ErrShape)
	case !out.InPlace && out.Rows < rows:
		return nil, 0, fmt.Errorf("the dispatch received %d: %w", rows, plan.ErrShape)
	case rows > 0 && (!out.InPlace && out.Input == 0 || out.HasWeights && out.Weights == 0):
		return nil, 0, fmt.Errorf("rows or weights are missing: %w", plan.ErrShape)
	}
	return p, rows, nil
}

// repeatsLast reports whether a route is that of the last dispatch.
func (c *combiner) repeatsLast(r *call.Route) bool {
	return c.last.plan.Same(view.Of[int32](r.Slots, r.N*c.cfg.TopK))
}

// fill puts rows and weights into CombineIn and the regions beside it.
func (c *combiner) fill(out call.Output, rows int, f call.RowFormat) error {
	if out.HasWeights {
		memory.Copy(c.at(c.layout.CombineInWeights), out.Weights, uint64(rows)*c.layout.WeightBytes())
	}
	if out.InPlace {
		return nil
	}
	in := uint64(out.Hidden) * out.Type.Size()
	to, scales := c.at(c.layout.CombineIn), c.at(c.layout.CombineInScales)
	return c.threads.shareErr(rows, in, func(first, end int) error {
		n, source, dest := end-first, out.Input+uint64(first)*in, to+uint64(first)*f.Bytes
		switch {
		case f.Blocks != 0:
			at := scales + uint64(first*f.Blocks)*plan.Float32Bytes
			return hostmath.QuantBlocks(dest, at, source, out.Type, n, out.Hidden, f.Blocks)
		case f.Type != out.Type:
			return hostmath.Convert(dest, f.Type, source, out.Type, n*out.Hidden, true)
		default:
			hostmath.CopyRows(dest, in, source, in, in, uint64(n))
		}
		return nil
	})
}

// finish waits for the ranks that have rows of this rank's tokens, sums the rows, and sets Pulled.
func (c *combiner) finish(out call.Output, p *plan.Plan, f call.RowFormat, signature uint64) error {
	counts := p.Counts()
	sender := func(pe int) bool { return counts[pe] != 0 }
	if err := c.flags.await("combine", c.layout.Ready, c.number, signature, sender); err != nil {
		return err
	}
	if err := c.sum(out, p, f); err != nil {
		return c.state.Break(err)
	}
	if err := c.flags.set(c.layout.Pulled, c.number, 0); err != nil {
		return err
	}
	if out.Route == nil && !c.keep {
		c.setReceived(0)
	}
	if !out.InPlace {
		return nil
	}
	// The caller may fill CombineIn again as soon as this returns.
	return c.awaitPulled("end of combine")
}

// sum fills CombineOut and CombineOutWeights.
func (c *combiner) sum(out call.Output, p *plan.Plan, f call.RowFormat) error {
	rows := column{region: c.layout.CombineIn, bytes: f.Bytes}
	scales := column{region: c.layout.CombineInScales, bytes: uint64(f.Blocks) * plan.Float32Bytes}
	weights := column{region: c.layout.CombineInWeights, bytes: c.layout.WeightBytes()}
	if !out.HasWeights {
		weights.bytes = 0
	}
	at, err := c.puller.pull(p, []*column{&rows, &scales, &weights})
	if err != nil {
		return err
	}
	n, m := p.Tokens(), c.cfg.MaxRows()
	var factors []float32
	if out.Weighted {
		factors = c.factorsOf(p)
	}
	c.sources = c.addresses(c.sources, p, at[0], rows.bytes)
	if f.Blocks != 0 {
		c.scales = c.addresses(c.scales, p, at[1], scales.bytes)
	}
	dst, outType := c.at(c.layout.CombineOut), out.Type
	outBytes := uint64(out.Hidden) * out.Type.Size()
	err = c.threads.shareErr(n, outBytes*uint64(m), func(first, end int) error {
		var mine []float32
		if factors != nil {
			mine = factors[first*m : end*m]
		}
		to, from := dst+uint64(first)*outBytes, c.sources[first*m:end*m]
		if f.Blocks != 0 {
			scalesAt := c.scales[first*m : end*m]
			return hostmath.SumQuantRows(to, outType, end-first, out.Hidden, f.Blocks, from, scalesAt, mine)
		}
		return hostmath.SumRows(to, outType, end-first, out.Hidden, from, f.Type, mine)
	})
	if err != nil || !out.HasWeights {
		return err
	}
	c.sources = c.addresses(c.sources, p, at[2], weights.bytes)
	back := c.at(c.layout.CombineOutWeights)
	return hostmath.SumRows(back, plan.Float32, n, c.cfg.TopK, c.sources, plan.Float32, nil)
}

// addresses lists the addresses of each token's rows, MaxRows for each token, 0 where it has fewer.
func (c *combiner) addresses(list []uint64, p *plan.Plan, at []uint64, rowBytes uint64) []uint64 {
	m := c.cfg.MaxRows()
	if n := p.Tokens() * m; cap(list) < n {
		list = make([]uint64, n)
	} else {
		list = list[:n]
	}
	clear(list)
	for t := range p.Tokens() {
		i := t * m
		for pe, slot := range p.Rows(t) {
			list[i] = at[pe] + uint64(slot)*rowBytes
			i++
		}
	}
	return list
}

// factorsOf lists the factors of the rows as addresses lists the rows.
func (c *combiner) factorsOf(p *plan.Plan) []float32 {
	m := c.cfg.MaxRows()
	if cap(c.sums) < p.Len() {
		c.sums = make([]float32, p.Len())
	}
	if n := p.Tokens() * m; cap(c.factors) < n {
		c.factors = make([]float32, n)
	}
	sums, factors := c.sums[:p.Len()], c.factors[:p.Tokens()*m]
	p.Weights(sums, c.last.weights)
	row := 0
	for t := range p.Tokens() {
		i := t * m
		for range p.Rows(t) {
			factors[i] = sums[row]
			i, row = i+1, row+1
		}
	}
	return factors
}
