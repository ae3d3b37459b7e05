// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"mori/core/device"
	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/shmem"
)

// An Op is one rank's end of dispatch and combine: symmetric buffers, and the number of calls made
// so far. New makes it on all ranks.
//
// Dispatch and Combine are called in turns, by all ranks alike. A call that fails because a rank
// did not come, or came with another call, leaves the op broken: later calls answer the same error,
// and only Close is of use. Bad arguments break nothing here; but the other ranks wait for this
// one's call. Not for use by several goroutines at once.
//
// Where the World has its heap on a GPU, so has the op, unless Options.Host: gpu.go says what is
// different then.
//
// Addresses are of this process. What a call names stays the caller's, and must stay as it is until
// the call ends, in two phases until the second has ended.
type Op struct {
	world  *shmem.World
	cfg    Config
	layout Layout
	opts   Options
	base   uint64   // of the layout, in symmetric memory
	own    uint64   // words that no other rank looks at
	gpu    *gpuSide // nil on host memory

	board      *plan.CountMatrix
	plan       *plan.Plan
	replayed   *plan.Plan // of a Route that Combine was given
	dispatches uint64
	combines   uint64
	received   int  // rows of the last dispatch
	keep       bool // what Received says, in a combine

	sources []uint64  // scratch of Combine: addresses of rows
	scales  []uint64  // and of their scales
	factors []float32 // and what they are multiplied by
	sums    []float32 // and that by row of the plan
	weights []float32 // that the last dispatch was given
	packed  []int32   // what Pack did with each choice
	staging []byte    // rows from or to ranks whose memory is not mapped here; a buffer of world's

	phase  chan error // of a call between its send and its recv, else nil
	mu     sync.Mutex // of broken, and of gpuSide.dead
	broken error
}

// Options shape an Op. Each rank may have its own.
type Options struct {
	Timeout     time.Duration // of each wait for other ranks, 0 = without end
	Threads     int           // that move and sum rows; at least 1
	ScaleBlocks int           // scales of a row where QuantType is blockwise
	Host        bool          // on host memory even if the World's heap is on a GPU
	Blocks      int           // most that a kernel gets where nobody asks for more; 0: half of what the GPU runs at once
	Tuning      *Tuning       // launches that were measured to be the best, nil: none
	ChunkBytes  int           // that kernels send to another host at once, about; 0: 2 MiB. All ranks have the same

	// Interrupt is asked now and then while a recv waits for what its send began; an error ends the
	// wait, and the recv may be called again. The World has one of its own, for calls of one phase.
	// nil: never.
	Interrupt func() error
}

// askEvery is how often.
const askEvery = 50 * time.Millisecond

// The words behind the layout.
const (
	receivedWord = 0              // int32: rows received
	localCounts  = plan.Alignment // int32 [ExpertsPerRank]
)

// New makes an op. Collective.
func New(w *shmem.World, cfg Config, opts Options) (*Op, error) {
	layout, err := plan.NewLayout(cfg, min(opts.ScaleBlocks, cfg.HiddenDim))
	switch {
	case err != nil:
		return nil, err
	case cfg.WorldSize != w.NPEs() || cfg.Rank != w.MyPE():
		return nil, fmt.Errorf("make an op as rank %d of %d on PE %d of %d: %w", cfg.Rank, cfg.WorldSize, w.MyPE(), w.NPEs(), ErrConfig)
	case cfg.QuantType == QuantFp4Blockwise:
		return nil, fmt.Errorf("make an op with quant_type %v: there is no such conversion: %w", cfg.QuantType, ErrConfig)
	}
	o := &Op{world: w, cfg: cfg, layout: layout, opts: opts, board: plan.NewCountMatrix(cfg), plan: plan.New(cfg), replayed: plan.New(cfg)}
	if w.Device() != nil && !opts.Host {
		return o, o.openGPU()
	}
	size := layout.Size + localCounts + uint64(cfg.ExpertsPerRank)*plan.Int32Bytes
	if o.base, err = w.MallocHost(plan.Alignment, size); err != nil {
		return nil, fmt.Errorf("make the buffers of an op: %w", err)
	}
	o.own = o.base + layout.Size
	// The memory may have been another op's. Flags are down before anybody raises one.
	clear(memory.Bytes(o.base, layout.DispatchOut.Offset))
	clear(memory.Bytes(o.own, size-layout.Size))
	if err := w.BarrierAll(); err != nil {
		return nil, fmt.Errorf("make an op: %w", err)
	}
	return o, nil
}

// Close frees the buffers. Collective. It waits for a phase or kernels that are under way, and
// aborts the kernels of a broken op and those that do not end in time. If a kernel does not end
// even then, Close frees nothing and returns an error that names it; the World is broken then.
func (o *Op) Close() error {
	if o.base == 0 {
		return nil
	}
	stuck := o.Settle()
	base := o.base
	o.base = 0
	if stuck != nil {
		o.gpu.unwatch()
		return fmt.Errorf("close an op: %w", stuck)
	}
	var err error
	if o.gpu != nil {
		err = errors.Join(o.gpu.close(), o.gpu.hosts.free(o.world))
	}
	return errors.Join(err, o.dropStaging(), o.world.Free(base))
}

