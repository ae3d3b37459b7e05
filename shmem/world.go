// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/limits"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/gpu"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/local"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/placement"
	"mori/shmem/internal/remote"
	"mori/shmem/internal/rma"
	"mori/shmem/internal/team"
	"mori/shmem/internal/wait"
)

// A World is one PE's view of all PEs and of the memory that they share. Safe for concurrent use.
// All PEs make collective calls in the same order, one at a time.
type World struct {
	rma.RMA          // Put, Get, Atomic, PutSignal and their forms
	*heap.Allocator  // Malloc, Calloc, Free
	*wait.Conditions // WaitUntil, Test, SignalFetch, AwaitFor
	*team.Teams      // TeamWorld, TeamShared, BarrierAll, SyncAll
	*gpu.Kernels     // ModuleInit, BarrierOnStream, Remote, State
	*local.Buffers   // AllocBuffer, RegisterBuffer

	pes   *peers.Group
	cfg   Config
	where *placement.Map
	share *memory.Sharer
	net   *remote.Network // to PEs whose memory is not mapped; nil if there is none

	blocks  *heap.Maker
	control *heap.Block // control blocks, in host memory: words for waits and collective calls, hidden from users
	heap    *heap.Heap
	waiter  *wait.Waiter
	order   *rma.Order

	gpu  *access.GPU // accesses the heap if it is on GPUs, else nil
	side *gpu.Side   // what kernels know of the heap; nil in host memory

	stuck atomic.Pointer[error] // error of the kernel that does not end, from Abandon
}

// Init creates a World of the group's ranks; PE i is rank i. It takes ownership of the group, which
// Finalize closes. Collective.
func Init(ctx context.Context, g bootstrap.Group, cfg Config) (*World, error) {
	w := &World{cfg: cfg}
	w.pes = peers.New(g, peers.Options{Timeout: cfg.Timeout, Interrupt: cfg.Interrupt, Log: cfg.Log})
	ctx, cancel := w.pes.Bounded(ctx)
	defer cancel()
	if err := w.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("initialise shmem as PE %d of %d: %w", w.pes.Me, w.pes.N, err), w.close())
	}
	w.pes.Log.Info("shmem is initialised", "pe", w.pes.Me, "npes", w.pes.N, "node", w.cfg.NodeID, "mode", w.cfg.Mode, "heap", w.cfg.HeapSize, "on", w.placeOfHeap())
	return w, nil
}

// open creates everything, in the same order on all PEs.
func (w *World) open(ctx context.Context) (err error) {
	cause := w.cfg.validate(os.DirFS("/"))
	if cause == nil {
		cause = limits.Threads()
	}
	if cause == nil {
		w.share, cause = memory.NewSharer()
	}
	if d := w.cfg.Device; d != nil && cause == nil {
		w.gpu = access.NewGPU(d, w.pes.Timeout, w.pes.Interrupt)
		w.gpu.Known = func(addr, n uint64) bool { return w.heap != nil && w.heap.Contains(addr, n) }
	}
	w.where, err = placement.Exchange(ctx, w.pes, placement.Self{NodeID: w.cfg.NodeID, DisableP2P: w.cfg.DisableP2P, Mode: w.cfg.Mode,
		HeapSize: w.cfg.HeapSize, ChunkSize: w.cfg.ChunkSize, Device: w.cfg.Device}, cause)
	if err != nil {
		return err
	}
	if err = w.connect(ctx); err != nil {
		return err
	}
	w.order = rma.NewOrder(w.pes, w.gpu, w.net)
	w.blocks = heap.NewMaker(w.pes, heap.Resources{Share: w.share, GPU: w.gpu, Net: w.net, Mode: w.cfg.Mode, Where: w.where})
	if w.control, err = w.blocks.New(ctx, heap.Spec{Name: "control", Size: wait.ControlSize, Limit: wait.ControlSize}); err != nil {
		return err
	}
	w.waiter = wait.NewWaiter(w.pes, w.control, w.net)
	w.Teams, err = team.Open(ctx, team.Env{PEs: w.pes, Control: w.control, Waiter: w.waiter, Net: w.net, OnGPU: w.gpu != nil, Split: w.where.Split(),
		Drain: w.order.Drain, Locate: func(addr, n uint64) (*heap.Block, uint64, error) { return w.heap.Locate(addr, n) }})
	if err != nil {
		return err
	}
	if w.heap, w.Allocator, err = heap.Open(ctx, w.pes, w.blocks, w.cfg.HeapSize, w.cfg.ChunkSize, w.order.Drain); err != nil {
		return err
	}
	w.Conditions = wait.NewConditions(w.waiter, w.heap)
	rma.Open(&w.RMA, w.pes, w.heap, w.waiter.Waker, w.net, w.order)
	if w.gpu != nil {
		w.side, err = gpu.Open(ctx, gpu.Env{PEs: w.pes, GPU: w.gpu, Net: w.net, Main: w.heap.Main(), Host: w.cfg.Host, NIC: w.cfg.NIC}, w.blocks)
	}
	w.Kernels = gpu.NewKernels(w.pes, w.side)
	w.Buffers = local.New(w.pes, w.net, w.side)
	return err
}

// connect opens the network, if some PEs need it. Collective.
func (w *World) connect(ctx context.Context) (err error) {
	any, apart := w.where.Apart()
	if !any {
		return nil
	}
	cfg := remote.Config{Far: w.where.Far(), Apart: apart, GPU: w.gpu, Host: w.cfg.Host, QPPerPE: w.cfg.QPPerPE,
		TooMuchToPin: w.where.TooMuchToPin, Local: w.regionsOf}
	if w.gpu != nil {
		cfg.Unlinked = w.where.Unlinked()
	}
	w.net, err = remote.Open(ctx, w.pes, cfg)
	return err
}

