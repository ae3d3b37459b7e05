// SPDX-License-Identifier: MIT

package gpu

import (
	"fmt"

	"mori/ep/internal/call"
	"mori/ep/internal/plan"
	"mori/native/abi"
)

// Pack queues the copy of received rows into the standard-MoE form. Only the GPU knows how many
// rows there are, so rows must be at least MaxRecv.
func (c *calls) Pack(to call.Packed, x, indices uint64, rows, hidden int, t plan.DType) error {
	rowBytes, err := c.layout.RowBytes(hidden, t)
	if err != nil {
		return fmt.Errorf("pack %d rows: %w", rows, err)
	}
	if err := c.usable(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if rows < c.cfg.MaxRecv() {
		return fmt.Errorf("pack %d rows, want %d: %w", rows, c.cfg.MaxRecv(), plan.ErrShape)
	}
	if err := c.cfg.CheckPacked(); err != nil {
		return err
	}
	args := argument(&c.args, &abi.EPPackArgs{Received: c.Received(), Indices: indices, Input: x, Packed: to.Rows,
		Counts: to.Counts, Info: to.Info, Slots: c.at.packed, Rows: c.at.packedRows, RowBytes: rowBytes,
		MaxRecv: uint32(c.cfg.MaxRecv()), TopK: uint32(c.cfg.TopK), FirstExpert: uint32(c.cfg.FirstExpert()),
		Experts: uint32(c.cfg.ExpertsPerRank), Room: uint32(c.cfg.PackedRows())})
	if err := c.launch("place rows", c.kernels.place, c.kernels.wide(c.cfg.ExpertsPerRank), args); err != nil {
		return err
	}
	return c.launch("pack rows", c.kernels.pack, c.kernels.wide(c.opts.budget(c.dev.Units)), args)
}

// Unpack queues the sums that undo Pack.
func (c *calls) Unpack(dst, packed, weights uint64, hidden int, t plan.DType) error {
	if _, err := c.layout.RowBytes(hidden, t); err != nil || !plan.Summable(t) {
		return fmt.Errorf("unpack rows of %d elements of %v: %w", hidden, t, plan.ErrShape)
	}
	if err := c.usable(); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	args := argument(&c.args, &abi.EPUnpackArgs{Op: c.at.op, Packed: packed, Slots: c.at.packed, Rows: c.at.packedRows,
		Weights: weights, Out: dst, TopK: uint32(c.cfg.TopK), Hidden: uint32(hidden), Type: uint32(t),
		Pulled: flag(dst == c.base+c.layout.CombineIn.Offset)})
	grid := c.kernels.wide(c.opts.budget(c.dev.Units))
	if err := c.launch("unpack rows", c.kernels.unpack, grid, args); err != nil {
		return err
	}
	return c.health.check()
}

// CountLocal queues the count of the received rows' experts.
func (c *calls) CountLocal() error {
	experts := uint64(c.cfg.ExpertsPerRank) * plan.Int32Bytes
	if err := c.streams.current.Set(c.LocalCounts(), 0, experts); err != nil {
		return fmt.Errorf("count local experts: %w", err)
	}
	args := argument(&c.args, &abi.EPCountLocalArgs{Rows: c.Received(),
		Indices: c.base + c.layout.DispatchOutIndices.Offset, Counts: c.LocalCounts(), TopK: uint32(c.cfg.TopK),
		FirstExpert: uint32(c.cfg.FirstExpert()), Experts: uint32(c.cfg.ExpertsPerRank)})
	blocks := min((c.cfg.MaxRecv()*c.cfg.TopK+MostThreads-1)/MostThreads, 32)
	return c.launch("count local experts", c.kernels.count, c.kernels.wide(blocks), args)
}
