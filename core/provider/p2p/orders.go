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
// memory. So we grant it a share of that memory and send it an order with the op's pieces. It
// copies with its own GPU and its own pin.

// maxParts bounds the parts of all pending orders of a connection in one direction. The target
// stores them, and they fill half of the queue of outgoing frames.
const maxParts = 16 << 10

// orders are the ops of a data path that the peer copies.
type orders struct {
	path *dataPath

	mu      sync.Mutex // protects what follows
	last    uint64
	pending map[uint64]*pendingOp // until the peer replies
	credit  int                   // parts that may still be sent
}

// A sentOrder is the order state of a pendingOp.
type sentOrder struct {
	number uint64
	parts  int
}

func (s *orders) init(dp *dataPath) {
	s.path, s.pending, s.credit = dp, make(map[uint64]*pendingOp), maxParts
}

// start makes the peer copy between one local region of device memory and its region. It returns
// false if the op must use the stream: because of the error, or because too many parts are pending.
func (s *orders) start(o *pendingOp, l *regionGrant, wait bool) (bool, error) {
	parts, share, err := s.write(o, wait)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	if s.credit < len(parts) {
		s.mu.Unlock()
		return false, nil
	}
	s.credit -= len(parts)
	s.last++
	o.order = sentOrder{s.last, len(parts)}
	s.pending[s.last] = o
	s.path.ops.note(o)
	s.post(orderFrame{number: s.last, share: share, key: l.Key, write: o.op.Kind == fabric.OpWrite}, parts)
	s.mu.Unlock()
	s.path.grants.Out.Flush()
	return true, nil
}

// write lists an op's pieces and finds the ticket of its local region's share. The op must use only
// one local region.
func (s *orders) write(o *pendingOp, wait bool) (parts []orderPart, share uint64, err error) {
	op := o.op
	first := firstOnDevice(op)
	for i := range 1 + len(op.More) {
		if g := op.LocalSeg(i); g.Len > 0 && g.MR != first.MR {
			return nil, 0, errors.New("an op from several regions to host memory of another process")
		}
	}
	h, err := o.holdDevice(first)
	if err != nil {
		return nil, 0, err
	}
	h.reached = true // no device here copies it
	issued, err := s.path.grants.share(h.mr, wait)
	if err != nil {
		return nil, 0, err
	}
	for i := range 1 + len(op.More) {
		if err := inside(h.mr, op.LocalSeg(i)); err != nil && op.LocalSeg(i).Len > 0 {
			return nil, 0, err
		}
	}
	if op.Blocks != nil {
		parts = blockParts(op, h.mr.Buffer().Addr)
	} else if parts, err = segmentParts(o, h.mr.Buffer().Addr, wait); err != nil {
		return nil, 0, err
	}
	if len(parts) > maxParts {
		return nil, 0, fmt.Errorf("an op of %d pieces with host memory of another process, which are more than %d", len(parts), maxParts)
	}
	return parts, issued.Ticket, nil
}

// segmentParts returns the parts of an order for an op of segments of a region at base.
func segmentParts(o *pendingOp, base uint64, wait bool) ([]orderPart, error) {
	// The list assumes that the peer's region is at address 0, so the peer's addresses are offsets.
	if err := o.list(o.op, 0, wait); err != nil {
		return nil, err
	}
	parts := make([]orderPart, len(o.segs))
	for i, s := range o.segs {
		if parts[i] = (orderPart{s.Src - base, s.Dst, s.Bytes}); o.op.Kind == fabric.OpRead {
			parts[i] = orderPart{s.Dst - base, s.Src, s.Bytes}
		}
	}
	return parts, nil
}

// blockParts is the same for an op of blocks. Adjacent blocks become one part.
func blockParts(op *fabric.Op, base uint64) []orderPart {
	b := op.Blocks
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

// post posts an order's frames in sequence. The caller holds mu.
func (s *orders) post(f orderFrame, parts []orderPart) {
	for !f.last {
		n := min(len(parts), partsOfFrame)
		f.parts, parts = parts[:n], parts[n:]
		f.last = len(parts) == 0
		s.path.grants.Out.Post(frameOrder, f.append(make([]byte, 0, orderHead+n*partLen)))
	}
}

// onDone ends an order.
func (s *orders) onDone(body []byte) error {
	d, err := parseDone(body)
	if err != nil {
		return err
	}
	dp := s.path
	o := s.take(d.number)
	switch {
	case o == nil && dp.ops.IsStopped():
	case o == nil:
		return fmt.Errorf("reply to unknown order %d: %w", d.number, fabric.ErrProtocol)
	case d.unable:
		dp.slow.Note(fmt.Errorf("the peer cannot copy for this side: %s", d.text))
		dp.ops.handBack(o)
	case d.err != 0:
		dp.ops.end(o, local.OpFault(d.err, "reply of %s: %s", dp.port.Peer(), d.text))
	default:
		dp.ops.end(o, nil)
	}
	return nil
}

// take removes and returns an order, or returns nil.
func (s *orders) take(number uint64) *pendingOp {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.pending[number]
	if o != nil {
		delete(s.pending, number)
		s.credit += o.order.parts
	}
	return o
}

// drop ends the orders of a connection that has ended. The peer does not copy any more.
func (s *orders) drop(cause error) {
	s.mu.Lock()
	pending := s.pending
	s.pending = make(map[uint64]*pendingOp)
	s.mu.Unlock()
	for _, o := range pending {
		s.path.ops.end(o, cause)
	}
}
