// SPDX-License-Identifier: MIT

package stream

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
)

// A cut is how far an op is that goes in pieces. Guarded by stager.mu, but for what the stager alone uses.
type cut struct {
	staging *device.Staging // of its own device memory, if it has some
	size    uint64          // of the peer's region

	// Of the stager alone.
	local, remote cursor
	done          uint64 // bytes that are in pieces

	queued bool // it is being cut
	under  int  // pieces under way
	errno  fabric.Errno
	detail string
}

// A cursor is a place in a list of segments.
type cursor struct {
	index int
	off   uint64
}

// advance goes m bytes on in a segment of n.
func (c *cursor) advance(m, n uint64) {
	if c.off += m; c.off == n {
		c.index, c.off = c.index+1, 0
	}
}

// OnDevice reports whether an op has local memory of a device.
func OnDevice(op *fabric.Op) bool {
	if op.Seg.MR != 0 {
		return true
	}
	for i := range op.More {
		if op.More[i].MR != 0 {
			return true
		}
	}
	return false
}

// localStaging is that of the device that an op's local segments are on; nil if they are the host's.
func (ep *Endpoint) localStaging(op *fabric.Op) (*device.Staging, error) {
	if !ep.domain.takesDevice() || !OnDevice(op) {
		return nil, nil
	}
	switch {
	case op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite:
		return nil, fmt.Errorf("%v from or to device memory, which only reads and writes take: %w", op.Kind, fabric.ErrNotSupported)
	case op.Flags&fabric.OpInject != 0:
		return nil, fmt.Errorf("inject device memory: %w", fabric.ErrNotSupported)
	}
	var on fabric.Buffer
	var last fabric.MRDesc
	var within fabric.Buffer
	for i := range 1 + len(op.More) {
		g := local(op, i)
		if g.MR == 0 || g.MR == last && g.Addr >= within.Addr && g.Len <= within.Len && g.Addr-within.Addr <= within.Len-g.Len {
			continue // as nearly all of a list of thousands
		}
		if g.MR != last {
			mr := ep.domain.regions.Device(g.MR)
			if mr == nil {
				return nil, fmt.Errorf("descriptor %d is of no region of device memory: %w", g.MR, fabric.ErrNoMR)
			}
			last, within = g.MR, mr.Buffer()
			mr.Release()
		}
		if g.Addr < within.Addr || g.Len > within.Len || g.Addr-within.Addr > within.Len-g.Len {
			return nil, fmt.Errorf("%d bytes at %#x are not of the region of descriptor %d: %w", g.Len, g.Addr, g.MR, fabric.ErrRange)
		}
		if on.Kind == fabric.MemHost {
			on = within
		} else if on.Kind != within.Kind || on.Device != within.Device {
			return nil, fmt.Errorf("segments on devices %d and %d in one op: %w", on.Device, within.Device, fabric.ErrNotSupported)
		}
	}
	return ep.domain.stagingOf(on)
}

// inPieces reports whether an op that is issued goes in pieces.
func (ep *Endpoint) inPieces(s *slot) bool {
	if s.piece != nil || s.notice || s.n == 0 || s.op.Kind != fabric.OpRead && s.op.Kind != fabric.OpWrite {
		return false
	}
	return s.cut.staging != nil || ep.peerDevice && s.n > pieceMax
}

// fits reports whether an op's remote segments are in the region that it was told of. One that goes in pieces is refused before the first.
func fits(op *fabric.Op, size uint64) bool {
	in := func(g *fabric.RSeg) bool { return g.Addr <= size && g.Len <= size-g.Addr }
	for i := range op.RMore {
		if !in(&op.RMore[i]) {
			return false
		}
	}
	return in(&op.RSeg)
}

// issueCut leaves an op to the stager. What it does not take any more ends with the connection. With ep.mu held.
func (ep *Endpoint) issueCut(s *slot) {
	st := &ep.stage
	st.add(func() {
		s.cut.queued = true
		if !fits(&s.op, s.cut.size) {
			s.cut.errno, s.cut.detail = fabric.ErrRange, fmt.Sprintf("%d bytes that are not all in the region of %s, which has %d", s.n, ep.peer, s.cut.size)
		}
		st.ops.push(s)
	})
}

// cutOp makes the next piece of the first op.
func (s *stager) cutOp() step {
	s.mu.Lock()
	if s.ops.len() == 0 {
		s.mu.Unlock()
		return stepIdle
	}
	parent := *s.ops.peek()
	c := &parent.cut
	if c.errno != 0 || c.done == parent.n {
		if s.next == nil {
			s.ops.pop()
			c.queued = false
			over := c.under == 0
			s.mu.Unlock()
			if over {
				s.ep.endCut(parent)
			}
			return stepDone
		}
	}
	full := s.outward >= pieceBytes
	s.mu.Unlock()
	if s.next == nil {
		if full && c.staging != nil && parent.op.Kind == fabric.OpWrite {
			return stepIdle
		}
		if at := s.nextPiece(parent); at != stepDone || s.next == nil {
			return at
		}
	}
	p := s.next
	if p.buf != nil {
		ok, err := s.begin(p)
		if !ok && err == nil {
			return stepWaits
		}
		s.next = nil
		if err != nil {
			s.copied(p, err)
		}
		return stepDone
	}
	s.next = nil
	s.ep.sendPiece(p)
	return stepDone
}

