// SPDX-License-Identifier: MIT

package heap

import (
	"context"
	"fmt"

	"mori/core/memory"
	"mori/shmem/internal/peers"
)

// A part is this PE's part of a block, with what others need to map it.
type part interface {
	addr() uint64

	// offer adds to o what other PEs of the node need to map the part.
	offer(o *offer) error

	// grow grows the part to size bytes, up to its limit. The next offer has what the others need
	// for that.
	grow(size uint64) error

	close() error
}

// A mappedPart is another PE's part of a block, mapped here.
type mappedPart interface {
	addr() uint64

	// follow maps the growth of the PE's part, as its offer describes it.
	follow(ctx context.Context, o *offer) error

	close() error
}

// A segmentPart is a part in host memory.
type segmentPart struct {
	seg    *memory.Segment
	share  *memory.Sharer
	ticket memory.Ticket
}

func newSegmentPart(share *memory.Sharer, name string, size, limit uint64) (*segmentPart, error) {
	seg, err := memory.NewSegment("mori-shmem-"+name, size, limit)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, peers.ErrNoMemory)
	}
	return &segmentPart{seg: seg, share: share, ticket: share.Share(seg)}, nil
}

func (p *segmentPart) addr() uint64           { return p.seg.Addr() }
func (p *segmentPart) grow(size uint64) error { return p.seg.Grow(size) }

func (p *segmentPart) offer(o *offer) error {
	o.Ticket = p.ticket
	return nil
}

func (p *segmentPart) close() error {
	p.share.Unshare(p.ticket)
	return p.seg.Close()
}

// A segmentView is another PE's segmentPart. It maps the limit, so growth needs no new mapping.
type segmentView struct{ *memory.Segment }

func openSegmentView(ctx context.Context, o *offer, size uint64) (*segmentView, error) {
	if o.Ticket.Limit != size {
		return nil, fmt.Errorf("the peer offers %d bytes, want %d: %w", o.Ticket.Limit, size, peers.ErrMismatch)
	}
	seg, err := memory.OpenSegment(ctx, o.Ticket)
	if err != nil {
		return nil, err
	}
	return &segmentView{seg}, nil
}

func (v *segmentView) addr() uint64                         { return v.Addr() }
func (v *segmentView) follow(context.Context, *offer) error { return nil }
func (v *segmentView) close() error                         { return v.Close() }
