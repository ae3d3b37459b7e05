// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/ep/internal/call"
	"mori/ep/internal/gpu"
	"mori/ep/internal/host"
	"mori/ep/internal/plan"
	"mori/shmem"
)

// An Op is one rank's end of dispatch and combine. New makes it on all ranks.
//
// All ranks call Dispatch and Combine in turns, in the same order. If a rank does not come, or
// makes another call, the op is broken on the others: later calls return the same error, and only
// Close is of use. Bad arguments do not break the op of this rank, but the other ranks wait for its
// call. Not for use by several goroutines at once.
//
// Addresses are of this process. The memory that a call names stays the caller's. It must stay
// unchanged until the call ends, in two phases until the recv ends.
type Op struct {
	side
	gpu    *gpu.Side // the side if the op is on a GPU, else nil
	cfg    Config
	layout Layout
	state  *call.State
}

// A side carries out the calls of an op: host.Side on host memory, gpu.Side on a GPU.
type side interface {
	// Dispatch sends each token once to every rank with an expert that it chose, and returns how
	// many rows this rank received: the first rows of Layout's DispatchOut and of the regions
	// behind it, ordered by source rank, then token. The next dispatch overwrites them.
	//
	// On a GPU it queues the work on the stream and returns at once. rows is -1 then, and Received
	// is the address of the number.
	//
	// If the rows of this rank would overflow a destination, it returns a *CapError and sends none
	// of them. The other ranks and the op continue.
	Dispatch(b Batch) (rows int, err error)
	// DispatchSend begins a dispatch, which continues by itself. DispatchRecv waits for it.
	DispatchSend(b Batch) error
	// DispatchRecv ends what DispatchSend began, as Dispatch ends.
	DispatchRecv() (rows int, err error)

	// Combine returns each token's rows to the token's rank and sums them, in float32, rounded
	// once: Layout's CombineOut [N, Hidden], and CombineOutWeights [N, TopK] if HasWeights. Rows
	// are multiplied by weights only if Weighted is set: by the sum of the weights that the last
	// dispatch had for this token's experts on that rank. A token without rows becomes zeros. The
	// next combine overwrites the result.
	Combine(out Output) error
	// CombineSend begins a combine, which continues by itself. CombineRecv waits for it.
	CombineSend(out Output) error
	// CombineRecv ends what CombineSend began.
	CombineRecv() error
	// KeepRows makes combine leave Received as it is, so that a benchmark can combine the rows of
	// one dispatch repeatedly.
	KeepRows(on bool)

	// Slots fills the routing map of the last dispatch, int32 [N, TopK] at address slots:
	// rank x MaxRecv + slot of the row that carries a choice, or Config.NoSlot.
	Slots(slots uint64) error
	// Pack copies the rows at x, [rows, hidden] of type t, into the standard-MoE form, by the
	// experts at indices, int32 [rows, TopK]. The op remembers the slots for Unpack. On a GPU the
	// last dispatch has the number of rows, and rows is at least MaxRecv.
	Pack(to Packed, x, indices uint64, rows, hidden int, t DType) error
	// Unpack reads what the experts made of Packed.Rows, at address packed. It writes one row for
	// each row that Pack had, at dst: the sum over the choices that live here, each multiplied by
	// its weight, float32 [rows, TopK] at weights. hidden and t may differ from those of Pack. dst
	// may be Layout's CombineIn.
	Unpack(dst, packed, weights uint64, hidden int, t DType) error
	// CountLocal fills LocalCounts: how many choices of the received rows name each expert of this
	// rank.
	CountLocal() error

	// Base returns the address of the layout in symmetric memory, 0 after Close.
	Base() uint64
	// Received returns the address of the int32 with the number of rows that the last dispatch
	// brought. Combine sets it to 0, unless it has a Route.
	Received() uint64
	// LocalCounts returns the address of the int32 [ExpertsPerRank] that CountLocal fills.
	LocalCounts() uint64
	// Tokens returns how many tokens this rank's last dispatch had.
	Tokens() int
	// Rows returns how many rows the last dispatch brought, 0 after a combine. On a GPU it waits
	// for the stream of the last call.
	Rows() (int, error)

	// Check returns why the op is broken, or a *CapError that no call has returned yet. It does not
	// wait, so on a GPU it reports only what kernels have done by now.
	Check() error
	// Settle waits for a phase whose recv will not come. On a GPU it waits for all work of the op
	// on streams. The error names a kernel that does not end.
	Settle() error
	// Close frees the buffers.
	Close() error
}