// Settle waits for a phase that is under way, which its recv cannot end any more. On a GPU, for all
// that streams have of the op; the error names a kernel that does not end.
func (o *Op) Settle() error {
	if o.gpu != nil {
		err := o.gpu.settle()
		if err != nil {
			o.world.Abandon(err)
		}
		return err
	}
	if o.phase != nil {
		<-o.phase
		o.phase = nil
	}
	return nil
}

// Config is what the op was made with, Layout where its buffers lie from Base on.
func (o *Op) Config() Config { return o.cfg }

// Layout is where the op's buffers lie, from Base on.
func (o *Op) Layout() Layout { return o.layout }

// Base is the address of the layout in symmetric memory.
func (o *Op) Base() uint64 { return o.base }

// Received is the address of the int32 that says how many rows the last dispatch brought. Combine
// sets it to 0, unless it is given a Route.
func (o *Op) Received() uint64 { return o.own + receivedWord }

// LocalCounts is the address of int32 [ExpertsPerRank], which CountLocal fills.
func (o *Op) LocalCounts() uint64 { return o.own + localCounts }

// Tokens is how many tokens this rank's last dispatch had.
func (o *Op) Tokens() int {
	if o.gpu != nil {
		return o.gpu.tokens
	}
	return o.plan.Tokens()
}

// Rows is how many rows the last dispatch brought, 0 after a combine. On a GPU it waits for the
// stream of the last call.
func (o *Op) Rows() (int, error) {
	if o.gpu != nil {
		return o.gpu.rows()
	}
	return int(memory.Load32(o.Received())), nil
}

// SetStream makes later calls queue their work on a stream of the op's GPU: cudaStream_t,
// hipStream_t, 0 for the default stream. It must stay until Leave or Close, which look at it:
// drivers crash on one that was destroyed. On host memory it is without effect.
func (o *Op) SetStream(stream uint64) {
	if o.gpu != nil {
		o.gpu.setStream(stream)
	}
}

// Device is the GPU that the op is on, nil on host memory.
func (o *Op) Device() *device.Device {
	if o.gpu != nil {
		return o.gpu.dev
	}
	return nil
}

// Check is why the op is broken, or a *CapError that no call has returned yet, as far as is known
// here: on a GPU, of work that has been done. It does not wait.
func (o *Op) Check() error {
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.broken != nil:
		return o.broken
	case o.gpu != nil:
		return o.gpu.overflow()
	}
	return nil
}

// Leave is called when streams that calls went to may be destroyed from now on, though their work
// has not ended. No call follows but Close.
func (o *Op) Leave() {
	if o.gpu != nil && o.base != 0 {
		o.gpu.mark()
		clear(o.gpu.streams)
		clear(o.gpu.used)
	}
}

// look notices what kernels have told meanwhile, and who has died.
func (o *Op) look() {
	if o.gpu != nil && o.base != 0 {
		_ = o.breaks(o.gpu.trouble())
	}
}

// KeepRows makes combine leave Received as it is, so that a benchmark can combine the rows of one
// dispatch repeatedly.
func (o *Op) KeepRows(on bool) { o.keep = on }

// setReceived says how many rows there are.
func (o *Op) setReceived(rows int) {
	o.received = rows
	memory.Store32(o.Received(), uint32(rows))
}

// usable is why a call cannot begin, or nil.
func (o *Op) usable() error {
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.base == 0:
		return fmt.Errorf("the op is closed: %w", ErrState)
	case o.broken != nil:
		return fmt.Errorf("the op is broken: %w", o.broken)
	case o.phase != nil || o.gpu != nil && o.gpu.sent != sentNothing:
		return fmt.Errorf("what was sent before has not been received: %w", ErrState)
	}
	return nil
}

// breaks keeps an error that leaves the ranks out of step.
func (o *Op) breaks(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && o.broken == nil {
		o.broken = err
		if errors.Is(err, shmem.ErrTimeout) {
			o.world.NoteTimeout()
		}
	}
	return err
}

// isBroken reports whether breaks has kept an error.
func (o *Op) isBroken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.broken != nil
}

// start makes the rest of a call go on by itself.
func (o *Op) start(rest func() error) {
	phase := make(chan error, 1)
	o.phase = phase
	go func() { phase <- rest() }()
}

// end waits for the rest of a call, which Options.Timeout bounds.
func (o *Op) end(act string) error {
	if o.phase == nil {
		return fmt.Errorf("%s without its send: %w", act, ErrState)
	}
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		select {
		case err := <-o.phase:
			o.phase = nil
			return err
		case <-ask.C:
			if o.opts.Interrupt == nil {
				continue
			}
			if err := o.opts.Interrupt(); err != nil {
				return err
			}
		}
	}
}
