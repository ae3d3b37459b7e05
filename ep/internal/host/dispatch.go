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

// A dispatcher carries out dispatches. It has the plan and the weights of the last one.
type dispatcher struct {
	*buffers
	flags   *flags
	state   *call.State
	staging *staging
	threads workers

	number  uint64 // of dispatches so far
	matrix  *plan.CountMatrix
	plan    *plan.Plan
	weights []float32 // of the last dispatch
}

// A column is an array whose rows travel.
type column struct {
	region plan.Region
	source uint64
	bytes  uint64 // of a row
}

// begin plans, and publishes to all ranks how many rows each gets. That also says that this rank no
// longer needs the rows of the last dispatch. The dispatch is complete when rest returns.
func (d *dispatcher) begin(b call.Batch) (rest func() error, err error) {
	rowBytes, err := b.Check(&d.cfg, &d.layout)
	if err != nil {
		return nil, fmt.Errorf("dispatch %d tokens: %w", b.N, err)
	}
	if b.Route != nil {
		err = d.plan.FromMap(view.Of[int32](b.Route.Slots, b.N*d.cfg.TopK))
	} else {
		err = d.plan.Build(view.Of[int32](b.Indices, b.N*d.cfg.TopK))
	}
	if err != nil {
		return nil, fmt.Errorf("dispatch %d tokens: %w", b.N, err)
	}
	d.number++
	d.keepWeights(b)
	if err := d.publish(); err != nil {
		return nil, err
	}
	signature := b.Signature(rowBytes)
	if err := d.flags.set(d.layout.Published, d.number, signature); err != nil {
		return nil, err
	}
	return func() error { return d.finish(b, rowBytes, signature) }, nil
}

// keepWeights keeps the weights for a combine with Weighted.
func (d *dispatcher) keepWeights(b call.Batch) {
	d.weights = d.weights[:0]
	if b.Weights != 0 {
		d.weights = append(d.weights, view.Of[float32](b.Weights, b.N*d.cfg.TopK)...)
	}
}

// publish puts this rank's row into the count matrix of each rank.
func (d *dispatcher) publish() error {
	counts := d.plan.Counts()
	row := d.base + d.layout.CountsRow(d.number, d.cfg.Rank)
	for pe := range d.cfg.WorldSize {
		if err := d.world.PutNbi(row, view.Addr(counts), uint64(len(counts))*plan.Int32Bytes, pe); err != nil {
			return d.state.Break(fmt.Errorf("publish counts to rank %d: %w", pe, err))
		}
	}
	return d.state.Break(d.world.Quiet())
}

// finish waits for the counts of all ranks, copies this rank's rows to their slots, and waits for
// the rows of the others.
func (d *dispatcher) finish(b call.Batch, rowBytes, signature uint64) error {
	if err := d.flags.await("dispatch", d.layout.Published, d.number, signature, everyone); err != nil {
		return err
	}
	refused, err := d.admit(b.Route != nil)
	if err != nil {
		return d.state.Break(err)
	}
	if err := d.sendRows(b, rowBytes); err != nil {
		return d.state.Break(err)
	}
	if err := d.flags.set(d.layout.Arrived, d.number, signature); err != nil {
		return err
	}
	if err := d.flags.await("rows of dispatch", d.layout.Arrived, d.number, signature, everyone); err != nil {
		return err
	}
	d.setReceived(d.matrix.Total(d.cfg.Rank))
	return refused
}

// admit reads the count matrix and places the plan. refused is why this rank sends no rows. err
// breaks the op.
func (d *dispatcher) admit(replay bool) (refused, err error) {
	for source := range d.cfg.WorldSize {
		row := d.matrix.Row(source)
		copy(row, view.Of[int32](d.base+d.layout.CountsRow(d.number, source), len(row)))
	}
	if err := d.matrix.Admit(); err != nil {
		return nil, fmt.Errorf("dispatch %d: %w", d.number, err)
	}
	if replay && d.matrix.Overflow(d.cfg.Rank) == nil {
		if err := d.plan.Moved(d.matrix); err != nil {
			return nil, fmt.Errorf("dispatch %d replays a route: %w", d.number, err)
		}
	}
	return d.plan.Place(d.matrix), nil
}

// sendRows copies this rank's rows to their slots on all ranks.
func (d *dispatcher) sendRows(b call.Batch, rowBytes uint64) error {
	l := &d.layout
	columns := []column{
		{l.DispatchOut, b.Input, rowBytes},
		{l.DispatchOutIndices, b.Indices, l.WeightBytes()},
	}
	if b.Weights != 0 {
		columns = append(columns, column{l.DispatchOutWeights, b.Weights, l.WeightBytes()})
	}
	if n := l.ScaleBytes(); b.Scales != 0 && n != 0 {
		columns = append(columns, column{l.DispatchOutScales, b.Scales, n})
	}
	far := uint64(0) // bytes for ranks whose memory is not mapped
	for pe := range d.cfg.WorldSize {
		if d.world.Ptr(d.base, pe) == 0 {
			far += d.blockBytes(pe, columns)
		}
	}
	stage, err := d.staging.get(far)
	if err != nil {
		return err
	}
	for i := range d.cfg.WorldSize {
		pe := (d.cfg.Rank + i) % d.cfg.WorldSize
		if stage, err = d.sendBlock(pe, columns, stage); err != nil {
			return fmt.Errorf("dispatch to rank %d: %w", pe, err)
		}
	}
	return d.world.Quiet()
}

// blockBytes returns the bytes of the block to pe, with its positions.
func (d *dispatcher) blockBytes(pe int, columns []column) uint64 {
	row := uint64(plan.Int32Bytes)
	for _, c := range columns {
		row += c.bytes
	}
	return uint64(len(d.plan.Block(pe))) * row
}

// sendBlock gathers the block to pe in its memory, or in stage and puts it. It returns the rest of
// stage.
func (d *dispatcher) sendBlock(pe int, columns []column, stage []byte) ([]byte, error) {
	tokens, base := d.plan.Block(pe), d.plan.Base(pe)
	if len(tokens) == 0 {
		return stage, nil
	}
	mapped := d.world.Ptr(d.base, pe)
	for _, c := range columns {
		at := c.region.At(base, c.bytes)
		if mapped != 0 {
			d.gather(mapped+at, c, tokens)
			continue
		}
		size := uint64(len(tokens)) * c.bytes
		d.gather(memory.AddrOf(stage), c, tokens)
		if err := d.world.PutNbi(d.base+at, memory.AddrOf(stage), size, pe); err != nil {
			return stage, err
		}
		stage = stage[size:]
	}
	at := d.layout.SrcPositions.At(base, plan.Int32Bytes)
	if mapped != 0 {
		d.plan.Positions(view.Of[int32](mapped+at, len(tokens)), pe)
		return stage, nil
	}
	size := len(tokens) * plan.Int32Bytes
	d.plan.Positions(view.Of[int32](memory.AddrOf(stage), len(tokens)), pe)
	return stage[size:], d.world.PutNbi(d.base+at, memory.AddrOf(stage), uint64(size), pe)
}

// gather copies the rows of tokens to dst.
func (d *dispatcher) gather(dst uint64, c column, tokens []int32) {
	d.threads.share(len(tokens), c.bytes, func(from, to int) {
		hostmath.GatherRows(dst+uint64(from)*c.bytes, c.source, c.bytes, tokens[from:to])
	})
}
