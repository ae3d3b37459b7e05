// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// A block is symmetric: every PE has one of the same size, and an address in it means the same offset everywhere.
type block struct {
	part    part
	mem     access.Memory                  // touches it
	gpu     bool                           // it is on GPUs
	base    uint64                         // part.addr()
	size    uint64                         // that it may have
	have    atomic.Uint64                  // of these, what all PEs have and may touch
	id      uint64                         // of an isolated block, the same on all PEs
	regions atomic.Pointer[remote.Regions] // by which PEs reach it that do not map it; nil if all do
	peers   []place
}

// A place is where a PE's part of a block is, as this PE reaches it.
type place struct {
	mapped uint64     // address in this process, 0: not mapped
	view   mappedPart // whose mapping that is; nil for our own
}

// An offer is what a PE tells the others about its part of a block.
type offer struct {
	Ticket memory.Ticket    // of a segment
	IPC    device.IPCHandle // of an allocation of a GPU
	Chunks []sharedChunk    // of virtual memory of a GPU
	Key    []byte           // for the network, of what is new
	Error  string           // why it has none
}

// A spec is which block is wanted.
type spec struct {
	name        string
	size, limit uint64 // that it has at first, and may have
	align       uint64 // of its beginning
	gpu         bool   // on the PEs' GPUs, else in host memory
}

// newBlock makes this PE's part of a block and finds those of the others. Collective: all PEs have it or none, and an error says
// whose part there is not.
func (w *World) newBlock(ctx context.Context, s spec) (*block, error) {
	b := &block{size: s.limit, gpu: s.gpu, mem: access.Host{}, peers: make([]place, w.pes.N)}
	if s.gpu {
		b.mem = w.gpu
	}
	b.have.Store(s.size)
	var mine offer
	cause := w.newPart(b, s, &mine)
	blobs, err := w.tell(ctx, &mine, cause)
	for pe, blob := range blobs {
		if cause == nil && err == nil {
			cause = w.place(ctx, b, pe, blob)
		}
	}
	if err == nil {
		err = w.pes.AllWell(ctx, cause)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the %s of %d bytes: %w", s.name, s.limit, err), w.drop(b))
	}
	return b, nil
}

// tell exchanges offers. cause is why this PE has none. Collective.
func (w *World) tell(ctx context.Context, mine *offer, cause error) ([][]byte, error) {
	if cause != nil {
		mine.Error = cause.Error()
	}
	text, _ := json.Marshal(mine) // plain fields
	return w.pes.Gather(ctx, text)
}

// newPart makes this PE's part of b and what the others need to find it.
func (w *World) newPart(b *block, s spec, o *offer) (err error) {
	switch {
	case !s.gpu:
		b.part, err = made(newSegmentPart(w.share, s.name, s.size, s.limit))
	case w.cfg.Mode == VMMHeap:
		b.part, err = made(newVirtualPart(w.gpu, w.share, s.size, s.limit))
	default:
		b.part, err = made(newAllocPart(w.gpu, s.limit, s.align))
	}
	if err != nil {
		return err
	}
	b.base = b.part.addr()
	if err = b.part.offer(o); err != nil || w.net == nil {
		return err
	}
	r, err := w.net.Extend(nil, b.base, s.size, b.gpu)
	if err == nil {
		b.regions.Store(r)
		o.Key = r.Key()
	}
	return err
}

