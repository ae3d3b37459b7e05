// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// A World is one PE's view of all PEs and of the memory that they share. Safe for concurrent use; collective calls are made
// one at a time, by all PEs in the same order.
type World struct {
	pes   *peers.Group
	cfg   Config
	nodes []hello // of all PEs
	share *memory.Sharer
	net   *remote.Network // to PEs whose memory is not mapped; nil if there is none

	control *block // words that PEs wait on and collectives meet at, never the user's; in host memory
	heap    *block // StaticHeap and VMMHeap

	gpu    *access.GPU // touches the heap if it is on GPUs, else nil
	side   *deviceSide // what kernels know of the heap, nil unless it is on GPUs
	linked []bool      // by PE: the GPUs of that PE and this one reach each other
	split  bool        // there are PEs whose GPUs do not reach each other

	teams teams

	mu     sync.Mutex   // of collective bookkeeping
	calls  uint64       // of agree
	arena  *arena.Arena // of heap
	single uint64       // bytes of all isolated blocks
	nextID uint64       // of an isolated block; odd, as no offset is

	local struct { // not mu, which collective calls hold while they wait for others
		sync.Mutex
		buffers map[uint64]buffer
	}

	isolated atomic.Pointer[[]*block] // by base; replaced, never changed

	usual atomic.Pointer[block] // heap while all is well, for near
	stuck atomic.Pointer[error] // the kernel that does not end, of Abandon
}

// controlSize is the size of the control block.
const controlSize = 1 << 20

// Init makes a World of the group's ranks, PE i being rank i, and takes the group over: Finalize closes it. Collective.
func Init(ctx context.Context, g bootstrap.Group, cfg Config) (*World, error) {
	w := &World{cfg: cfg, nextID: 1}
	w.pes = peers.New(g, peers.Options{Timeout: cfg.Timeout, Interrupt: cfg.Interrupt, Log: cfg.Log})
	w.isolated.Store(&[]*block{})
	w.local.buffers = map[uint64]buffer{}
	ctx, cancel := w.pes.Bounded(ctx)
	defer cancel()
	if err := w.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("initialise shmem as PE %d of %d: %w", w.pes.Me, w.pes.N, err), w.close())
	}
	if w.gpu == nil {
		w.usual.Store(w.heap)
	}
	w.pes.OnFail(func() { w.usual.Store(nil) })
	w.pes.Log.Info("shmem is initialised", "pe", w.pes.Me, "npes", w.pes.N, "node", w.cfg.NodeID, "mode", w.cfg.Mode, "heap", w.cfg.HeapSize, "on", w.placeOfHeap())
	return w, nil
}

// open gets everything, PE by PE alike.
func (w *World) open(ctx context.Context) (err error) {
	cause := w.cfg.validate(os.DirFS("/"))
	if cause == nil {
		w.share, cause = memory.NewSharer()
	}
	if d := w.cfg.Device; d != nil && cause == nil {
		w.gpu = access.NewGPU(d, w.pes.Timeout, w.pes.Interrupt)
		w.gpu.Known = w.inHeap
	}
	if err = w.meet(ctx, cause); err != nil {
		return err
	}
	if err = w.link(ctx); err != nil {
		return err
	}
	if err = w.connect(ctx); err != nil {
		return err
	}
	if w.control, err = w.newBlock(ctx, spec{name: "control", size: controlSize, limit: controlSize}); err != nil {
		return err
	}
	if err = w.openTeams(ctx); err != nil {
		return err
	}
	if w.cfg.Mode != Isolation {
		if err = w.openHeap(ctx); err != nil {
			return err
		}
	}
	if w.gpu != nil {
		return w.openSide(ctx)
	}
	return nil
}

// openHeap makes the heap of the modes that have one.
func (w *World) openHeap(ctx context.Context) (err error) {
	size := w.cfg.HeapSize
	if w.cfg.Mode == VMMHeap {
		size = min(size, w.cfg.ChunkSize)
	}
	w.arena = arena.New(size, w.cfg.HeapSize)
	w.heap, err = w.newBlock(ctx, spec{name: "heap", size: size, limit: w.cfg.HeapSize, gpu: w.gpu != nil})
	return err
}

// Failed returns why the World is broken for good, nil as long as it is not. The cause wraps a
// *bootstrap.RankError where a PE has died.
func (w *World) Failed() error { return w.pes.Failed() }

// Broken returns a channel that is closed when the World is broken for good. Failed then says why.
func (w *World) Broken() <-chan struct{} { return w.pes.Broken() }

// Ended returns a channel that is closed when Finalize begins to free what the World has.
func (w *World) Ended() <-chan struct{} { return w.pes.Ended() }

// NoteTimeout records that a layer above has timed out in a wait for another PE. That PE may be
// stopped, so Finalize does not wait long for it.
func (w *World) NoteTimeout() { w.pes.NoteTimeout() }

