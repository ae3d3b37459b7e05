// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"

	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/ep/internal/view"
	"mori/native/hostmath"
)

// A Batch is what one rank dispatches: N tokens, by addresses of contiguous arrays. N may be 0 and
// differ between ranks; everything else is alike.
type Batch struct {
	N, Hidden int
	Type      DType
	Input     uint64 // [N, Hidden] of Type
	Indices   uint64 // int32 [N, TopK]: experts; a number that is no expert's goes nowhere
	Weights   uint64 // float32 [N, TopK], or 0
	Scales    uint64 // [N, ScaleDim] of ScaleTypeSize bytes, or 0
	Route     *Route // replays an earlier dispatch; Indices still travel with the rows
	Launch    Launch // on a GPU
}

// A Route is what an earlier dispatch did with its tokens, for Dispatch and Combine to do again.
type Route struct {
	Slots  uint64 // int32 [N, TopK], as Op.Slots filled it
	N      int    // tokens
	Rows   int    // that this rank received; on a GPU, where RowsAt is 0, too
	RowsAt uint64 // on a GPU: where they are counted, int32
}

// Dispatch sends each token once to every rank that has an expert of it, and returns how many rows
// came here: the first rows of Layout's DispatchOut and of the regions behind it, in the order of
// (source rank, token). The next dispatch overwrites them.
//
// On a GPU it queues the work on the stream and returns at once; rows is -1 then, and Received is
// where they are counted.
//
// A rank whose rows would overflow a destination gets a *CapError, and nothing of it is sent; the
// others, and the op, go on.
func (o *Op) Dispatch(b Batch) (rows int, err error) {
	if o.gpu != nil {
		return -1, o.gpu.dispatch(b, phaseSend|phaseRecv)
	}
	rest, err := o.beginDispatch(b)
	if err == nil {
		err = rest()
	}
	return o.received, err
}

// DispatchSend begins a dispatch, which goes on by itself; DispatchRecv waits for it.
func (o *Op) DispatchSend(b Batch) error {
	if o.gpu != nil {
		return o.gpu.dispatch(b, phaseSend)
	}
	rest, err := o.beginDispatch(b)
	if err == nil {
		o.start(rest)
	}
	return err
}

// DispatchRecv ends what DispatchSend began, as Dispatch ends.
func (o *Op) DispatchRecv() (rows int, err error) {
	if o.gpu != nil {
		return -1, o.gpu.dispatchRecv()
	}
	err = o.end("dispatch_recv")
	return o.received, err
}

// beginDispatch plans, and tells all ranks how many rows each gets. That also tells them that this
// rank is done with the rows of the last dispatch.
func (o *Op) beginDispatch(b Batch) (rest func() error, err error) {
	rowBytes, err := o.checkBatch(b)
	if err != nil {
		return nil, fmt.Errorf("dispatch %d tokens: %w", b.N, err)
	}
	if b.Route != nil {
		err = o.plan.FromMap(view.Of[int32](b.Route.Slots, b.N*o.cfg.TopK))
	} else {
		err = o.plan.Build(view.Of[int32](b.Indices, b.N*o.cfg.TopK))
	}
	if err != nil {
		return nil, fmt.Errorf("dispatch %d tokens: %w", b.N, err)
	}
	o.dispatches++
	o.keepWeights(b)
	if err := o.publish(); err != nil {
		return nil, err
	}
	mark := plan.Signature(rowBytes, uint64(b.Type))
	if err := o.raise(o.layout.Published, o.dispatches, mark); err != nil {
		return nil, err
	}
	return func() error { return o.finishDispatch(b, rowBytes, mark) }, nil
}

// checkBatch looks at everything that can be wrong before anybody hears of the call.
func (o *Op) checkBatch(b Batch) (rowBytes uint64, err error) {
	if err := o.usable(); err != nil {
		return 0, err
	}
	switch {
	case b.N < 0 || b.N > o.cfg.MaxNumInpToken:
		return 0, fmt.Errorf("at most %d tokens: %w", o.cfg.MaxNumInpToken, ErrShape)
	case !plan.Dispatchable(b.Type):
		return 0, fmt.Errorf("rows of %v: %w", b.Type, ErrShape)
	case b.N > 0 && (b.Input == 0 || b.Indices == 0):
		return 0, fmt.Errorf("no rows or no indices: %w", ErrShape)
	case b.Route != nil && b.Route.N != b.N:
		return 0, fmt.Errorf("the route is of %d tokens: %w", b.Route.N, ErrShape)
	}
	return o.layout.RowBytes(b.Hidden, b.Type)
}

// keepWeights keeps the weights for a combine that applies them.
func (o *Op) keepWeights(b Batch) {
	o.weights = o.weights[:0]
	if b.Weights != 0 {
		o.weights = append(o.weights, view.Of[float32](b.Weights, b.N*o.cfg.TopK)...)
	}
}

// publish puts this rank's row of counts on everybody's board.
func (o *Op) publish() error {
	counts := o.plan.Counts()
	row := o.base + o.layout.CountsRow(o.dispatches, o.cfg.Rank)
	for pe := range o.cfg.WorldSize {
		if err := o.world.PutNbi(row, view.Addr(counts), uint64(len(counts))*plan.Int32Bytes, pe); err != nil {
			return o.breaks(fmt.Errorf("publish counts to rank %d: %w", pe, err))
		}
	}
	return o.breaks(o.world.Quiet())
}

