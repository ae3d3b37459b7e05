// SPDX-License-Identifier: MIT

package heap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// A Spec describes a wanted block.
type Spec struct {
	Name        string
	Size, Limit uint64 // present and maximum size
	Align       uint64 // alignment of its start
	OnGPU       bool   // on the PEs' GPUs, else in host memory
}

// Where reports how PEs reach each other's memory.
type Where interface {
	Maps(pe int) bool            // this PE maps the host memory of PE pe
	Linked(pe int) bool          // the GPUs of both reach each other
	Owner(pe int) *device.Device // the GPU of PE pe, if that PE is in this process; else nil
}

// A Maker creates blocks together with the other PEs.
type Maker struct {
	pes *peers.Group
	Resources
}

// Resources are what a Maker needs to create blocks.
type Resources struct {
	Share *memory.Sharer
	GPU   *access.GPU     // has the heaps; nil: they are in host memory
	Net   *remote.Network // to PEs that do not map blocks; nil: all do
	Mode  Mode
	Where Where
}

// NewMaker returns the Maker of this PE.
func NewMaker(pes *peers.Group, r Resources) *Maker { return &Maker{pes, r} }

// New creates this PE's part of a block and maps those of the others. Collective: it succeeds on
// all PEs or on none, and the error names the PE that failed.
func (m *Maker) New(ctx context.Context, s Spec) (*Block, error) {
	b := &Block{Size: s.Limit, OnGPU: s.OnGPU, Mem: access.Host{}, peers: make([]place, m.pes.N)}
	if s.OnGPU {
		b.Mem = m.GPU
	}
	b.have.Store(s.Size)
	var mine offer
	cause := m.newPart(b, s, &mine)
	blobs, err := m.exchange(ctx, &mine, cause)
	for pe, blob := range blobs {
		if cause == nil && err == nil {
			cause = m.place(ctx, b, pe, blob)
		}
	}
	if err == nil {
		err = m.pes.AllWell(ctx, cause)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the %s of %d bytes: %w", s.Name, s.Limit, err), m.Drop(b))
	}
	return b, nil
}

// exchange gathers offers. cause is why this PE has no part. Collective.
func (m *Maker) exchange(ctx context.Context, mine *offer, cause error) ([][]byte, error) {
	if cause != nil {
		mine.Error = cause.Error()
	}
	text, _ := json.Marshal(mine) // plain fields
	return m.pes.Gather(ctx, text)
}

// newPart creates this PE's part of b and the offer for the others.
func (m *Maker) newPart(b *Block, s Spec, o *offer) (err error) {
	switch {
	case !s.OnGPU:
		b.part, err = made(newSegmentPart(m.Share, s.Name, s.Size, s.Limit))
	case m.Mode == VMMHeap:
		b.part, err = made(newVirtualPart(m.GPU, m.Share, s.Size, s.Limit))
	default:
		b.part, err = made(newAllocPart(m.GPU, s.Limit, s.Align))
	}
	if err != nil {
		return err
	}
	b.Base = b.part.addr()
	if err = b.part.offer(o); err != nil || m.Net == nil {
		return err
	}
	r, err := m.Net.Extend(nil, b.Base, s.Size, b.OnGPU)
	if err == nil {
		b.regions.Store(r)
		o.Key = r.Key()
	}
	return err
}

// made returns a part, or a nil interface if there is none.
func made[P part](p P, err error) (part, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// place maps PE pe's part of b by its offer.
func (m *Maker) place(ctx context.Context, b *Block, pe int, blob []byte) error {
	var o offer
	if err := peers.Decode(blob, pe, "offer", &o); err != nil {
		return err
	}
	switch {
	case o.Error != "":
		return nil // that PE reports it itself
	case pe == m.pes.Me:
		b.peers[pe].mapped = b.Base
		return nil
	case m.beyond(b, pe):
		return m.Net.Import(b.regions.Load(), pe, o.Key)
	}
	view, err := m.openPart(ctx, b, pe, &o)
	if err != nil {
		return fmt.Errorf("map the memory of PE %d: %w", pe, err)
	}
	b.peers[pe] = place{mapped: view.addr(), view: view}
	return nil
}

// openPart maps PE pe's part of b.
func (m *Maker) openPart(ctx context.Context, b *Block, pe int, o *offer) (mappedPart, error) {
	switch {
	case !b.OnGPU:
		return opened(openSegmentView(ctx, o, b.Size))
	case m.Mode == VMMHeap:
		return opened(openVirtualView(ctx, m.GPU, o, b.Size))
	}
	return opened(openAllocView(m.GPU, o, m.Where.Owner(pe)))
}

// opened returns a mapped part, or a nil interface if there is none.
func opened[P mappedPart](p P, err error) (mappedPart, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// grow grows b to size bytes on every PE. Collective: it succeeds on all PEs or leaves all at the
// old size, and may be repeated.
func (m *Maker) grow(ctx context.Context, b *Block, size uint64) error {
	var mine offer
	var wider *remote.Regions
	cause := b.part.grow(size)
	if cause == nil && b.OnGPU {
		cause = b.part.offer(&mine)
	}
	if cause == nil && m.Net != nil {
		if wider, cause = m.Net.Extend(b.regions.Load(), b.Base, size, b.OnGPU); cause == nil {
			mine.Key = wider.Key()
		}
	}
	if b.OnGPU || m.Net != nil {
		blobs, err := m.exchange(ctx, &mine, cause)
		if err != nil {
			return errors.Join(err, wider.Retract())
		}
		for pe, blob := range blobs {
			if cause == nil {
				cause = m.follow(ctx, b, wider, pe, blob)
			}
		}
	}
	if err := m.pes.AllWell(ctx, cause); err != nil {
		return errors.Join(err, wider.Retract())
	}
	if wider != nil {
		b.regions.Store(wider)
	}
	b.have.Store(size)
	return nil
}

// follow maps the growth of PE pe's part of b.
func (m *Maker) follow(ctx context.Context, b *Block, wider *remote.Regions, pe int, blob []byte) error {
	var o offer
	if err := peers.Decode(blob, pe, "offer", &o); err != nil {
		return err
	}
	if o.Error != "" {
		return nil // that PE reports it itself
	}
	if m.beyond(b, pe) {
		return m.Net.Import(wider, pe, o.Key)
	}
	if v := b.peers[pe].view; v != nil && b.OnGPU {
		if err := v.follow(ctx, &o); err != nil {
			return fmt.Errorf("map the memory of PE %d: %w", pe, err)
		}
	}
	return nil
}

// beyond reports whether PE pe's part of b is reached only over the network.
func (m *Maker) beyond(b *Block, pe int) bool {
	return !m.Where.Maps(pe) || b.OnGPU && !m.Where.Linked(pe)
}

// Drop unmaps all parts of b, after it has made this PE's part unreachable for others.
func (m *Maker) Drop(b *Block) error {
	if b == nil {
		return nil
	}
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
