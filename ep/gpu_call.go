// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"

	"mori/core/device"
	"mori/ep/internal/launch"
	"mori/ep/internal/plan"
)

// dispatch queues a dispatch, or its send.
func (g *gpuSide) dispatch(b Batch, phases uint32) error {
	rowBytes, err := g.op.checkBatch(b)
	if err != nil {
		return fmt.Errorf("dispatch %d tokens: %w", b.N, err)
	}
	a := dispatchArgs{input: b.Input, indices: b.Indices, weights: b.Weights, rowBytes: rowBytes,
		tokens: uint32(b.N), stamp: uint32(plan.Signature(rowBytes, uint64(b.Type)))}
	if n := g.op.layout.ScaleBytes(); b.Scales != 0 && n != 0 {
		a.scales, a.scaleBytes = b.Scales, uint32(n)
	}
	if b.Route != nil {
		a.route = b.Route.Slots
	}
	f, grid := g.dispatcher(g.chooser.Choose(b.Launch, launch.Dispatch, b.N, rowBytes), rowBytes)
	if err := g.launch("dispatch", f, grid, g.between(a.pack(&g.args, g.at.op, phases))); err != nil {
		return err
	}
	g.tokens, g.weights, g.recorded = b.N, b.Weights != 0, b.Route == nil
	if phases&phaseRecv == 0 {
		g.sent, g.sentDisp, g.sentGrid = sentDispatch, a, grid
	}
	return g.op.Check()
}

// dispatchRecv queues the rest of what was sent.
func (g *gpuSide) dispatchRecv() error {
	if g.sent != sentDispatch {
		return fmt.Errorf("dispatch_recv without its send: %w", ErrState)
	}
	g.sent = sentNothing
	if err := g.op.usable(); err != nil {
		return fmt.Errorf("dispatch_recv: %w", err)
	}
	f, grid := g.kernels.dispatch, g.kernels.launch(Launch{Blocks: 1, Warps: 1})
	if g.hosts != nil { // records of other hosts are copied to where they belong
		f, grid = g.kernels.dispatchHosts, g.sentGrid
	}
	if err := g.launch("dispatch_recv", f, grid, g.between(g.sentDisp.pack(&g.args, g.at.op, phaseRecv))); err != nil {
		return err
	}
	return g.op.Check()
}

// combine queues a combine, or its send.
func (g *gpuSide) combine(out Output, phases uint32) error {
	out.InPlace = out.InPlace || out.Input == g.op.base+g.op.layout.CombineIn.Offset
	a, err := g.combineArgs(out)
	if err != nil {
		return fmt.Errorf("combine %d rows: %w", out.Rows, err)
	}
	moves := a.input|a.weights != 0
	f, grid := g.combiner(g.chooser.Choose(out.Launch, combineOf(moves), int(a.tokens), uint64(out.Hidden)*out.Type.Size()), moves, a.forwards)
	if err := g.launch("combine", f, grid, g.between(a.pack(&g.args, g.at.op, phases))); err != nil {
		return err
	}
	if phases&phaseRecv == 0 {
		g.sent, g.sentComb, g.sentGrid = sentCombine, a, grid
	}
	return g.op.Check()
}

// combineRecv queues the rest of what was sent.
func (g *gpuSide) combineRecv() error {
	if g.sent != sentCombine {
		return fmt.Errorf("combine_recv without its send: %w", ErrState)
	}
	g.sent = sentNothing
	if err := g.op.usable(); err != nil {
		return fmt.Errorf("combine_recv: %w", err)
	}
	f, _ := g.combiner(Launch{}, false, g.sentComb.forwards)
	if err := g.launch("combine_recv", f, g.sentGrid, g.between(g.sentComb.pack(&g.args, g.at.op, phaseRecv))); err != nil {
		return err
	}
	return g.op.Check()
}