// finishDispatch waits for everybody's counts, moves the rows to where these say, and waits for the
// rows of the others.
func (o *Op) finishDispatch(b Batch, rowBytes, mark uint64) error {
	if err := o.await("dispatch", o.layout.Published, o.dispatches, mark, everyone); err != nil {
		return err
	}
	refused, err := o.admit(b.Route != nil)
	if err != nil {
		return o.breaks(err)
	}
	if err := o.sendRows(b, rowBytes); err != nil {
		return o.breaks(err)
	}
	if err := o.raise(o.layout.Arrived, o.dispatches, mark); err != nil {
		return err
	}
	if err := o.await("rows of dispatch", o.layout.Arrived, o.dispatches, mark, everyone); err != nil {
		return err
	}
	o.setReceived(o.board.Total(o.cfg.Rank))
	return refused
}

// admit reads the board and places the plan. refused is why this rank's rows are not sent; err is
// worse.
func (o *Op) admit(replay bool) (refused, err error) {
	for source := range o.cfg.WorldSize {
		row := o.board.Row(source)
		copy(row, view.Of[int32](o.base+o.layout.CountsRow(o.dispatches, source), len(row)))
	}
	if err := o.board.Admit(); err != nil {
		return nil, fmt.Errorf("dispatch %d: %w", o.dispatches, err)
	}
	if replay && o.board.Overflow(o.cfg.Rank) == nil {
		if err := o.plan.Moved(o.board); err != nil {
			return nil, fmt.Errorf("dispatch %d replays a route: %w", o.dispatches, err)
		}
	}
	return o.plan.Place(o.board), nil
}

// A column is an array whose rows travel.
type column struct {
	region Region
	source uint64
	bytes  uint64 // of a row
}

// sendRows puts this rank's rows where they belong.
func (o *Op) sendRows(b Batch, rowBytes uint64) error {
	columns := []column{{o.layout.DispatchOut, b.Input, rowBytes}, {o.layout.DispatchOutIndices, b.Indices, o.layout.WeightBytes()}}
	if b.Weights != 0 {
		columns = append(columns, column{o.layout.DispatchOutWeights, b.Weights, o.layout.WeightBytes()})
	}
	if n := o.layout.ScaleBytes(); b.Scales != 0 && n != 0 {
		columns = append(columns, column{o.layout.DispatchOutScales, b.Scales, n})
	}
	far := uint64(0) // bytes for ranks whose memory is not mapped
	for d := range o.cfg.WorldSize {
		if o.world.Ptr(o.base, d) == 0 {
			far += o.blockBytes(d, columns)
		}
	}
	stage, err := o.stage(far)
	if err != nil {
		return err
	}
	for i := range o.cfg.WorldSize {
		d := (o.cfg.Rank + i) % o.cfg.WorldSize
		if stage, err = o.sendBlock(d, columns, stage); err != nil {
			return fmt.Errorf("dispatch to rank %d: %w", d, err)
		}
	}
	return o.world.Quiet()
}

// blockBytes is the bytes of the block to d, with its positions.
func (o *Op) blockBytes(d int, columns []column) uint64 {
	row := uint64(plan.Int32Bytes)
	for _, c := range columns {
		row += c.bytes
	}
	return uint64(len(o.plan.Block(d))) * row
}

// sendBlock gathers the block to d in place, or in stage and puts it, and returns what is left of
// stage.
func (o *Op) sendBlock(d int, columns []column, stage []byte) ([]byte, error) {
	tokens, base := o.plan.Block(d), o.plan.Base(d)
	if len(tokens) == 0 {
		return stage, nil
	}
	mapped := o.world.Ptr(o.base, d)
	for _, c := range columns {
		at := c.region.At(base, c.bytes)
		if mapped != 0 {
			o.gather(mapped+at, c, tokens)
			continue
		}
		size := uint64(len(tokens)) * c.bytes
		o.gather(memory.AddrOf(stage), c, tokens)
		if err := o.world.PutNbi(o.base+at, memory.AddrOf(stage), size, d); err != nil {
			return stage, err
		}
		stage = stage[size:]
	}
	at := o.layout.SrcPositions.At(base, plan.Int32Bytes)
	if mapped != 0 {
		o.plan.Positions(view.Of[int32](mapped+at, len(tokens)), d)
		return stage, nil
	}
	size := len(tokens) * plan.Int32Bytes
	o.plan.Positions(view.Of[int32](memory.AddrOf(stage), len(tokens)), d)
	return stage[size:], o.world.PutNbi(o.base+at, memory.AddrOf(stage), uint64(size), d)
}

// gather copies the rows of tokens to dst, by several threads if there are many.
func (o *Op) gather(dst uint64, c column, tokens []int32) {
	o.share(len(tokens), c.bytes, func(from, to int) {
		hostmath.GatherRows(dst+uint64(from)*c.bytes, c.source, c.bytes, tokens[from:to])
	})
}

// Slots fills the routing map of the last dispatch, int32 [N, TopK] at address slots: rank x
// MaxRecv + slot of the row that carries a choice, or Config.NoSlot.
func (o *Op) Slots(slots uint64) error {
	if o.gpu != nil {
		return o.gpu.slots(slots)
	}
	o.plan.Map(view.Of[int32](slots, o.plan.Tokens()*o.cfg.TopK))
	return nil
}
