// SPDX-License-Identifier: MIT

package gpu

import (
	"encoding/binary"

	"mori/core/device"
	"mori/ep/internal/plan"
)

// MostThreads is how many threads a block of the kernels may have.
const MostThreads = 256

// The constants of native/include/mori/ep/op.hpp.
const (
	mostRanks = 64
	mostRows  = 1<<24 - 1 // of a rank for another (mori/ep/words.hpp)

	phaseSend = 1
	phaseRecv = 2

	opBytes       = 1 << 10 // room for Op
	progressBytes = 2104

	// Transport.
	transportDirect    = 1
	transportBlockwise = 2
	transportPush      = 3
)

// words appends to the bytes of a struct of kernels.
type words []byte

func (w *words) word(values ...uint64) {
	for _, v := range values {
		*w = binary.LittleEndian.AppendUint64(*w, v)
	}
}

func (w *words) half(values ...uint32) {
	for _, v := range values {
		*w = binary.LittleEndian.AppendUint32(*w, v)
	}
}

// opWords returns the Op of kernels: where everything lies, and which ranks are left out.
func (s *Side) opWords() (b words) {
	c, l := &s.cfg, &s.layout
	var bases [mostRanks]uint64
	for pe := range c.WorldSize {
		bases[pe] = s.world.Ptr(s.base, pe)
	}
	b.word(bases[:]...)
	for _, r := range []plan.Region{l.Counts, l.Published, l.Arrived, l.Ready, l.Pulled,
		l.DispatchOut, l.DispatchOutWeights, l.DispatchOutIndices, l.DispatchOutScales, l.SrcPositions,
		l.CombineIn, l.CombineInScales, l.CombineInWeights, l.CombineOut, l.CombineOutWeights} {
		b.word(r.Offset)
	}
	for _, n := range []int{c.WorldSize, c.Rank, c.TopK, c.ExpertsPerRank, c.Experts(), c.MaxRecv(),
		c.MaxNumInpToken, c.PositionStride()} {
		b.half(uint32(n))
	}
	b.word(s.opts.waitLimit(), s.excluded.mask())
	b.word(s.at.progress, s.notice.deviceAddr(), s.Received(), s.at.slots, s.at.weights)
	return b
}

// flag is a bool of kernels.
func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

func flag64(on bool) uint64 { return uint64(flag(on)) }

// dispatchArgs are DispatchArgs.
type dispatchArgs struct {
	input, indices, weights, scales, route uint64
	rowBytes                               uint64
	scaleBytes, tokens, signature          uint32
}

func (a *dispatchArgs) marshal(to *device.Args, op uint64, phases uint32) *device.Args {
	to.Reset().Uint64(op).Uint64(a.input).Uint64(a.indices).Uint64(a.weights).Uint64(a.scales)
	to.Uint64(a.route).Uint64(a.rowBytes)
	return to.Uint32(a.scaleBytes).Uint32(a.tokens).Uint32(phases).Uint32(a.signature)
}

// combineArgs are CombineArgs.
type combineArgs struct {
	input, weights, route, rows                          uint64
	given, tokens, hidden, dtype, transport, scaleBlocks uint32
	weighted                                             bool
	signature                                            uint32
	clearReceived                                        bool
	hierarchical                                         bool // which kernel it is
}

func (a *combineArgs) marshal(to *device.Args, op uint64, phases uint32) *device.Args {
	to.Reset().Uint64(op).Uint64(a.input).Uint64(a.weights).Uint64(a.route).Uint64(a.rows)
	to.Uint32(a.given).Uint32(a.tokens).Uint32(a.hidden).Uint32(a.dtype)
	to.Uint32(a.transport).Uint32(a.scaleBlocks)
	return to.Uint32(flag(a.weighted)).Uint32(phases).Uint32(a.signature).Uint32(flag(a.clearReceived))
}

// packArgs are PackArgs of native/include/mori/ep/standard.hpp.
type packArgs struct {
	received, indices, input, packed, counts, info, slots, rows, rowBytes uint64
	maxRecv, topk, firstExpert, experts, room                             uint32
}

func (a *packArgs) marshal(to *device.Args) *device.Args {
	to.Reset().Uint64(a.received).Uint64(a.indices).Uint64(a.input).Uint64(a.packed)
	to.Uint64(a.counts).Uint64(a.info).Uint64(a.slots).Uint64(a.rows).Uint64(a.rowBytes)
	to.Uint32(a.maxRecv).Uint32(a.topk).Uint32(a.firstExpert).Uint32(a.experts).Uint32(a.room)
	return to.Uint32(0)
}

// unpackArgs are UnpackArgs.
type unpackArgs struct {
	op, packed, slots, rows, weights, out uint64
	topk, hidden, dtype                   uint32
	pulled                                bool
}

func (a *unpackArgs) marshal(to *device.Args) *device.Args {
	to.Reset().Uint64(a.op).Uint64(a.packed).Uint64(a.slots).Uint64(a.rows)
	to.Uint64(a.weights).Uint64(a.out)
	return to.Uint32(a.topk).Uint32(a.hidden).Uint32(a.dtype).Uint32(flag(a.pulled))
}
