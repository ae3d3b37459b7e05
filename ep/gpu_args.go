// SPDX-License-Identifier: MIT

package ep

import (
	"encoding/binary"

	"mori/core/device"
)

// What native/include/mori/ep/op.hpp has, in the same layout.
const (
	mostRanks   = 64
	mostRows    = 1<<24 - 1 // of a rank for another (mori/ep/words.hpp)
	mostThreads = 256       // of a block

	phaseSend = 1
	phaseRecv = 2

	progressBytes = 2104

	// Notice.
	noticeAddress    = 0
	noticeExpected   = 8
	noticeSeen       = 16
	noticePeer       = 28
	noticeReady      = 36
	noticeFault      = 40
	noticeRows       = 44
	noticeOverflowed = 48
	noticeOverflow   = 56
	noticeAbort      = 68
	noticeBytes      = 72

	// Fault.
	faultTimeout  = 1
	faultMismatch = 2
	faultCounts   = 3
	faultRows     = 5
	faultNetwork  = 6
	faultAborted  = 7

	// Transport.
	transportPlain     = 0
	transportDirect    = 1
	transportBlockwise = 2
	transportSent      = 3
)

// opBytes is the Op of kernels.
func (g *gpuSide) opBytes(waitLimit uint64) (b []byte) {
	word := func(values ...uint64) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	half := func(values ...int) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	c, l := &g.op.cfg, &g.op.layout
	var bases [mostRanks]uint64
	for pe := range c.WorldSize {
		bases[pe] = g.op.world.Ptr(g.op.base, pe)
	}
	word(bases[:]...)
	for _, r := range []Region{l.Counts, l.Published, l.Arrived, l.Ready, l.Pulled,
		l.DispatchOut, l.DispatchOutWeights, l.DispatchOutIndices, l.DispatchOutScales, l.SrcPositions,
		l.CombineIn, l.CombineInScales, l.CombineInWeights, l.CombineOut, l.CombineOutWeights} {
		word(r.Offset)
	}
	half(c.WorldSize, c.Rank, c.TopK, c.ExpertsPerRank, c.Experts(), c.MaxRecv(), c.MaxNumInpToken, c.PositionStride())
	word(waitLimit, g.dead)
	word(g.at.progress, g.notice.DeviceAddr(), g.op.Received(), g.at.slots, g.at.weights)
	return b
}

// flag is a bool of kernels.
func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// dispatchArgs are DispatchArgs.
type dispatchArgs struct {
	input, indices, weights, scales, route uint64
	rowBytes                               uint64
	scaleBytes, tokens, stamp              uint32
}

func (a *dispatchArgs) pack(to *device.Args, op uint64, phases uint32) *device.Args {
	to.Reset().Uint64(op).Uint64(a.input).Uint64(a.indices).Uint64(a.weights).Uint64(a.scales).Uint64(a.route)
	return to.Uint64(a.rowBytes).Uint32(a.scaleBytes).Uint32(a.tokens).Uint32(phases).Uint32(a.stamp)
}

// combineArgs are CombineArgs.
type combineArgs struct {
	input, weights, route, rows                          uint64
	given, tokens, hidden, dtype, transport, scaleBlocks uint32
	weighted                                             bool
	stamp                                                uint32
	clearReceived                                        bool
	forwards                                             bool // which kernel it is
}

func (a *combineArgs) pack(to *device.Args, op uint64, phases uint32) *device.Args {
	to.Reset().Uint64(op).Uint64(a.input).Uint64(a.weights).Uint64(a.route).Uint64(a.rows)
	to.Uint32(a.given).Uint32(a.tokens).Uint32(a.hidden).Uint32(a.dtype).Uint32(a.transport).Uint32(a.scaleBlocks)
	return to.Uint32(flag(a.weighted)).Uint32(phases).Uint32(a.stamp).Uint32(flag(a.clearReceived))
}
