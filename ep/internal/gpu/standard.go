// SPDX-License-Identifier: MIT

package gpu

import (
	"fmt"

	"mori/ep/internal/call"
	"mori/ep/internal/plan"
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
	a := packArgs{received: c.Received(), indices: indices, input: x, packed: to.Rows, counts: to.Counts,
		info: to.Info, slots: c.at.packed, rows: c.at.packedRows, rowBytes: rowBytes,
		maxRecv: uint32(c.cfg.MaxRecv()), topk: uint32(c.cfg.TopK), firstExpert: uint32(c.cfg.FirstExpert()),
		experts: uint32(c.cfg.ExpertsPerRank), room: uint32(c.cfg.PackedRows())}
	args := a.marshal(&c.args)
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
	a := unpackArgs{op: c.at.op, packed: packed, slots: c.at.packed, rows: c.at.packedRows,
		weights: weights, out: dst, topk: uint32(c.cfg.TopK), hidden: uint32(hidden), dtype: uint32(t),
		pulled: dst == c.base+c.layout.CombineIn.Offset}
	grid := c.kernels.wide(c.opts.budget(c.dev.Units))
	if err := c.launch("unpack rows", c.kernels.unpack, grid, a.marshal(&c.args)); err != nil {
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
	a := c.args.Reset().Uint64(c.Received()).Uint64(c.base + c.layout.DispatchOutIndices.Offset)
	a.Uint64(c.LocalCounts()).Uint32(uint32(c.cfg.TopK)).Uint32(uint32(c.cfg.FirstExpert()))
	a.Uint32(uint32(c.cfg.ExpertsPerRank)).Uint32(0)
	blocks := min((c.cfg.MaxRecv()*c.cfg.TopK+MostThreads-1)/MostThreads, 32)
	return c.launch("count local experts", c.kernels.count, c.kernels.wide(blocks), a)
}
