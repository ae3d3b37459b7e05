// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"

	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/ep/internal/view"
	"mori/native/hostmath"
)

// An Output is what one rank's experts made of the rows that it received, in their order.
type Output struct {
	Rows, Hidden int
	Type         DType
	Input        uint64 // [Rows, Hidden] of Type; not looked at if InPlace
	InPlace      bool   // the rows lie in Layout's CombineIn; so do those whose Input is there
	HasWeights   bool   // weights travel with the rows, and their sums come back
	Weights      uint64 // float32 [Rows, TopK] if HasWeights
	Route        *Route // of the dispatch that brought the rows, if it is not the last one
	Launch       Launch // on a GPU
	Weighted     bool   // multiply each row by the weights that the token's rank gave its experts; a Route must be as the last dispatch was
}

// Combine brings every token's rows back to the token's rank and sums them, in float32, rounded
// once: Layout's CombineOut [N, Hidden], and CombineOutWeights [N, TopK] if HasWeights. Rows are
// not multiplied by weights, unless Weighted: then by the sum of the weights that the last dispatch
// was given for this token's experts at that rank. A token that went nowhere is zeros. The next
// combine overwrites the result.
func (o *Op) Combine(out Output) error {
	if o.gpu != nil {
		return o.gpu.combine(out, phaseSend|phaseRecv)
	}
	rest, err := o.beginCombine(out)
	if err != nil {
		return err
	}
	return rest()
}

// CombineSend begins a combine, which goes on by itself; CombineRecv waits for it.
func (o *Op) CombineSend(out Output) error {
	if o.gpu != nil {
		return o.gpu.combine(out, phaseSend)
	}
	rest, err := o.beginCombine(out)
	if err == nil {
		o.start(rest)
	}
	return err
}

// CombineRecv ends what CombineSend began.
func (o *Op) CombineRecv() error {
	if o.gpu != nil {
		return o.gpu.combineRecv()
	}
	return o.end("combine_recv")
}

// A transport is how combine's rows lie in CombineIn.
type transport struct {
	rowBytes uint64
	rowType  DType
	blocks   int // scales of a row, 0: none
}

// beginCombine puts the rows where the others find them, and tells them.
func (o *Op) beginCombine(out Output) (rest func() error, err error) {
	out.InPlace = out.InPlace || out.Input == o.base+o.layout.CombineIn.Offset
	p, rows, err := o.checkOutput(out)
	if err != nil {
		return nil, fmt.Errorf("combine %d rows: %w", out.Rows, err)
	}
	way, err := o.transport(out)
	if err != nil {
		return nil, fmt.Errorf("combine %d rows: %w", out.Rows, err)
	}
	// Nobody reads the rows of the last combine any more.
	if err := o.await("combine after", o.layout.Pulled, o.combines, anyStamp, everyone); err != nil {
		return nil, err
	}
	if err := o.fill(out, rows, way); err != nil {
		return nil, o.breaks(err)
	}
	o.combines++
	mark := plan.Signature(way.rowBytes, uint64(out.Type), uint64(way.rowType))
	if err := o.raise(o.layout.Ready, o.combines, mark); err != nil {
		return nil, err
	}
	return func() error { return o.finishCombine(out, p, way, mark) }, nil
}

