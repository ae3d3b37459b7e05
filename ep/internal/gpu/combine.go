// SPDX-License-Identifier: MIT

package gpu

import (
	"fmt"

	"mori/core/device"
	"mori/ep/internal/call"
	"mori/ep/internal/launch"
	"mori/ep/internal/plan"
	"mori/native/abi"
)

// Combine queues a combine.
func (c *calls) Combine(out call.Output) error { return c.combine(out, phaseSend|phaseRecv) }

// CombineSend queues the send of a combine.
func (c *calls) CombineSend(out call.Output) error { return c.combine(out, phaseSend) }

func (c *calls) combine(out call.Output, phases uint32) error {
	out.InPlace = out.InPlace || out.Input == c.base+c.layout.CombineIn.Offset
	a, err := c.combineArgs(out)
	if err != nil {
		return fmt.Errorf("combine %d rows: %w", out.Rows, err)
	}
	moves, rowBytes := a.Input|a.Weights != 0, uint64(out.Hidden)*out.Type.Size()
	shape := c.chooser.Choose(out.Launch, combineKind(moves), int(a.Tokens), rowBytes)
	f, grid := c.combineKernel(shape, moves, a.hierarchical)
	if err := c.launch("combine", f, grid, c.packCombine(&a.EPCombineArgs, phases)); err != nil {
		return err
	}
	if phases&phaseRecv == 0 {
		c.sent.kind, c.sent.combine, c.sent.grid = sentCombine, a, grid
	}
	return c.health.check()
}

// combineKind returns the kind of a combine that moves rows to CombineIn first, or does not.
func combineKind(moves bool) launch.Call {
	if moves {
		return launch.Combine
	}
	return launch.CombineInPlace
}

// CombineRecv queues the rest of a combine.
func (c *calls) CombineRecv() error {
	if c.sent.kind != sentCombine {
		return fmt.Errorf("combine_recv without its send: %w", plan.ErrState)
	}
	c.sent.kind = sentNothing
	if err := c.usable(); err != nil {
		return fmt.Errorf("combine_recv: %w", err)
	}
	f, _ := c.combineKernel(launch.Shape{}, false, c.sent.combine.hierarchical)
	args := c.packCombine(&c.sent.combine.EPCombineArgs, phaseRecv)
	if err := c.launch("combine_recv", f, c.sent.grid, args); err != nil {
		return err
	}
	return c.health.check()
}

// KeepRows makes combine leave the number of received rows as it is.
func (c *calls) KeepRows(on bool) { c.keep = on }

// combineArgs returns an error if the call does not fit the op.
func (c *calls) combineArgs(out call.Output) (a combineCall, err error) {
	if err := c.usable(); err != nil {
		return a, err
	}
	if err := c.cfg.CheckQuant(out.Type, !out.InPlace); err != nil {
		return a, err
	}
	format, err := out.Format(&c.cfg, &c.layout)
	if err != nil {
		return a, err
	}
	a = combineCall{hierarchical: c.hierarchical(out, format), EPCombineArgs: abi.EPCombineArgs{
		Op: c.at.op, Given: uint32(out.Rows), Tokens: uint32(c.last.tokens), Hidden: uint32(out.Hidden),
		Type: uint32(out.Type), Weighted: flag(out.Weighted), ClearReceived: flag(out.Route == nil && !c.keep),
		Signature: uint32(out.Signature(format))}}
	if c.hosts.sums() { // all ranks must agree whether hosts sum, and with which factors
		a.Signature = uint32(plan.Signature(uint64(a.Signature), flag64(a.hierarchical), flag64(out.Weighted)))
	}
	switch {
	case out.Rows < 0:
		return a, plan.ErrShape
	case out.Rows > 0 && (!out.InPlace && out.Input == 0 || out.HasWeights && out.Weights == 0):
		return a, fmt.Errorf("rows or weights are missing: %w", plan.ErrShape)
	case out.Weighted && !c.last.weights && c.last.tokens > 0:
		return a, fmt.Errorf("weighted=True after a dispatch without weights: %w", plan.ErrShape)
	case format.Blocks != 0:
		a.Transport, a.ScaleBlocks = uint32(abi.EPTransportBlockwise), uint32(format.Blocks)
	case format.Type != out.Type:
		a.Transport = uint32(abi.EPTransportDirect)
	case c.pushes(out):
		a.Transport = uint32(abi.EPTransportPush)
		a.Signature = uint32(plan.Signature(uint64(a.Signature), uint64(abi.EPTransportPush)))
	}
	// Kernels take address 0 for "in place" and "without weights", so no rows have another address.
	if !out.InPlace {
		a.Input = max(out.Input, c.base*flag64(out.Input == 0))
	}
	if out.HasWeights {
		a.Weights = max(out.Weights, c.base*flag64(out.Weights == 0))
	}
	if out.InPlace && !out.HasWeights {
		a.Given = uint32(c.cfg.MaxRecv())
	}
	return a, c.follow(out, &a)
}