// New makes an op: on the GPU of the World's heap, unless Options.Host is set or the heap is in
// host memory. Collective.
func New(w *shmem.World, cfg Config, opts Options) (*Op, error) {
	layout, err := plan.NewLayout(cfg, min(opts.ScaleBlocks, cfg.HiddenDim))
	switch {
	case err != nil:
		return nil, err
	case cfg.WorldSize != w.NPEs() || cfg.Rank != w.MyPE():
		return nil, fmt.Errorf("make an op as rank %d of %d on PE %d of %d: %w",
			cfg.Rank, cfg.WorldSize, w.MyPE(), w.NPEs(), ErrConfig)
	case cfg.QuantType == QuantFp4Blockwise:
		return nil, fmt.Errorf("make an op with quant_type %v: the conversion does not exist: %w", cfg.QuantType, ErrConfig)
	}
	o := &Op{cfg: cfg, layout: layout, state: call.NewState(w.NoteTimeout)}
	if w.Device() != nil && !opts.Host {
		o.gpu, err = gpu.Open(w, cfg, layout, o.state, opts.gpu())
		o.side = o.gpu
	} else {
		o.side, err = host.Open(w, cfg, layout, o.state, opts.host())
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Close frees the buffers. Collective. It waits for a phase or kernels that run, and aborts the
// kernels of a broken op and those that do not end in time. If a kernel does not end even then,
// Close frees nothing and returns an error that names it. The World is broken then.
func (o *Op) Close() error {
	if o.state.Closed() {
		return nil
	}
	if err := o.side.Close(); err != nil {
		return fmt.Errorf("close an op: %w", err)
	}
	return nil
}

// Config returns the configuration of the op.
func (o *Op) Config() Config { return o.cfg }

// Layout returns where the op's buffers lie, from Base on.
func (o *Op) Layout() Layout { return o.layout }

// Device returns the GPU that the op is on, nil on host memory.
func (o *Op) Device() *device.Device {
	if o.gpu != nil {
		return o.gpu.Device()
	}
	return nil
}

// SetStream makes later calls queue their work on a stream of the op's GPU: cudaStream_t,
// hipStream_t, 0 for the default stream. The stream must exist until Leave or Close, which use it.
// On host memory SetStream has no effect.
func (o *Op) SetStream(stream uint64) {
	if o.gpu != nil {
		o.gpu.SetStream(stream)
	}
}

// Leave makes the op independent of the streams that calls used: they may be destroyed, though
// their work has not ended. No call but Close may follow.
func (o *Op) Leave() {
	if o.gpu != nil {
		o.gpu.Leave()
	}
}

// LaunchOf returns what a dispatch, or a combine that moves its rows first, gets if it asks for
// this. On host memory it returns zeros.
func (o *Op) LaunchOf(dispatch bool, asked Launch, tokens int, rowBytes uint64) Launch {
	if o.gpu == nil {
		return Launch{}
	}
	return o.gpu.LaunchOf(dispatch, asked, tokens, rowBytes)
}

// Exclude leaves ranks out from now on: no rank waits for them or sends to them, and choices of
// their experts have no destination. An op that is broken because they did not come works again on
// the remaining ranks. These all call Exclude, with the same ranks, equally often. It waits for
// none of them, only for this rank's own work. Discard the results of calls that failed, and
// earlier routes. Exclude is not supported on host memory and across hosts.
func (o *Op) Exclude(ranks []int) error {
	if o.gpu == nil {
		return fmt.Errorf("exclude ranks of an op on host memory, which cannot continue after a rank has died: %w", errors.ErrUnsupported)
	}
	return o.gpu.Exclude(ranks)
}

// Excluded returns how many ranks are left out.
func (o *Op) Excluded() int {
	if o.gpu == nil {
		return 0
	}
	return o.gpu.Excluded()
}
