// SPDX-License-Identifier: MIT

package staging

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
)

// A Transfer is a read or write of this side that is moved in pieces. Its owner sets the exported
// fields before Start.
type Transfer struct {
	ID        int             // the owner's
	Op        *fabric.Op      // valid until Port.Ended
	Len       uint64          // length of Op in bytes
	Device    *device.Staging // device of Op's own memory; nil for host memory
	RegionLen uint64          // size of the peer's region in bytes

	// How the transfer ended; valid from Port.Ended on.
	Errno  fabric.Errno
	Detail string

	// Used by the Stager's goroutine only.
	local, remote cursor
	done          uint64 // bytes assigned to pieces

	// Guarded by Stager.mu, like Errno and Detail until the end.
	queued  bool // being cut
	pending int  // pieces that have not ended
}

// A cursor is a position in a list of segments.
type cursor struct {
	index int
	off   uint64
}

// advance moves m bytes forward in a segment of n bytes.
func (c *cursor) advance(m, n uint64) {
	if c.off += m; c.off == n {
		c.index, c.off = c.index+1, 0
	}
}

// fits reports whether the remote segments of t are inside the peer's region.
func (t *Transfer) fits() bool {
	for i := range 1 + len(t.Op.RMore) {
		if g := t.Op.RemoteSeg(i); g.Addr > t.RegionLen || g.Len > t.RegionLen-g.Addr {
			return false
		}
	}
	return true
}

// Start hands t to the Stager until Port.Ended. After Stop, Start does nothing; the end of the
// connection then ends t. The caller may hold locks.
func (s *Stager) Start(t *Transfer, peer fabric.Addr) {
	s.add(func() {
		t.queued = true
		if !t.fits() {
			t.Errno = fabric.ErrRange
			t.Detail = fmt.Sprintf("%d bytes that exceed the region of %s, which has %d", t.Len, peer, t.RegionLen)
		}
		s.transfers.Push(t)
	})
}

// cutNext makes and starts the next piece of the first transfer.
func (s *Stager) cutNext() step {
	s.mu.Lock()
	if s.transfers.Len() == 0 {
		s.mu.Unlock()
		return stepIdle
	}
	t := *s.transfers.Peek()
	if (t.Errno != 0 || t.done == t.Len) && s.next == nil {
		s.transfers.Pop()
		t.queued = false
		over := t.pending == 0
		s.mu.Unlock()
		if over {
			s.port.Ended(t)
		}
		return stepDone
	}
	full := s.outward >= PieceBytes
	s.mu.Unlock()
	if s.next == nil {
		if full && t.Device != nil && t.Op.Kind == fabric.OpWrite {
			return stepIdle
		}
		if at := s.makePiece(t); at != stepDone || s.next == nil {
			return at
		}
	}
	p := s.next
	if p.buf == nil {
		s.next = nil
		s.port.Send(p)
		return stepDone
	}
	ok, err := s.startCopy(p)
	if !ok && err == nil {
		return stepWaits
	}
	s.next = nil
	if err != nil {
		s.copied(p, err)
	}
	return stepDone
}

// makePiece acquires what the next piece of t needs, and makes the piece.
func (s *Stager) makePiece(t *Transfer) step {
	n := min(t.Len-t.done, PieceLen)
	kind := ownRead
	var buf *device.StageBuffer
	if t.Op.Kind == fabric.OpWrite {
		kind = ownWrite
		if t.Device != nil {
			var err error
			if buf, err = t.Device.Take(n, device.Outward); errors.Is(err, device.ErrBusy) {
				return stepWaits
			} else if err != nil {
				s.mu.Lock()
				t.Errno, t.Detail = Errno(err), err.Error()
				s.mu.Unlock()
				return stepDone
			}
		}
	}
	p := s.pieces.get(kind, n)
	p.transfer, p.device, p.buf = t, t.Device, buf
	if !s.port.Reserve(p) {
		p.free()
		s.pieces.put(p)
		return stepIdle
	}
	first := t.done == 0
	p.cover(t)
	p.Op = fabric.Op{Kind: t.Op.Kind, Seg: p.segs[0], More: p.segs[1:], RSeg: p.rsegs[0], RMore: p.rsegs[1:]}
	if p.device != nil {
		p.split()
		p.Op.More = nil
	}
	if buf != nil {
		p.Op.Seg = fabric.Seg{Addr: buf.Addr(), Len: n}
		p.size = n
	}
	if first && n == t.Len { // the piece is the whole transfer
		p.Op.Flags, p.Op.Data = t.Op.Flags&fabric.OpRemoteData, t.Op.Data
	}
	s.mu.Lock()
	t.pending++
	s.outward += p.size
	s.mu.Unlock()
	s.next = p
	return stepDone
}

// Answered continues a piece that the peer has answered. The bytes of a read are copied in.
func (s *Stager) Answered(p *Piece, errno fabric.Errno, detail string) {
	p.errno, p.detail = errno, detail
	switch {
	case errno != 0 || p.kind == ownWrite || p.device == nil:
		s.endPiece(p)
	case !s.add(func() { s.arrived.Push(p) }):
		p.End()
	}
}

// endPiece counts a piece as ended. With the last piece, it ends the transfer.
func (s *Stager) endPiece(p *Piece) {
	p.free()
	t := p.transfer
	s.mu.Lock()
	t.pending--
	if p.errno != 0 && t.Errno == 0 {
		t.Errno, t.Detail = p.errno, p.detail
	}
	s.outward -= p.size
	over := t.pending == 0 && !t.queued
	s.mu.Unlock()
	s.pieces.put(p)
	if over {
		s.port.Ended(t)
	}
	s.Wake()
}
