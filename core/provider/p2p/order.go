// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/provider/internal/local"
)

// Host memory of another process cannot be mapped here, but the other process can map our device
// memory: it is granted a share of that, gets an order with the op's pieces, and copies with its
// own GPU and its own pin.

// maxParts bounds the parts of all orders of a connection on their way in one direction: what the
// target keeps, and half of what the stream lets wait to be sent.
const maxParts = 16 << 10

// orders are those of one endpoint.
type orders struct {
	mu      sync.Mutex
	last    uint64
	pending map[uint64]*flight // of ours, until the peer answers
	credit  int                // parts that may still be sent

	incoming map[uint64]*order // of the peer, not yet whole
	parts    int               // of the peer's orders
}

// An order is one of the peer's.
type order struct {
	number uint64
	share  *regionGrant
	key    fabric.RegionKey
	write  bool
	parts  []orderPart
}

func (o *orders) init() {
	o.pending, o.incoming, o.credit = make(map[uint64]*flight), make(map[uint64]*order), maxParts
}

// beginOrder lets the peer copy between one local region of device memory and its region.
func (dp *dataPath) beginOrder(f *flight, l *regionGrant, wait bool) outcome {
	parts, ticket, err := dp.writeOrder(f, wait)
	if err != nil {
		f.release()
		return dp.otherwise(f, err)
	}
	o := &dp.orders
	o.mu.Lock()
	if o.credit < len(parts) {
		o.mu.Unlock()
		f.release()
		return byStream
	}
	o.credit -= len(parts)
	o.last++
	f.number, f.parts = o.last, len(parts)
	number, key, write := f.number, l.Key, f.op.Kind == fabric.OpWrite
	o.pending[number] = f
	dp.noteRegions(f)
	dp.postOrder(orderFrame{number: number, share: ticket, key: key, write: write}, parts)
	o.mu.Unlock()
	dp.out.Flush()
	return begun
}

// writeOrder lists an op's pieces, for which it must have one local region only, and finds the
// share of that.
func (dp *dataPath) writeOrder(f *flight, wait bool) (parts []orderPart, ticket uint64, err error) {
	op := f.op
	for i := range 1 + len(op.More) {
		if s := op.LocalSeg(i); s.Len > 0 && s.MR != firstOnDevice(op).MR {
			return nil, 0, errors.New("an op from several regions to host memory of another process")
		}
	}
	h, err := dp.holdDevice(f, firstOnDevice(op))
	if err != nil {
		return nil, 0, err
	}
	h.reached = true // nothing here copies it
	share := dp.granter.Shared(h.mr.Desc())
	if share == nil {
		if !wait {
			return nil, 0, errNotYet
		}
		if share, err = dp.shareOf(h.mr); err != nil {
			return nil, 0, err
		}
	}
	for i := range 1 + len(op.More) {
		if err := inside(h.mr, op.LocalSeg(i)); err != nil && op.LocalSeg(i).Len > 0 {
			return nil, 0, err
		}
	}
	if op.Blocks != nil {
		parts = f.blockParts(h.mr.Buffer().Addr)
	} else if parts, err = dp.segmentParts(f, h.mr.Buffer().Addr, wait); err != nil {
		return nil, 0, err
	}
	if len(parts) > maxParts {
		return nil, 0, fmt.Errorf("an op of %d pieces with host memory of another process, which are more than %d", len(parts), maxParts)
	}
	return parts, share.Ticket, nil
}

// segmentParts are the parts of an order for an op of segments of a region at base.
func (dp *dataPath) segmentParts(f *flight, base uint64, wait bool) ([]orderPart, error) {
	// The same walk as of a copy here, with offsets in place of addresses: the base is the
	// region's, the peer's is 0.
	if err := dp.list(f, 0, wait); err != nil {
		return nil, err
	}
	parts := make([]orderPart, len(f.segs))
	for i, s := range f.segs {
		if parts[i] = (orderPart{s.Src - base, s.Dst, s.Bytes}); f.op.Kind == fabric.OpRead {
			parts[i] = orderPart{s.Dst - base, s.Src, s.Bytes}
		}
	}
	return parts, nil
}

// blockParts are those for an op of blocks. Blocks that are joined are one part.
func (f *flight) blockParts(base uint64) []orderPart {
	op, b := f.op, f.op.Blocks
	f.bytes = b.Bytes()
	parts, local, remote := make([]orderPart, 0, b.Len()-b.Joined()), b.Local(), b.Remote()
	for i := range local {
		p := orderPart{op.Seg.Addr - base + local[i], op.RSeg.Addr + remote[i], b.Size()}
		if k := len(parts) - 1; k >= 0 && parts[k].share+parts[k].n == p.share && parts[k].region+parts[k].n == p.region {
			parts[k].n += p.n
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

// postOrder posts an order's frames, one behind the other: with orders.mu held.
func (dp *dataPath) postOrder(f orderFrame, parts []orderPart) {
	for !f.last {
		n := min(len(parts), partsOfFrame)
		f.parts, parts = parts[:n], parts[n:]
		f.last = len(parts) == 0
		dp.out.Post(frameOrder, f.append(make([]byte, 0, orderHead+n*partLen)))
	}
}

// onDone ends an order of ours.
func (dp *dataPath) onDone(body []byte) error {
	d, err := parseDone(body)
	if err != nil {
		return err
	}
	o := &dp.orders
	o.mu.Lock()
	f := o.pending[d.number]
	if f != nil {
		delete(o.pending, d.number)
		o.credit += f.parts
	}
	o.mu.Unlock()
	switch {
	case f == nil && dp.IsStopped():
	case f == nil:
		return fmt.Errorf("answer to order %d, which was not given: %w", d.number, fabric.ErrProtocol)
	case d.unable:
		dp.slow(fmt.Errorf("the peer cannot copy for us: %s", d.text))
		dp.pending.Remove(f)
		f.release()
		if f.ended.CompareAndSwap(false, true) {
			t := f.ticket
			dp.freeFlight(f)
			dp.ep.HandBack(t)
			dp.Ops.Leave()
		}
	case d.err != 0:
		dp.end(f, local.OpFault(d.err, "answer of %s: %s", dp.ep.Peer(), d.text))
	default:
		dp.end(f, nil)
	}
	return nil
}

// dropOrders ends the orders that the peer does not answer any more, and copies no more for.
func (dp *dataPath) dropOrders(cause error) {
	o := &dp.orders
	o.mu.Lock()
	pending := o.pending
	o.pending = make(map[uint64]*flight)
	o.mu.Unlock()
	for _, f := range pending {
		dp.end(f, cause)
	}
}