// checkOutput looks at everything that can be wrong before anybody hears of the call, and tells
// which dispatch it answers.
func (o *Op) checkOutput(out Output) (p *plan.Plan, rows int, err error) {
	if err := o.usable(); err != nil {
		return nil, 0, err
	}
	if _, err := o.layout.RowBytes(out.Hidden, out.Type); err != nil {
		return nil, 0, err
	}
	if err := o.cfg.CheckQuant(out.Type, !out.InPlace); err != nil {
		return nil, 0, err
	}
	p, rows = o.plan, o.received
	if out.Route != nil {
		p, rows = o.replayed, out.Route.Rows
		if rows < 0 || rows > o.cfg.MaxRecv() {
			return nil, 0, fmt.Errorf("a route of %d received rows, at most %d can be: %w", rows, o.cfg.MaxRecv(), ErrShape)
		}
		if err := p.FromMap(view.Of[int32](out.Route.Slots, out.Route.N*o.cfg.TopK)); err != nil {
			return nil, 0, err
		}
	}
	switch {
	case out.Weighted && out.Route != nil && !o.plan.Same(view.Of[int32](out.Route.Slots, out.Route.N*o.cfg.TopK)):
		return nil, 0, fmt.Errorf("weighted, with the route of another dispatch than the last, whose weights are not kept: %w", ErrShape)
	case out.Weighted && len(o.weights) != p.Tokens()*o.cfg.TopK:
		return nil, 0, fmt.Errorf("weighted, after a dispatch without weights: %w", ErrShape)
	case !out.InPlace && out.Rows < rows:
		return nil, 0, fmt.Errorf("the dispatch brought %d: %w", rows, ErrShape)
	case rows > 0 && (!out.InPlace && out.Input == 0 || out.HasWeights && out.Weights == 0):
		return nil, 0, fmt.Errorf("no rows or no weights: %w", ErrShape)
	}
	return p, rows, nil
}

// transport is how rows travel: as they are, or quantised. What lies in place is not touched.
func (o *Op) transport(out Output) (transport, error) {
	bytes, err := o.layout.RowBytes(out.Hidden, out.Type)
	way := transport{rowBytes: bytes, rowType: out.Type}
	if err != nil || out.InPlace || out.Type != BFloat16 {
		return way, err
	}
	switch o.cfg.QuantType {
	case QuantFp8Blockwise:
		way.blocks = o.layout.ScaleBlocks
	case QuantFp8DirectCast:
	default:
		return way, nil
	}
	way.rowBytes, way.rowType = uint64(out.Hidden), Float8E4M3FN
	return way, nil
}

// fill puts rows and weights into CombineIn and the regions beside it.
func (o *Op) fill(out Output, rows int, way transport) error {
	if out.HasWeights {
		memory.Copy(o.base+o.layout.CombineInWeights.Offset, out.Weights, uint64(rows)*o.layout.WeightBytes())
	}
	if out.InPlace {
		return nil
	}
	in := uint64(out.Hidden) * out.Type.Size()
	to, scales := o.base+o.layout.CombineIn.Offset, o.base+o.layout.CombineInScales.Offset
	return o.shareErr(rows, in, func(first, end int) error {
		n, source, dest := end-first, out.Input+uint64(first)*in, to+uint64(first)*way.rowBytes
		switch {
		case way.blocks != 0:
			return hostmath.QuantBlocks(dest, scales+uint64(first*way.blocks)*plan.Float32Bytes, source, out.Type, n, out.Hidden, way.blocks)
		case way.rowType != out.Type:
			return hostmath.Convert(dest, way.rowType, source, out.Type, n*out.Hidden, true)
		default:
			hostmath.CopyRows(dest, in, source, in, in, uint64(n))
		}
		return nil
	})
}

// finishCombine waits for the ranks that have rows of this one's tokens, sums these, and tells that
// nobody need keep them.
func (o *Op) finishCombine(out Output, p *plan.Plan, way transport, mark uint64) error {
	counts := p.Counts()
	if err := o.await("combine", o.layout.Ready, o.combines, mark, func(d int) bool { return counts[d] != 0 }); err != nil {
		return err
	}
	if err := o.sum(out, p, way); err != nil {
		return o.breaks(err)
	}
	if err := o.raise(o.layout.Pulled, o.combines, 0); err != nil {
		return err
	}
	if out.Route == nil && !o.keep {
		o.setReceived(0)
	}
	if !out.InPlace {
		return nil
	}
	// The caller may fill CombineIn anew as soon as this returns.
	return o.await("end of combine", o.layout.Pulled, o.combines, anyStamp, everyone)
}