// nextPiece takes what the next piece needs, and makes it.
func (s *stager) nextPiece(parent *slot) step {
	ep, c := s.ep, &parent.cut
	n := min(parent.n-c.done, pieceMax)
	kind := pieceIn
	var buf *device.StageBuffer
	if parent.op.Kind == fabric.OpWrite {
		kind = pieceOut
		if c.staging != nil {
			var err error
			if buf, err = c.staging.Take(n, device.Outward); errors.Is(err, device.ErrBusy) {
				return stepWaits
			} else if err != nil {
				s.mu.Lock()
				c.errno, c.detail = deviceErrno(err), err.Error()
				s.mu.Unlock()
				return stepDone
			}
		}
	}
	ep.mu.Lock()
	child := ep.slots.takePiece()
	ep.mu.Unlock()
	if child == nil {
		if buf != nil {
			buf.Free()
		}
		return stepIdle
	}
	p := s.get(kind, n)
	p.parent, p.slot, p.staging, p.buf = parent, child, c.staging, buf
	first := c.done == 0
	p.cover(&parent.op, c)
	child.op = fabric.Op{Kind: parent.op.Kind, Seg: p.segs[0], More: p.segs[1:], RSeg: p.rsegs[0], RMore: p.rsegs[1:]}
	child.key, child.n, child.errno, child.detail, child.notice, child.entries, child.piece = parent.key, n, 0, "", false, 0, p
	if p.staging != nil {
		p.split()
		child.op.More = nil
	}
	if buf != nil {
		child.op.Seg = fabric.Seg{Addr: buf.Addr(), Len: n}
		p.size = n
	}
	if first && n == parent.n { // it is all of the op
		child.op.Flags, child.op.Data = parent.op.Flags&fabric.OpRemoteData, parent.op.Data
	}
	s.mu.Lock()
	c.under++
	s.outward += p.size
	s.mu.Unlock()
	s.next = p
	return stepDone
}

// sendPiece queues a piece's frame.
func (ep *Endpoint) sendPiece(p *piece) {
	var t todo
	ep.mu.Lock()
	ep.issueStream(p.slot, &t)
	ep.mu.Unlock()
	ep.run(&t)
}

// dropPiece ends a piece that was not sent.
func (ep *Endpoint) dropPiece(p *piece) {
	ep.mu.Lock()
	ep.slots.give(p.slot)
	ep.mu.Unlock()
	ep.endPiece(p)
}

// answered goes on with a piece that the peer answered: what it reads is copied in.
func (ep *Endpoint) answered(c *slot) {
	p, st := c.piece, &ep.stage
	p.errno, p.detail = c.outcome()
	var t todo
	ep.mu.Lock()
	ep.giveBackCredit(c)
	ep.slots.give(c)
	if !ep.fate.isEnded() {
		ep.resume(&t)
	}
	ep.mu.Unlock()
	p.slot = nil
	switch {
	case p.errno != 0 || p.kind == pieceOut || p.staging == nil:
		ep.endPiece(p)
	case !st.add(func() { st.arrived.push(p) }):
		p.end()
	}
	ep.run(&t)
}

// endPiece counts a piece of an op that is over.
func (ep *Endpoint) endPiece(p *piece) {
	p.free()
	st, parent := &ep.stage, p.parent
	st.mu.Lock()
	c := &parent.cut
	c.under--
	if p.errno != 0 && c.errno == 0 {
		c.errno, c.detail = p.errno, p.detail
	}
	st.outward -= p.size
	over := c.under == 0 && !c.queued
	st.mu.Unlock()
	st.put(p)
	if over {
		ep.endCut(parent)
	}
	st.nudge()
}

// endCut ends an op whose pieces are over. Remote data that did not go with its only piece is told now.
func (ep *Endpoint) endCut(s *slot) {
	if s.cut.errno == 0 && s.op.Flags&fabric.OpRemoteData != 0 && s.n > pieceMax {
		var t todo
		ep.mu.Lock()
		s.notice = true
		ep.issueStream(s, &t)
		ep.mu.Unlock()
		ep.run(&t)
		return
	}
	s.errno, s.detail = s.cut.errno, s.cut.detail
	s.mark(slotWritten)
	if s.mark(slotAnswered) {
		ep.complete(s)
	}
}