// hierarchical reports whether hosts sum in a combine. All ranks decide alike. Hosts sum rows of
// the last dispatch that are not quantised. Forwarders have no records for a routing map. Other
// types would lose too much by one more rounding.
func (c *calls) hierarchical(out call.Output, f call.RowFormat) bool {
	return c.hosts.sums() && c.last.recorded && out.Route == nil && f.Type == out.Type &&
		(out.Type == plan.BFloat16 || out.Type == plan.Float32)
}

// pushes reports whether each rank pushes its rows to the ranks of their tokens, where loads and
// stores reach all ranks. It does so with rows of the last dispatch, whose counts and positions are
// known, that do not lie in CombineIn. With a cap, CombineIn has no slot for each token of each
// rank.
func (c *calls) pushes(out call.Output) bool {
	return c.hosts == nil && out.Route == nil && !out.InPlace &&
		c.cfg.MaxRecv() >= c.cfg.WorldSize*c.cfg.MaxNumInpToken
}

// follow adds the route of the dispatch that a combine answers, unless it is the last one.
func (c *calls) follow(out call.Output, a *combineCall) error {
	r := out.Route
	switch {
	case r == nil:
		return nil
	case r.N < 0 || r.N > c.cfg.MaxNumInpToken || r.RowsAt == 0 || r.N > 0 && r.Slots == 0:
		return fmt.Errorf("invalid routing handle of %d tokens, map at %#x, row count at %#x: %w",
			r.N, r.Slots, r.RowsAt, plan.ErrShape)
	case out.Weighted && r.N != c.last.tokens:
		return fmt.Errorf("weighted=True with a routing handle that is not the last dispatch's, whose weights are not kept: %w", plan.ErrShape)
	}
	a.Tokens, a.Route, a.Rows = uint32(r.N), r.Slots, r.RowsAt
	return nil
}

// packCombine returns the argument of the kernel of a combine.
func (c *calls) packCombine(a *abi.EPCombineArgs, phases uint32) *device.Args {
	a.Phases = phases
	if c.hosts == nil {
		return argument(&c.args, a)
	}
	return argument(&c.args, &abi.EPHostsCombineArgs{Call: *a, Hosts: c.at.hosts})
}

// combineKernel returns the kernel of a combine, and its grid.
func (c *calls) combineKernel(s launch.Shape, moves, hierarchical bool) (*device.Function, device.Grid) {
	if c.hosts == nil {
		return c.kernels.combine, c.kernels.combineGrid(s)
	}
	f := c.kernels.combineHosts
	if hierarchical {
		f = c.kernels.combineForward
	}
	grid := c.kernels.grid(s)
	if moves {
		grid.Shared = c.kernels.shared(grid, streamShared, movedStage, combineShared)
	}
	return f, grid
}