// combineArgs looks at everything that can be wrong before anybody hears of the call.
func (g *gpuSide) combineArgs(out Output) (a combineArgs, err error) {
	o := g.op
	if err := o.usable(); err != nil {
		return a, err
	}
	if err := o.cfg.CheckQuant(out.Type, !out.InPlace); err != nil {
		return a, err
	}
	way, err := o.transport(out)
	if err != nil {
		return a, err
	}
	a = combineArgs{given: uint32(out.Rows), tokens: uint32(g.tokens), hidden: uint32(out.Hidden), dtype: uint32(out.Type),
		weighted: out.Weighted, clearReceived: out.Route == nil && !o.keep, forwards: g.forwards(out, way)}
	a.stamp = uint32(plan.Signature(way.rowBytes, uint64(out.Type), uint64(way.rowType)))
	if g.hosts.sums() { // and whether, and of what factors, is to be alike
		a.stamp = uint32(plan.Signature(uint64(a.stamp), flag64(a.forwards), flag64(out.Weighted)))
	}
	switch {
	case out.Rows < 0:
		return a, ErrShape
	case out.Rows > 0 && (!out.InPlace && out.Input == 0 || out.HasWeights && out.Weights == 0):
		return a, fmt.Errorf("no rows or no weights: %w", ErrShape)
	case out.Weighted && !g.weights && g.tokens > 0:
		return a, fmt.Errorf("weighted, after a dispatch without weights: %w", ErrShape)
	case way.blocks != 0:
		a.transport, a.scaleBlocks = transportBlockwise, uint32(way.blocks)
	case way.rowType != out.Type:
		a.transport = transportDirect
	case g.sends(out):
		a.transport = transportSent
		a.stamp = uint32(plan.Signature(uint64(a.stamp), transportSent))
	}
	// No row is no address; to kernels that would be another thing.
	if !out.InPlace {
		a.input = max(out.Input, o.base*flag64(out.Input == 0))
	}
	if out.HasWeights {
		a.weights = max(out.Weights, o.base*flag64(out.Weights == 0))
	}
	if out.InPlace && !out.HasWeights {
		a.given = uint32(o.cfg.MaxRecv())
	}
	return a, g.follow(out, &a)
}

// forwards says whether hosts sum in a combine, which is alike on all ranks: rows of the last
// dispatch that travel as they are. Of those of a routing map forwarders have no records; others
// would lose too much by one more rounding.
func (g *gpuSide) forwards(out Output, way transport) bool {
	return g.hosts.sums() && g.recorded && out.Route == nil && way.rowType == out.Type && (out.Type == BFloat16 || out.Type == Float32)
}

// sends says whether each rank sends its rows to those of their tokens, where loads and stores
// reach all: rows of the last dispatch, whose counts and positions are there, that do not lie where
// others could read them. A cap leaves no room for a place for each token of each rank.
func (g *gpuSide) sends(out Output) bool {
	c := &g.op.cfg
	return g.hosts == nil && out.Route == nil && !out.InPlace && c.MaxRecv() >= c.WorldSize*c.MaxNumInpToken
}

// combineOf is the call of a combine that moves rows to CombineIn first, or that does not.
func combineOf(moves bool) launch.Call {
	if moves {
		return launch.Combine
	}
	return launch.CombineInPlace
}

func flag64(on bool) uint64 { return uint64(flag(on)) }

// follow says which dispatch a combine answers.
func (g *gpuSide) follow(out Output, a *combineArgs) error {
	r := out.Route
	switch {
	case r == nil:
		return nil
	case r.N < 0 || r.N > g.op.cfg.MaxNumInpToken || r.RowsAt == 0 || r.N > 0 && r.Slots == 0:
		return fmt.Errorf("a route of %d tokens with its map at %#x and its rows counted at %#x: %w", r.N, r.Slots, r.RowsAt, ErrShape)
	case out.Weighted && r.N != g.tokens:
		return fmt.Errorf("weighted, with the route of another dispatch than the last, whose weights are not kept: %w", ErrShape)
	}
	a.tokens, a.route, a.rows = uint32(r.N), r.Slots, r.RowsAt
	return nil
}

// launch queues a kernel. If that fails this rank is out of step.
func (g *gpuSide) launch(act string, f *device.Function, grid device.Grid, args *device.Args) error {
	g.used[g.stream] = act
	if err := f.Launch(g.stream, grid, args); err != nil {
		return g.op.breaks(fmt.Errorf("%s: %w", act, err))
	}
	return nil
}

// slots copies the routing map of the last dispatch.
func (g *gpuSide) slots(to uint64) error {
	if g.tokens == 0 {
		return nil
	}
	return g.stream.Copy(to, g.at.slots, uint64(g.tokens*g.op.cfg.TopK)*plan.Int32Bytes)
}

// countLocal queues the count of the received rows' experts.
func (g *gpuSide) countLocal() error {
	o, c := g.op, &g.op.cfg
	if err := g.stream.Set(o.LocalCounts(), 0, uint64(c.ExpertsPerRank)*plan.Int32Bytes); err != nil {
		return fmt.Errorf("count local experts: %w", err)
	}
	a := g.args.Reset().Uint64(o.Received()).Uint64(o.base + o.layout.DispatchOutIndices.Offset).Uint64(o.LocalCounts())
	a.Uint32(uint32(c.TopK)).Uint32(uint32(c.FirstExpert())).Uint32(uint32(c.ExpertsPerRank)).Uint32(0)
	grid := g.kernels.launch(Launch{Blocks: min((c.MaxRecv()*c.TopK+mostThreads-1)/mostThreads, 32), Warps: mostThreads / g.dev.Warp})
	return g.launch("count local experts", g.kernels.count, grid, a)
}
