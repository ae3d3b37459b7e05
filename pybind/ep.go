// SPDX-License-Identifier: MIT

package pybind

// #include "fast_ep.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"mori/core/config"
	"mori/ep"
	"mori/pybind/handle"
)

// An op is one of package ep, and the PE that it was made on.
type op struct {
	*ep.Op
	pe    *pe
	opts  ep.Options
	inUse sync.Mutex // held by the call that is on its way
}

var ops = handle.Table[*op]{What: "op"}

// made has the ops of one PE.
var made struct {
	sync.Mutex
	pe  *pe
	set *ep.Set
}

func (p *pe) ops() *ep.Set {
	made.Lock()
	defer made.Unlock()
	if made.pe != p {
		made.pe, made.set = p, ep.NewSet(p.World)
	}
	return made.set
}

var (
	errOpGone = coded("E_STATE", errors.New("mori.shmem was finalized after the op was created, so its memory was freed"))
	errOpBusy = coded("E_STATE", errors.New("another thread is in a call of this op"))
)

// enterOp finds an op for one call, which ends with exit.
func enterOp(id uint64) (*op, error) {
	o, err := ops.Get(id)
	if err != nil {
		return nil, err
	}
	p, err := enter()
	switch {
	case err != nil:
		return nil, err
	case p != o.pe:
		err = errOpGone
	case !o.inUse.TryLock():
		err = errOpBusy
	default:
		return o, nil
	}
	p.leave()
	return nil, err
}

func (o *op) exit() {
	o.inUse.Unlock()
	o.pe.leave()
}

// EPOpen starts to make an op; text is JSON, by the names of mori.ops.EpDispatchCombineConfig.
// onHost has it on host memory, unless the environment says otherwise. JobResult: its handle.
func EPOpen(text string, onHost bool) (job uint64, err error) {
	defer guard(&err)
	cfg, err := ep.ParseConfig([]byte(text))
	if err != nil {
		return 0, err
	}
	return collective(func(p *pe) (uint64, error) {
		opts, err := ep.OptionsFromEnv(p.World)
		if err != nil {
			return 0, coded("E_ARG", err)
		}
		opts.Interrupt = p.ask
		opts.Host = opts.Host || onHost && config.Get(config.EPDevice) == ""
		o, err := p.ops().New(cfg, opts)
		if err != nil {
			return 0, err
		}
		return ops.Add(&op{Op: o, pe: p, opts: opts}), nil
	})
}

// EPClose starts to free an op's memory, and takes its handle back. JobResult: 0.
func EPClose(id uint64) (job uint64, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	ops.Remove(id)
	return collective(func(p *pe) (uint64, error) { return 0, p.ops().Close(o.Op) })
}

// EPDrop takes an op's handle back; its memory is freed when all ranks have dropped it and the next
// op is made.
func EPDrop(id uint64) (n int, err error) {
	defer guard(&err)
	if o, ok := ops.Remove(id); ok && !o.pe.closing.Load() {
		o.pe.ops().Drop(o.Op)
	}
	return 0, nil
}

// settleOps takes the handles of all ops of a PE back, and waits for what their sends began:
// finalize frees the memory that it is about. It returns those that another thread is in a call of.
func settleOps(p *pe) (busy []*op) {
	for _, o := range ops.Take(func(o *op) bool { return o.pe == p }) {
		if !o.inUse.TryLock() {
			busy = append(busy, o)
			continue
		}
		_ = o.Settle() // Finalize says what does not end
		o.inUse.Unlock()
	}
	return busy
}

// settle waits for what ops have under way, whose calls have ended.
func settle(ops []*op) {
	for _, o := range ops {
		o.inUse.Lock()
		_ = o.Settle() // Finalize says what does not end
		o.inUse.Unlock()
	}
}

// EPDescribe returns where an op's arrays lie in this process, and what it was made with, as JSON.
func EPDescribe(id uint64) (text string, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return "", err
	}
	defer o.exit()
	l, base := o.Layout(), o.Base()
	where := -1 // host memory
	if d := o.Device(); d != nil {
		where = d.Ordinal
	}
	return toJSON(map[string]any{
		"device": where, "bytes": l.Size, "threads": o.opts.Threads, "timeout_ms": o.opts.Timeout.Milliseconds(), "scale_blocks": o.opts.ScaleBlocks,
		"sizes": epSizes(o.Config()), "received": o.Received(), "local_counts": o.LocalCounts(),
		"dispatch_out": base + l.DispatchOut.Offset, "dispatch_out_weights": base + l.DispatchOutWeights.Offset,
		"dispatch_out_indices": base + l.DispatchOutIndices.Offset, "dispatch_out_scales": base + l.DispatchOutScales.Offset,
		"src_positions": base + l.SrcPositions.Offset, "combine_in": base + l.CombineIn.Offset,
		"combine_out": base + l.CombineOut.Offset, "combine_out_weights": base + l.CombineOutWeights.Offset,
	})
}

