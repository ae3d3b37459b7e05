// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/memory"
)

// A block is symmetric: every PE has one of the same size, and an address in it means the same offset everywhere.
type block struct {
	seg    *memory.Segment
	ticket memory.Ticket
	base   uint64        // seg.Addr()
	size   uint64        // seg.Limit()
	have   atomic.Uint64 // of these, what all PEs have and may touch
	id     uint64        // of an isolated block, the same on all PEs
	mr     fabric.MR     // what PEs reach it by that do not map it; nil if all do
	peers  []place
}

// A place is where a PE's part of a block is, as this PE reaches it.
type place struct {
	mapped uint64          // address in this process, 0: not mapped
	seg    *memory.Segment // whose mapping that is; nil for our own
	remote remote          // what network made of the PE's key, if not mapped
}

// An offer is what a PE tells the others about its part of a block.
type offer struct {
	Ticket memory.Ticket
	Key    []byte // for the network
	Error  string // why it has none
}

// newBlock makes this PE's part of a block and finds those of the others. Collective: all PEs have it or none, and an error says
// whose part there is not.
func (w *World) newBlock(ctx context.Context, name string, size, limit uint64) (*block, error) {
	b := &block{size: limit, peers: make([]place, w.n)}
	b.have.Store(size)
	var mine offer
	cause := w.newPart(b, name, size, limit, &mine)
	if cause != nil {
		mine.Error = cause.Error()
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := w.gather(ctx, text)
	for pe, blob := range blobs {
		if cause == nil && err == nil {
			cause = w.place(ctx, b, pe, blob)
		}
	}
	if err == nil {
		err = w.allWell(ctx, cause)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the %s of %d bytes: %w", name, limit, err), w.drop(b))
	}
	return b, nil
}

// newPart makes this PE's part of b and what the others need to find it.
func (w *World) newPart(b *block, name string, size, limit uint64, o *offer) error {
	seg, err := memory.NewSegment("mori-shmem-"+name, size, limit)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrNoMemory)
	}
	b.seg, b.base = seg, seg.Addr()
	b.ticket = w.share.Share(seg)
	o.Ticket = b.ticket
	if w.wire == nil {
		return nil
	}
	if err = w.wire.register(b); err == nil {
		o.Key = b.mr.Raw()
	}
	return err
}

// place finds PE pe's part of b by its offer.
func (w *World) place(ctx context.Context, b *block, pe int, blob []byte) error {
	var o offer
	if err := json.Unmarshal(blob, &o); err != nil {
		return fmt.Errorf("read the offer of PE %d: %w", pe, err)
	}
	switch {
	case o.Error != "":
		return nil // that PE says so itself
	case pe == w.me:
		b.peers[pe].mapped = b.base
		return nil
	case !w.maps(pe):
		return w.wire.find(b, pe, o.Key)
	}
	if o.Ticket.Limit != b.size {
		return fmt.Errorf("PE %d offers %d bytes, want %d: %w", pe, o.Ticket.Limit, b.size, ErrMismatch)
	}
	seg, err := memory.OpenSegment(ctx, o.Ticket)
	if err != nil {
		return fmt.Errorf("map the memory of PE %d: %w", pe, err)
	}
	b.peers[pe] = place{mapped: seg.Addr(), seg: seg}
	return nil
}

// maps reports whether this PE maps the memory of PE pe.
func (w *World) maps(pe int) bool {
	mine, its := &w.nodes[w.me], &w.nodes[pe]
	return pe == w.me || its.Node == mine.Node && its.Room == mine.Room && !mine.DisableP2P && !its.DisableP2P
}

// drop unmaps all parts of b. First nobody can reach it here any more.
func (w *World) drop(b *block) error {
	var errs []error
	if b.mr != nil {
		errs = append(errs, b.mr.Close())
	}
	for i := range b.peers {
		if s := b.peers[i].seg; s != nil {
			errs = append(errs, s.Close())
		}
		if r := b.peers[i].remote.mr; r != nil {
			errs = append(errs, r.Close())
		}
	}
	if b.seg != nil {
		w.share.Unshare(b.ticket)
		errs = append(errs, b.seg.Close())
	}
	return errors.Join(errs...)
}

// holds reports whether n bytes at addr are in b, and at which offset.
func (b *block) holds(addr, n uint64) (off uint64, ok bool) {
	off = addr - b.base
	have := b.have.Load()
	return off, off < have && n <= have-off
}
