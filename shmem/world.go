// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/bootstrap"
	"mori/core/fabric"
	"mori/core/memory"
)

// A World is one PE's view of all PEs and of the memory that they share. Safe for concurrent use; collective calls are made
// one at a time, by all PEs in the same order.
type World struct {
	group bootstrap.Group
	cfg   Config
	log   *slog.Logger
	me, n int
	share *memory.Sharer
	net   network // to PEs whose memory is not mapped; nil if there is none

	control *block // words that PEs wait on and collectives meet at, never the user's
	heap    *block // StaticHeap and VMMHeap

	teams teams

	mu     sync.Mutex // of collective bookkeeping
	closed atomic.Bool
	fault  atomic.Pointer[error] // what ended the World for good
}

// A block is symmetric: every PE has one of the same size, and an address in it means the same offset everywhere.
type block struct {
	seg   *memory.Segment
	base  uint64 // seg.Addr()
	size  uint64 // seg.Limit()
	peers []place
}

// A place is where a PE's part of a block is, as this PE reaches it.
type place struct {
	mapped uint64          // address in this process, 0: not mapped
	seg    *memory.Segment // whose mapping that is; nil for our own
	remote remote          // what network made of the PE's key, if not mapped
}

// A remote names a PE's part of a block to the network.
type remote struct{ key, base uint64 }

// A network reaches the PEs whose memory is not mapped here. Offsets are in b.
type network interface {
	// put and get queue a transfer, whose local bytes stay untouched until quiet.
	put(pe int, b *block, off, src, n uint64) error
	get(pe int, b *block, off, dst, n uint64) error

	// atomic applies op to the word of size bytes at off, after what was put to the PE before a fence, and returns what was there.
	atomic(pe int, b *block, off uint64, op fabric.AtomicOp, size int, value, compare uint64) (old uint64, err error)

	// fence makes what was put to a PE before visible there before what is put later.
	fence() error

	// quiet waits until all that was queued is done.
	quiet(ctx context.Context) error
}

// controlSize is the size of the control block.
const controlSize = 1 << 20

// Init makes a World of the group's ranks, PE i being rank i, and takes the group over: Finalize closes it. Collective.
func Init(ctx context.Context, g bootstrap.Group, cfg Config) (*World, error) {
	w := &World{group: g, cfg: cfg, log: cfg.Log, me: g.Rank(), n: g.Size()}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	if err := w.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("initialise shmem as PE %d of %d: %w", w.me, w.n, err), w.close())
	}
	return w, nil
}

// bounded is ctx with the World's deadline.
func (w *World) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.cfg.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, w.cfg.Timeout)
}

func (w *World) open(ctx context.Context) (err error) {
	if w.share, err = memory.NewSharer(); err != nil {
		return err
	}
	if w.control, err = w.newBlock(ctx, "control", controlSize, controlSize); err != nil {
		return err
	}
	if err = w.openTeams(ctx); err != nil {
		return err
	}
	if w.heap, err = w.newBlock(ctx, "heap", w.cfg.HeapSize, w.cfg.HeapSize); err != nil {
		return err
	}
	return w.group.Barrier(ctx)
}

// An offer is what a PE tells the others about its part of a block.
type offer struct {
	Node   string
	Ticket memory.Ticket
	Error  string // why it has none
}

// newBlock makes this PE's part of a block and finds those of the others. Collective.
func (w *World) newBlock(ctx context.Context, name string, size, limit uint64) (*block, error) {
	b := &block{size: limit, peers: make([]place, w.n)}
	mine := offer{Node: w.cfg.NodeID}
	seg, err := memory.NewSegment("mori-shmem-"+name, size, limit)
	if err != nil {
		mine.Error = err.Error()
	} else {
		b.seg, b.base = seg, seg.Addr()
		mine.Ticket = w.share.Share(seg)
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := w.group.AllGather(ctx, text)
	for pe, blob := range blobs {
		if err == nil {
			err = w.place(ctx, b, pe, blob)
		}
	}
	if err == nil {
		err = w.group.Barrier(ctx) // nobody unmaps before everybody has mapped
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the %s of %d bytes: %w", name, size, err), b.close())
	}
	return b, nil
}

// place finds PE pe's part of b by its offer.
func (w *World) place(ctx context.Context, b *block, pe int, blob []byte) error {
	var o offer
	if err := json.Unmarshal(blob, &o); err != nil {
		return fmt.Errorf("read the offer of PE %d: %w", pe, err)
	}
	if o.Error != "" {
		return fmt.Errorf("PE %d: %s", pe, o.Error)
	}
	if pe == w.me {
		b.peers[pe].mapped = b.base
		return nil
	}
	if o.Node != w.cfg.NodeID || w.cfg.DisableP2P {
		return fmt.Errorf("PE %d on node %s: %w", pe, o.Node, ErrUnreachable)
	}
	seg, err := memory.OpenSegment(ctx, o.Ticket)
	if err != nil {
		return fmt.Errorf("map the memory of PE %d: %w", pe, err)
	}
	b.peers[pe] = place{mapped: seg.Addr(), seg: seg}
	return nil
}

// close unmaps all parts.
func (b *block) close() error {
	var errs []error
	for i := range b.peers {
		if s := b.peers[i].seg; s != nil {
			errs = append(errs, s.Close())
		}
	}
	if b.seg != nil {
		errs = append(errs, b.seg.Close())
	}
	return errors.Join(errs...)
}

// Finalize waits for all PEs and frees everything. Collective.
func (w *World) Finalize(ctx context.Context) error {
	if w.closed.Swap(true) {
		return nil
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	return errors.Join(w.group.Barrier(ctx), w.close())
}

// close frees what there is.
func (w *World) close() error {
	w.closed.Store(true)
	var errs []error
	if w.share != nil {
		errs = append(errs, w.share.Close())
	}
	for _, b := range []*block{w.heap, w.control} {
		if b != nil {
			errs = append(errs, b.close())
		}
	}
	return errors.Join(append(errs, w.group.Close())...)
}

// MyPE is this PE's number, NPEs how many there are.
func (w *World) MyPE() int { return w.me }
func (w *World) NPEs() int { return w.n }

// locate finds the block that holds n bytes at the symmetric address addr.
func (w *World) locate(addr, n uint64) (b *block, off uint64, err error) {
	if b = w.heap; b != nil {
		if off = addr - b.base; off < b.size && n <= b.size-off {
			return b, off, nil
		}
	}
	return nil, 0, fmt.Errorf("%d bytes at %#x: %w", n, addr, ErrNotSym)
}

// Ptr is where PE pe's copy of what is at the symmetric address addr can be loaded and stored, 0 if it cannot (shmem_ptr).
func (w *World) Ptr(addr uint64, pe int) uint64 {
	if pe < 0 || pe >= w.n || w.closed.Load() {
		return 0
	}
	b, off, err := w.locate(addr, 1)
	if err != nil || b.peers[pe].mapped == 0 {
		return 0
	}
	return b.peers[pe].mapped + off
}

// deadline is when a wait that begins now gives up; zero is never.
func (w *World) deadline() (t time.Time) {
	if w.cfg.Timeout > 0 {
		t = time.Now().Add(w.cfg.Timeout)
	}
	return t
}
