// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"

	"mori/core/device"
)

// packArgs are PackArgs of native/include/mori/ep/standard.hpp.
type packArgs struct {
	received, indices, input, packed, counts, info, slots, rows, rowBytes uint64
	maxRecv, topk, firstExpert, experts, room                             uint32
}

func (a *packArgs) pack(to *device.Args) *device.Args {
	to.Reset().Uint64(a.received).Uint64(a.indices).Uint64(a.input).Uint64(a.packed).Uint64(a.counts).Uint64(a.info).Uint64(a.slots).Uint64(a.rows)
	to.Uint64(a.rowBytes).Uint32(a.maxRecv).Uint32(a.topk).Uint32(a.firstExpert).Uint32(a.experts).Uint32(a.room)
	return to.Uint32(0)
}

// unpackArgs are UnpackArgs.
type unpackArgs struct {
	op, packed, slots, rows, weights, out uint64
	topk, hidden, dtype                   uint32
	pulled                                bool
}

func (a *unpackArgs) pack(to *device.Args) *device.Args {
	to.Reset().Uint64(a.op).Uint64(a.packed).Uint64(a.slots).Uint64(a.rows).Uint64(a.weights).Uint64(a.out)
	return to.Uint32(a.topk).Uint32(a.hidden).Uint32(a.dtype).Uint32(flag(a.pulled))
}

// pack queues what Op.Pack does. How many rows there are is known on the device alone.
func (g *gpuSide) pack(to Packed, x, indices uint64, rows int, rowBytes uint64) error {
	c := &g.op.cfg
	if err := g.op.usable(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if rows < c.MaxRecv() {
		return fmt.Errorf("pack %d rows, %d may have been received: %w", rows, c.MaxRecv(), ErrShape)
	}
	if err := c.CheckPacked(); err != nil {
		return err
	}
	a := packArgs{received: g.op.Received(), indices: indices, input: x, packed: to.Rows, counts: to.Counts, info: to.Info, slots: g.at.packed,
		rows: g.at.packedRows, rowBytes: rowBytes, maxRecv: uint32(c.MaxRecv()), topk: uint32(c.TopK), firstExpert: uint32(c.FirstExpert()),
		experts: uint32(c.ExpertsPerRank), room: uint32(c.PackedRows())}
	all := a.pack(&g.args)
	if err := g.launch("place rows", g.kernels.place, g.kernels.launch(Launch{Blocks: c.ExpertsPerRank, Warps: mostThreads / g.dev.Warp}), all); err != nil {
		return err
	}
	return g.launch("pack rows", g.kernels.pack, g.wide(), all)
}

// unpack queues what Op.Unpack does.
func (g *gpuSide) unpack(dst, packed, weights uint64, hidden int, t DType) error {
	if err := g.op.usable(); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	a := unpackArgs{op: g.at.op, packed: packed, slots: g.at.packed, rows: g.at.packedRows, weights: weights, out: dst,
		topk: uint32(g.op.cfg.TopK), hidden: uint32(hidden), dtype: uint32(t), pulled: dst == g.op.base+g.op.layout.CombineIn.Offset}
	if err := g.launch("unpack rows", g.kernels.unpack, g.wide(), a.pack(&g.args)); err != nil {
		return err
	}
	return g.op.Check()
}

// wide is a grid for work on this GPU's own memory, within the budget.
func (g *gpuSide) wide() device.Grid {
	blocks := g.op.opts.Blocks
	if blocks <= 0 {
		blocks = g.dev.Units
	}
	return g.kernels.launch(Launch{Blocks: blocks, Warps: mostThreads / g.dev.Warp})
}