// regionsOf returns the regions of the block with n bytes at addr, nil if it is not symmetric.
func (w *World) regionsOf(addr, n uint64) *remote.Regions {
	if w.heap == nil { // the network is probed before the heap exists
		return nil
	}
	if b, _ := w.heap.BlockAt(addr, n); b != nil {
		return b.Regions()
	}
	return nil
}

// Failed returns why the World is broken, nil if it is not. The cause wraps a *bootstrap.RankError
// if a PE has died.
func (w *World) Failed() error { return w.pes.Failed() }

// Broken returns a channel that is closed when the World breaks. Failed then returns the cause.
func (w *World) Broken() <-chan struct{} { return w.pes.Broken() }

// Ended returns a channel that is closed when Finalize begins to free what the World has.
func (w *World) Ended() <-chan struct{} { return w.pes.Ended() }

// NoteTimeout records that a layer above has timed out in a wait for another PE. That PE may be
// stopped, so Finalize does not wait long for it.
func (w *World) NoteTimeout() { w.pes.NoteTimeout() }

// Abandon breaks the World because of a kernel that does not end. Finalize then leaves the heap on
// the GPU allocated, because drivers block when they free memory that a kernel uses.
func (w *World) Abandon(cause error) {
	w.stuck.CompareAndSwap(nil, &cause)
	w.pes.Fail(cause)
}

// lastMeeting is how long Finalize waits for other PEs after a wait for one of them has timed out.
const lastMeeting = time.Second

// Finalize waits for all PEs and frees everything. No other call may be in progress. Collective. If
// the World is broken, or a wait for another PE has timed out, it returns within 2 s.
func (w *World) Finalize(ctx context.Context) error {
	if !w.pes.Shut() {
		return nil
	}
	rma.Slow(&w.RMA)
	defer w.heap.Hold()()
	ctx, cancel := w.pes.Bounded(ctx)
	defer cancel()
	if w.pes.TimedOut() {
		ctx, cancel = context.WithTimeout(ctx, lastMeeting)
		defer cancel()
	}
	var errs []error
	if fault := w.pes.Failed(); fault != nil {
		errs = append(errs, fault)
	} else {
		deadline, _ := ctx.Deadline()
		errs = append(errs, w.order.DrainBy(deadline))
		if w.side != nil {
			errs = append(errs, w.side.Settle(ctx))
		}
		_, err := w.pes.Gather(ctx, nil)
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, w.close())...); err != nil {
		return fmt.Errorf("finalize PE %d of %d: %w", w.pes.Me, w.pes.N, err)
	}
	return nil
}

// close frees everything that was created.
func (w *World) close() error {
	w.pes.End()
	var errs []error
	errs = append(errs, w.net.Shut())
	if w.side != nil {
		errs = append(errs, w.side.Shut())
		if err := w.stilled(); err != nil {
			return errors.Join(append(errs, err, w.share.Close(), w.pes.Close())...)
		}
		errs = append(errs, w.side.Close())
	}
	errs = append(errs, w.heap.Drop(w.blocks), w.blocks.Drop(w.control))
	if w.side != nil {
		errs = append(errs, w.blocks.Drop(w.side.OwnBlock()))
	}
	errs = append(errs, local.Drop(w.Buffers))
	errs = append(errs, w.net.Close())
	if w.gpu != nil {
		errs = append(errs, w.gpu.Close())
	}
	if w.share != nil {
		errs = append(errs, w.share.Close())
	}
	return errors.Join(append(errs, w.pes.Close())...)
}

// lastKernels is how long a failing World waits for its kernels on streams.
const lastKernels = 500 * time.Millisecond

// stilled returns an error if kernels still use the memory of the World. It is then kept: freeing
// it would make the GPU unusable for the whole process.
func (w *World) stilled() error {
	if cause := w.stuck.Load(); cause != nil {
		return fmt.Errorf("the heap on the GPU was not freed: %w", *cause)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastKernels)
	defer cancel()
	err := w.side.Settle(ctx)
	if errors.Is(err, device.ErrTimeout) {
		return fmt.Errorf("the heap on the GPU was not freed, because kernels still use it: %w", err)
	}
	return nil // finished, or the GPU is lost
}

// MyPE returns this PE's number, NPEs the number of PEs.
func (w *World) MyPE() int { return w.pes.Me }
func (w *World) NPEs() int { return w.pes.N }

// Fence orders this PE's puts and atomics: those before the fence are visible at a PE before those
// after it.
func (w *World) Fence() error { return w.order.Fence() }

// Quiet returns when all puts of this PE are visible to all PEs, its gets have arrived, and its
// atomics are complete.
func (w *World) Quiet() error { return w.order.Quiet() }

// Device returns the GPU of this PE's heap, nil for host memory.
func (w *World) Device() *device.Device { return w.cfg.Device }

// Closed reports whether Finalize was called.
func (w *World) Closed() bool { return w.pes.Closed() }

// Ptr returns the address at which PE pe's copy of the symmetric address addr can be loaded and
// stored, 0 if it is not mapped (shmem_ptr).
func (w *World) Ptr(addr uint64, pe int) uint64 { return w.heap.Ptr(addr, pe) }

// placeOfHeap describes the memory of the heap.
func (w *World) placeOfHeap() string {
	if w.gpu == nil {
		return "host memory"
	}
	return w.gpu.Device.String()
}
