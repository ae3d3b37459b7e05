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

// An op is an op of package ep, with the PE that it was created on.
type op struct {
	*ep.Op
	pe    *pe
	opts  ep.Options
	inUse sync.Mutex // held during a call
}

var ops = handle.Table[*op]{What: "op"}

// made holds the ops of one PE.
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

// enterOp returns an op for one call, which must end with exit.
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

// EPOpen starts to create an op. text is JSON with the field names of
// mori.ops.EpDispatchCombineConfig. onHost puts the op into host memory, unless the environment
// names a device. JobResult: its handle.
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

// EPClose starts to free an op's memory and invalidates its handle. JobResult: 0.
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

// EPDrop invalidates an op's handle. The op's memory is freed when all ranks have dropped it and
// the next op is created.
func EPDrop(id uint64) (n int, err error) {
	defer guard(&err)
	if o, ok := ops.Remove(id); ok && !o.pe.closing.Load() {
		o.pe.ops().Drop(o.Op)
	}
	return 0, nil
}

// settleOps invalidates the handles of all ops of a PE and waits for their pending sends, because
// finalize frees their memory. It returns the ops in which another thread has a call.
func settleOps(p *pe) (busy []*op) {
	for _, o := range ops.Take(func(o *op) bool { return o.pe == p }) {
		if !o.inUse.TryLock() {
			busy = append(busy, o)
			continue
		}
		_ = o.Settle() // Finalize reports what does not end
		o.inUse.Unlock()
	}
	return busy
}

// settle waits until the calls of ops have ended, and then for their pending work.
func settle(ops []*op) {
	for _, o := range ops {
		o.inUse.Lock()
		_ = o.Settle() // Finalize reports what does not end
		o.inUse.Unlock()
	}
}

// EPDescribe returns the addresses of an op's arrays in this process, and the op's configuration,
// as JSON.
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

// EPLaunch returns the number of blocks and of warps per block for a call with the given tokens and
// row size, as JSON; zeros on host memory. A requested number above 0 takes precedence.
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

// EPTuning returns which file has the launch tables, whether the environment names it, and its
// contents, or why it cannot be used, as JSON.
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

// EPSizes returns the capacity of a configuration in tokens and rows, as JSON.
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

// EPReceived returns how many rows the last dispatch received; 0 after a combine.
func EPReceived(id uint64) (rows int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	return o.Rows()
}

// EPCheck returns an error if an op is broken, or if rows of this rank were dropped for lack of
// room and no call has reported it. It does not wait, so it reports only what is known so far.
func EPCheck(id uint64) (n int, err error) {
	defer guard(&err)
	o, err := enterOp(id)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	return 0, o.Check()
}

// EPExclude excludes the ranks whose bits are set in ranks from an op on a GPU. The op continues
// with the other ranks.
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

// EPPack packs rows at x, with the expert indices at indices, into the standard-MoE form at packed,
// counts and info. On a GPU it uses stream.
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

// EPUnpack combines the experts' results in the standard-MoE form into one row, at dst, for each
// row that was passed to EPPack. It uses the weights that the last dispatch received. On a GPU it
// uses stream.
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

// EPCount counts, for each expert of the configuration's rank, how many entries in rows of indices
// name it. It writes the counts as int32 to counts.
func EPCount(config string, counts uint64, indices uint64, rows int) (n int, err error) {
	defer guard(&err)
	cfg, err := ep.ParseConfig([]byte(config))
	if err != nil {
		return 0, err
	}
	return rows, cfg.CountReceived(counts, indices, rows)
}

// small narrows a number from Python to int. A number that does not fit becomes -1, which ep
// rejects.
func small(n C.int64_t) int {
	if n < math.MinInt32 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}

// routeOf returns the dispatch that a call refers to, nil if it refers to none.
func (o *op) routeOf(x *C.mori_ep_call) *ep.Route {
	if x.flags&C.MORI_EP_ROUTE == 0 {
		return nil
	}
	if o.Device() != nil {
		return &ep.Route{Slots: uint64(x.slots), N: small(x.route_n), RowsAt: uint64(x.route_rows)}
	}
	return &ep.Route{Slots: uint64(x.slots), N: small(x.route_n), Rows: small(x.route_rows)}
}

// launchOf returns the launch shape that a call requests.
func launchOf(x *C.mori_ep_call) ep.Launch {
	return ep.Launch{Blocks: small(x.blocks), Warps: small(x.warps)}
}

// arrived fills the local expert count if the call asks for it, and reports the number of received
// rows to C.
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

// moriEPRecv completes a dispatch or a combine that was only sent.
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