// Abandon breaks the World for good, because of a kernel that does not end. Finalize then leaves the heap on the GPU allocated: drivers block when they free
// memory that a kernel uses.
func (w *World) Abandon(cause error) {
	w.stuck.CompareAndSwap(nil, &cause)
	w.pes.Fail(cause)
}

// lastMeeting is how long Finalize waits for other PEs after a wait for one of them has timed out.
const lastMeeting = time.Second

// Finalize waits for all PEs and frees everything. No other call may be on its way. Collective. Once the World is broken, or a wait for another PE has timed
// out, it returns within 2 s.
func (w *World) Finalize(ctx context.Context) error {
	if !w.pes.Shut() {
		return nil
	}
	w.usual.Store(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
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
		errs = append(errs, w.drainBy(deadline))
		if w.side != nil {
			errs = append(errs, w.side.settle(ctx))
		}
		_, err := w.pes.Gather(ctx, nil)
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, w.close())...); err != nil {
		return fmt.Errorf("finalize PE %d of %d: %w", w.pes.Me, w.pes.N, err)
	}
	return nil
}

// close frees what there is.
func (w *World) close() error {
	w.pes.End()
	var errs []error
	errs = append(errs, w.net.Shut())
	if w.side != nil {
		errs = append(errs, w.side.shut())
		if err := w.stilled(); err != nil {
			return errors.Join(append(errs, err, w.share.Close(), w.pes.Close())...)
		}
		errs = append(errs, w.side.close())
	}
	blocks := append([]*block{w.heap, w.control}, *w.isolated.Load()...)
	if w.side != nil && w.side.sync != w.heap {
		blocks = append(blocks, w.side.sync)
	}
	for _, b := range blocks {
		if b != nil {
			errs = append(errs, w.drop(b))
		}
	}
	errs = append(errs, w.dropBuffers())
	errs = append(errs, w.net.Close())
	if w.gpu != nil {
		errs = append(errs, w.gpu.Close())
	}
	if w.share != nil {
		errs = append(errs, w.share.Close())
	}
	return errors.Join(append(errs, w.pes.Close())...)
}

// lastKernels is how long a World that ends badly waits for its kernels on streams.
const lastKernels = 500 * time.Millisecond

// stilled is an error if kernels still use the memory of the World, which then stays: taken from under them, the GPU would be lost to the
// whole process.
func (w *World) stilled() error {
	if cause := w.stuck.Load(); cause != nil {
		return fmt.Errorf("the heap on the GPU is not freed: %w", *cause)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastKernels)
	defer cancel()
	err := w.side.settle(ctx)
	if errors.Is(err, device.ErrTimeout) {
		return fmt.Errorf("the heap on the GPU is not freed, as kernels are still using it: %w", err)
	}
	return nil // done, or the GPU is lost
}

// MyPE is this PE's number, NPEs how many there are.
func (w *World) MyPE() int { return w.pes.Me }
func (w *World) NPEs() int { return w.pes.N }

// Device is the GPU whose memory this PE's heap is, nil for host memory.
func (w *World) Device() *device.Device { return w.cfg.Device }

// Closed reports whether Finalize was called.
func (w *World) Closed() bool { return w.pes.Closed() }

// locate finds the block that holds n bytes at the symmetric address addr.
func (w *World) locate(addr, n uint64) (b *block, off uint64, err error) {
	if b, off = w.blockAt(addr, n); b != nil {
		return b, off, nil
	}
	return nil, 0, fmt.Errorf("%d bytes at %#x: %w", n, addr, ErrNotSym)
}

// blockAt is locate for who expects that there may be none: nil then.
func (w *World) blockAt(addr, n uint64) (*block, uint64) {
	if b := w.heap; b != nil {
		if off, ok := b.holds(addr, n); ok {
			return b, off
		}
	}
	return w.isolatedAt(addr, n)
}

// isolatedAt finds the isolated block that holds n bytes at addr, nil if there is none.
func (w *World) isolatedAt(addr, n uint64) (*block, uint64) {
	list := *w.isolated.Load()
	i, found := slices.BinarySearchFunc(list, addr, compareBase)
	if !found {
		i--
	}
	if i >= 0 {
		if off, ok := list[i].holds(addr, n); ok {
			return list[i], off
		}
	}
	return nil, 0
}

// Ptr is where PE pe's copy of what is at the symmetric address addr can be loaded and stored, 0 if it cannot (shmem_ptr).
func (w *World) Ptr(addr uint64, pe int) uint64 {
	if pe < 0 || pe >= w.pes.N || w.pes.Closed() {
		return 0
	}
	b, off, err := w.locate(addr, 1)
	if err != nil || b.peers[pe].mapped == 0 {
		return 0
	}
	return b.peers[pe].mapped + off
}
