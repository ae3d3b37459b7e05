// SPDX-License-Identifier: MIT

package gpu

import (
	"mori/core/device"
	"mori/native/abi"
)

// MostThreads is how many threads a block of the kernels may have.
const MostThreads = abi.EPMostThreads

// mostRows is how many rows a rank may have for another.
const mostRows = 1<<abi.EPRowsBits - 1

const (
	phaseSend = uint32(abi.EPPhaseSend)
	phaseRecv = uint32(abi.EPPhaseRecv)
)

// argument makes a struct the one argument of a kernel.
func argument[T abi.Struct](to *device.Args, v *T) *device.Args {
	return to.Reset().Struct(abi.Bytes(v), 8)
}

// kernelOp returns the Op of kernels: where everything lies, and which ranks are left out.
func (s *Side) kernelOp() abi.EPOp {
	c, l := &s.cfg, &s.layout
	op := abi.EPOp{
		Regions: abi.EPRegions{
			Counts: l.Counts.Offset, Published: l.Published.Offset, Arrived: l.Arrived.Offset,
			Ready: l.Ready.Offset, Pulled: l.Pulled.Offset,
			DispatchOut: l.DispatchOut.Offset, DispatchOutWeights: l.DispatchOutWeights.Offset,
			DispatchOutIndices: l.DispatchOutIndices.Offset, DispatchOutScales: l.DispatchOutScales.Offset,
			SrcPositions: l.SrcPositions.Offset,
			CombineIn:    l.CombineIn.Offset, CombineInScales: l.CombineInScales.Offset,
			CombineInWeights: l.CombineInWeights.Offset,
			CombineOut:       l.CombineOut.Offset, CombineOutWeights: l.CombineOutWeights.Offset,
		},
		World: uint32(c.WorldSize), Rank: uint32(c.Rank), TopK: uint32(c.TopK),
		ExpertsPerRank: uint32(c.ExpertsPerRank), Experts: uint32(c.Experts()),
		MaxRecv: uint32(c.MaxRecv()), MaxTokens: uint32(c.MaxNumInpToken),
		PositionStride: uint32(c.PositionStride()),
		WaitLimit:      s.opts.waitLimit(), Dead: s.excluded.mask(),
		Progress: s.at.progress, Notice: s.notice.deviceAddr(), Received: s.Received(),
		Slots: s.at.slots, Weights: s.at.weights,
	}
	for pe := range c.WorldSize {
		op.Bases[pe] = s.world.Ptr(s.base, pe)
	}
	return op
}

// flag is a bool of kernels.
func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

func flag64(on bool) uint64 { return uint64(flag(on)) }

// combineCall is a combine and the kernel that does it.
type combineCall struct {
	abi.EPCombineArgs
	hierarchical bool
}