// EPLaunch returns the blocks and the warps of each that a call with so many tokens of so many
// bytes gets, as JSON; zeros on host memory. What is asked for and above 0 comes first.
func EPLaunch(id uint64, dispatch bool, tokens int, rowBytes int, blocks int, warps int) (text string, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return "", err
	}
	defer o.exit()
	l := o.LaunchOf(dispatch, ep.Launch{Blocks: blocks, Warps: warps}, tokens, uint64(max(rowBytes, 1)))
	return toJSON([]int{l.Blocks, l.Warps})
}

// EPTuning returns which file has the tables for launches, whether the environment names it, and
// what it has, or why it cannot be used, as JSON.
func EPTuning() (text string, err error) {
	defer guard(&err)
	path, named := ep.TuningPath()
	t, err := ep.ReadTuning(path)
	told := map[string]any{"path": path, "named": named, "tables": []ep.Table{}, "problem": ""}
	if err != nil {
		told["problem"] = err.Error()
	} else {
		told["tables"] = t.Tables
	}
	return toJSON(told)
}

// EPSizes returns how many tokens and rows a configuration has room for, as JSON.
func EPSizes(config string) (text string, err error) {
	defer guard(&err)
	cfg, err := ep.ParseConfig([]byte(config))
	if err != nil {
		return "", err
	}
	return toJSON(epSizes(cfg))
}

func epSizes(c ep.Config) map[string]int {
	return map[string]int{"send_per_rank": c.SendPerRank(), "send": c.MaxSend(), "recv_per_rank": c.RecvPerRank(), "recv": c.MaxRecv(),
		"position_stride": c.PositionStride(), "packed_rows": c.PackedRows()}
}

// EPSlots writes the routing map of the last dispatch, n int32, to addr.
func EPSlots(id uint64, addr uint64, n int) (count int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	if want := o.Tokens() * o.Config().TopK; n != want {
		return 0, coded("E_ARG", fmt.Errorf("room for %d choices, the last dispatch had %d", n, want))
	}
	if n > 0 {
		err = o.Slots(addr)
	}
	return n, err
}

// EPReceived returns how many rows the last dispatch brought; 0 after a combine.
func EPReceived(id uint64) (rows int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	return o.Rows()
}

// EPCheck fails if an op is broken, or if rows of this rank found no room and no call has said so,
// as far as is known without a wait.
func EPCheck(id uint64) (n int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	return 0, o.Check()
}

// EPExclude leaves the ranks that ranks has a bit for out of an op on a GPU, which continues with
// the others.
func EPExclude(id uint64, ranks uint64) (n int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	var gone []int
	for rank := range 64 {
		if ranks>>rank&1 != 0 {
			gone = append(gone, rank)
		}
	}
	if err := o.Exclude(gone); err != nil {
		return 0, err
	}
	return o.Excluded(), nil
}

// EPCountLocal fills an op's local expert count.
func EPCountLocal(id uint64) (n int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	return 0, o.CountLocal()
}

// EPPack brings rows at x, with the indices at indices, into the standard-MoE form at packed,
// counts and info; on a GPU on stream.
func EPPack(id uint64, packed uint64, counts uint64, info uint64, x uint64, indices uint64, rows int, hidden int, dtype int, stream uint64) (n int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	o.SetStream(stream)
	return rows, o.Pack(ep.Packed{Rows: packed, Counts: counts, Info: info}, x, indices, rows, hidden, ep.DType(dtype))
}

// EPUnpack makes one row of each that EPPack was given, at dst, out of what the experts made of the
// standard-MoE form. The weights are those that the last dispatch brought. On a GPU on stream.
func EPUnpack(id uint64, dst uint64, packed uint64, hidden int, dtype int, stream uint64) (n int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	o.SetStream(stream)
	l := o.Layout()
	return 0, o.Unpack(dst, packed, o.Base()+l.DispatchOutWeights.Offset, hidden, ep.DType(dtype))
}

// EPCount fills the int32 at counts with how many of the choices in rows of indices name each
// expert of the configuration's rank.
func EPCount(config string, counts uint64, indices uint64, rows int) (n int, err error) {
	defer guard(&err)
	cfg, err := ep.ParseConfig([]byte(config))
	if err != nil {
		return 0, err
	}
	return rows, cfg.CountReceived(counts, indices, rows)
}

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