// sum makes CombineOut and CombineOutWeights.
func (o *Op) sum(out Output, p *plan.Plan, way transport) error {
	rows := column{region: o.layout.CombineIn, bytes: way.rowBytes}
	scales := column{region: o.layout.CombineInScales, bytes: uint64(way.blocks) * plan.Float32Bytes}
	weights := column{region: o.layout.CombineInWeights, bytes: o.layout.WeightBytes()}
	if !out.HasWeights {
		weights.bytes = 0
	}
	at, err := o.pull(p, []*column{&rows, &scales, &weights})
	if err != nil {
		return err
	}
	n, m := p.Tokens(), o.cfg.MaxRows()
	var factors []float32
	if out.Weighted {
		factors = o.spread(p)
	}
	o.sources = o.addresses(o.sources, p, at[0], rows.bytes)
	if way.blocks != 0 {
		o.scales = o.addresses(o.scales, p, at[1], scales.bytes)
	}
	dst, outType := o.base+o.layout.CombineOut.Offset, out.Type
	outBytes := uint64(out.Hidden) * out.Type.Size()
	err = o.shareErr(n, outBytes*uint64(m), func(first, end int) error {
		var f []float32
		if factors != nil {
			f = factors[first*m : end*m]
		}
		to, from := dst+uint64(first)*outBytes, o.sources[first*m:end*m]
		if way.blocks != 0 {
			return hostmath.SumQuantRows(to, outType, end-first, out.Hidden, way.blocks, from, o.scales[first*m:end*m], f)
		}
		return hostmath.SumRows(to, outType, end-first, out.Hidden, from, way.rowType, f)
	})
	if err != nil || !out.HasWeights {
		return err
	}
	o.sources = o.addresses(o.sources, p, at[2], weights.bytes)
	return hostmath.SumRows(o.base+o.layout.CombineOutWeights.Offset, Float32, n, o.cfg.TopK, o.sources, Float32, nil)
}

// pull tells where, in this process, row 0 of each column of each rank is, so that slots count from
// there: mapped, or fetched into staging.
func (o *Op) pull(p *plan.Plan, columns []*column) (at [][]uint64, err error) {
	at = make([][]uint64, len(columns))
	far := uint64(0)
	for d, count := range p.Counts() {
		if o.world.Ptr(o.base, d) != 0 {
			continue
		}
		for _, c := range columns {
			far += uint64(count) * c.bytes
		}
	}
	stage, err := o.stage(far)
	if err != nil {
		return nil, err
	}
	for i, c := range columns {
		at[i] = make([]uint64, o.cfg.WorldSize)
		for d, count := range p.Counts() {
			size := uint64(count) * c.bytes
			if mapped := o.world.Ptr(o.base, d); mapped != 0 || size == 0 {
				at[i][d] = mapped + c.region.Offset
				continue
			}
			base := uint64(p.Base(d)) * c.bytes
			if err := o.world.GetNbi(memory.AddrOf(stage), o.base+c.region.Offset+base, size, d); err != nil {
				return nil, fmt.Errorf("combine from rank %d: %w", d, err)
			}
			at[i][d] = memory.AddrOf(stage) - base
			stage = stage[size:]
		}
	}
	return at, o.world.Quiet()
}

// addresses lists where the rows of each token are, MaxRows for each token, 0 where there is none.
func (o *Op) addresses(list []uint64, p *plan.Plan, at []uint64, rowBytes uint64) []uint64 {
	m := o.cfg.MaxRows()
	if n := p.Tokens() * m; cap(list) < n {
		list = make([]uint64, n)
	} else {
		list = list[:n]
	}
	clear(list)
	for t := range p.Tokens() {
		i := t * m
		for d, slot := range p.Rows(t) {
			list[i] = at[d] + uint64(slot)*rowBytes
			i++
		}
	}
	return list
}

// spread lists the factors of the rows as addresses lists the rows.
func (o *Op) spread(p *plan.Plan) []float32 {
	m := o.cfg.MaxRows()
	if cap(o.sums) < p.Len() {
		o.sums = make([]float32, p.Len())
	}
	if n := p.Tokens() * m; cap(o.factors) < n {
		o.factors = make([]float32, n)
	}
	sums, factors := o.sums[:p.Len()], o.factors[:p.Tokens()*m]
	p.Weights(sums, o.weights)
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
