// SPDX-License-Identifier: MIT

package pybind

// #include "fast_ep.h"
import "C"

import (
	"math"

	"mori/ep"
)

// small narrows a number of Python's; what does not fit is none that ep takes.
func small(n C.int64_t) int {
	if n < math.MinInt32 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}

// routeOf is the dispatch that a call refers to, nil if it does not.
func (o *op) routeOf(x *C.mori_ep_call) *ep.Route {
	if x.flags&C.MORI_EP_ROUTE == 0 {
		return nil
	}
	if o.Device() != nil {
		return &ep.Route{Slots: uint64(x.slots), N: small(x.route_n), RowsAt: uint64(x.route_rows)}
	}
	return &ep.Route{Slots: uint64(x.slots), N: small(x.route_n), Rows: small(x.route_rows)}
}

// launchOf is the shape of a launch that a call asks for.
func launchOf(x *C.mori_ep_call) ep.Launch {
	return ep.Launch{Blocks: small(x.blocks), Warps: small(x.warps)}
}

// arrived fills the local expert count if it is wanted, and answers with how many rows came.
func (o *op) arrived(rows int, err error, flags C.int64_t, out *C.mori_reply) C.int {
	if err == nil && flags&C.MORI_EP_COUNT != 0 {
		err = o.CountLocal()
	}
	return answerOf(uint64(max(rows, 0)), err, out)
}

//export moriEPDispatch
func moriEPDispatch(id C.uint64_t, x *C.mori_ep_call, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	o, err := enterOp(uint64(id))
	if err != nil {
		return answerOf(0, err, out)
	}
	defer o.exit()
	o.SetStream(uint64(x.stream))
	b := ep.Batch{N: small(x.n), Hidden: small(x.hidden), Type: ep.DType(small(x.dtype)), Input: uint64(x.input), Indices: uint64(x.indices),
		Weights: uint64(x.weights), Scales: uint64(x.scales), Launch: launchOf(x), Route: o.routeOf(x)}
	if x.flags&C.MORI_EP_SEND != 0 {
		return answerOf(0, o.DispatchSend(b), out)
	}
	rows, err := o.Dispatch(b)
	return o.arrived(rows, err, x.flags, out)
}

//export moriEPCombine
func moriEPCombine(id C.uint64_t, x *C.mori_ep_call, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	o, err := enterOp(uint64(id))
	if err != nil {
		return answerOf(0, err, out)
	}
	defer o.exit()
	o.SetStream(uint64(x.stream))
	made := ep.Output{Rows: small(x.n), Hidden: small(x.hidden), Type: ep.DType(small(x.dtype)), Input: uint64(x.input),
		InPlace: x.flags&C.MORI_EP_IN_PLACE != 0, HasWeights: x.flags&C.MORI_EP_HAS_WEIGHTS != 0, Weights: uint64(x.weights),
		Route: o.routeOf(x), Weighted: x.flags&C.MORI_EP_WEIGHTED != 0, Launch: launchOf(x)}
	act := o.Combine
	if x.flags&C.MORI_EP_SEND != 0 {
		act = o.CombineSend
	}
	return answerOf(0, act(made), out)
}

// moriEPRecv ends what was sent: a dispatch or a combine.
//
//export moriEPRecv
func moriEPRecv(id C.uint64_t, combine C.int, flags C.int64_t, stream C.uint64_t, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	o, err := enterOp(uint64(id))
	if err != nil {
		return answerOf(0, err, out)
	}
	defer o.exit()
	o.SetStream(uint64(stream))
	if combine != 0 {
		return answerOf(0, o.CombineRecv(), out)
	}
	rows, err := o.DispatchRecv()
	return o.arrived(rows, err, flags, out)
}