// made is a part, or nil if there is none.
func made[P part](p P, err error) (part, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// place finds PE pe's part of b by its offer.
func (w *World) place(ctx context.Context, b *block, pe int, blob []byte) error {
	var o offer
	if err := peers.Decode(blob, pe, "offer", &o); err != nil {
		return err
	}
	switch {
	case o.Error != "":
		return nil // that PE says so itself
	case pe == w.pes.Me:
		b.peers[pe].mapped = b.base
		return nil
	case w.beyond(b, pe):
		return w.net.Import(b.regions.Load(), pe, o.Key)
	}
	view, err := w.openPart(ctx, b, pe, &o)
	if err != nil {
		return fmt.Errorf("map the memory of PE %d: %w", pe, err)
	}
	b.peers[pe] = place{mapped: view.addr(), view: view}
	return nil
}

// openPart maps what PE pe offers of b.
func (w *World) openPart(ctx context.Context, b *block, pe int, o *offer) (mappedPart, error) {
	switch {
	case !b.gpu:
		return opened(openSegmentView(ctx, o, b.size))
	case w.cfg.Mode == VMMHeap:
		return opened(openVirtualView(ctx, w.gpu, o, b.size))
	}
	var owner *device.Device
	if w.nodes[pe].PID == w.nodes[w.pes.Me].PID {
		owner = w.gpuOf(pe)
	}
	return opened(openAllocView(w.gpu, o, owner))
}

// opened is a mapped part, or nil if there is none.
func opened[P mappedPart](p P, err error) (mappedPart, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// grow makes b of every PE size bytes large. Collective: all PEs have that much or what they had, and may try again.
func (w *World) grow(ctx context.Context, b *block, size uint64) error {
	var mine offer
	var wider *remote.Regions
	cause := b.part.grow(size)
	if cause == nil && b.gpu {
		cause = b.part.offer(&mine)
	}
	if cause == nil && w.net != nil {
		if wider, cause = w.net.Extend(b.regions.Load(), b.base, size, b.gpu); cause == nil {
			mine.Key = wider.Key()
		}
	}
	if b.gpu || w.net != nil {
		blobs, err := w.tell(ctx, &mine, cause)
		if err != nil {
			return errors.Join(err, wider.Retract())
		}
		for pe, blob := range blobs {
			if cause == nil {
				cause = w.follow(ctx, b, wider, pe, blob)
			}
		}
	}
	if err := w.pes.AllWell(ctx, cause); err != nil {
		return errors.Join(err, wider.Retract())
	}
	if wider != nil {
		b.regions.Store(wider)
	}
	b.have.Store(size)
	return nil
}

// follow finds what PE pe's part of b has grown by.
func (w *World) follow(ctx context.Context, b *block, wider *remote.Regions, pe int, blob []byte) error {
	var o offer
	if err := peers.Decode(blob, pe, "offer", &o); err != nil {
		return err
	}
	if o.Error != "" {
		return nil // that PE says so itself
	}
	if w.beyond(b, pe) {
		return w.net.Import(wider, pe, o.Key)
	}
	if v := b.peers[pe].view; v != nil && b.gpu {
		if err := v.follow(ctx, &o); err != nil {
			return fmt.Errorf("map the memory of PE %d: %w", pe, err)
		}
	}
	return nil
}

// beyond reports whether PE pe's part of b is reached by the network only.
func (w *World) beyond(b *block, pe int) bool {
	return !w.maps(pe) || b.gpu && !w.linked[pe]
}

// maps reports whether this PE maps the memory of PE pe.
func (w *World) maps(pe int) bool {
	mine, its := &w.nodes[w.pes.Me], &w.nodes[pe]
	return pe == w.pes.Me || its.Node == mine.Node && its.Room == mine.Room && !mine.DisableP2P && !its.DisableP2P
}

// drop unmaps all parts of b. First nobody can reach it here any more.
func (w *World) drop(b *block) error {
	errs := []error{b.regions.Load().Close()}
	for i := range b.peers {
		if v := b.peers[i].view; v != nil {
			errs = append(errs, v.close())
		}
	}
	if b.part != nil {
		errs = append(errs, b.part.close())
	}
	return errors.Join(errs...)
}

// holds reports whether n bytes at addr are in b, and at which offset.
func (b *block) holds(addr, n uint64) (off uint64, ok bool) {
	off = addr - b.base
	have := b.have.Load()
	return off, off < have && n <= have-off
}
