// SPDX-License-Identifier: MIT

package staging

import (
	"errors"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// A Reader is a peer's read of local device memory. It holds the region open.
type Reader interface {
	// Reply answers with the bytes of b, or with an errno. The Reader owns b until b.Free.
	Reply(b Buffer, errno fabric.Errno)
	// Drop discards the read at the end of the connection.
	Drop()
}

// A Writer answers peers' writes to local device memory.
type Writer interface {
	// Landed reports that the write h has ended, and answers it. It returns false if there is no
	// room for a completion. The Stager then calls it again later.
	Landed(h *frame.Header, errno fabric.Errno) bool
}

// A Buffer holds the bytes of a reply. The zero Buffer is empty.
type Buffer struct {
	stager *Stager
	buf    *device.StageBuffer
	n      uint64
}

// Iovec returns the memory of the bytes.
func (b *Buffer) Iovec() sys.Iovec { return sys.Iovec{Addr: b.buf.Addr(), Len: b.n} }

// Free returns the buffer to its pool.
func (b *Buffer) Free() {
	if b.buf == nil {
		return
	}
	b.buf.Free()
	b.stager.sent(b.n)
	*b = Buffer{}
}

// Read copies the n bytes of iov, device memory of mr, to a buffer and passes it to r.
func (s *Stager) Read(r Reader, mr *regions.MR, iov []sys.Iovec, n uint64, devices *Devices) error {
	p, err := s.peerPiece(peerRead, mr, iov, n, devices)
	if err != nil {
		return err
	}
	p.reader = r
	if !s.add(func() { s.replies.Push(p) }) {
		p.End()
	}
	return nil
}

// BeginWrite returns a piece with a buffer for n arriving bytes whose destination is iov, device
// memory of mr. The piece owns mr from then on. BeginWrite returns device.ErrBusy if no buffer is
// free.
func (s *Stager) BeginWrite(mr *regions.MR, iov []sys.Iovec, n uint64, devices *Devices) (*Piece, error) {
	p, err := s.peerPiece(peerWrite, mr, iov, n, devices)
	if err != nil {
		return nil, err
	}
	if err := p.take(n, device.Inward); err != nil {
		s.pieces.put(p)
		return nil, err
	}
	p.regions = append(p.regions, mr)
	return p, nil
}

// EndWrite copies the bytes that arrived in p for the write h to their memory, and reports the end
// to w.
func (s *Stager) EndWrite(p *Piece, w Writer, h *frame.Header) {
	p.writer, p.h = w, *h
	if !s.add(func() { s.arrived.Push(p) }) {
		p.End()
	}
}

// Discard drops the bytes that arrived in p.
func (s *Stager) Discard(p *Piece) {
	p.End()
	s.pieces.put(p)
}

// peerPiece makes a piece for a peer's operation on iov, which is device memory. It refuses an
// operation that does not fit a buffer, because peers must cut their operations.
func (s *Stager) peerPiece(kind pieceKind, mr *regions.MR, iov []sys.Iovec, n uint64, devices *Devices) (*Piece, error) {
	if n > PieceLen {
		return nil, fabric.ErrMsgSize
	}
	on, err := devices.Of(mr.Buffer())
	if err != nil {
		return nil, err
	}
	p := s.pieces.get(kind, n)
	p.device = on
	at := uint64(0)
	for _, v := range iov {
		p.copyWith(v.Addr, v.Len, at)
		at += v.Len
	}
	return p, nil
}

// copyReply starts to copy out the bytes that a peer reads.
func (s *Stager) copyReply() step {
	s.mu.Lock()
	if s.replies.Len() == 0 {
		s.mu.Unlock()
		return stepIdle
	}
	p := *s.replies.Peek()
	full := s.replied >= PieceBytes
	s.mu.Unlock()
	ok, err := true, error(nil)
	if p.buf == nil {
		if full {
			return stepIdle
		}
		if err = p.take(p.n, device.Outward); err == nil {
			p.size = p.n
			s.mu.Lock()
			s.replied += p.n
			s.mu.Unlock()
		}
	}
	if err == nil {
		ok, err = s.startCopy(p)
	}
	if !ok && err == nil || errors.Is(err, device.ErrBusy) {
		return stepWaits
	}
	s.mu.Lock()
	s.replies.Pop()
	s.mu.Unlock()
	if err != nil {
		s.copied(p, err)
	}
	return stepDone
}

// answerRead passes the copied bytes, or the error, to the Reader.
func (s *Stager) answerRead(p *Piece) {
	r := p.reader
	p.reader = nil
	if p.errno == 0 {
		b := Buffer{s, p.buf, p.n}
		p.buf = nil
		r.Reply(b, 0)
		return
	}
	if p.size > 0 {
		s.sent(p.size)
	}
	p.free()
	r.Reply(Buffer{}, p.errno)
}

// sent counts n bytes of a reply that no longer needs its buffer.
func (s *Stager) sent(n uint64) {
	s.mu.Lock()
	s.replied -= n
	s.mu.Unlock()
	s.Wake()
}
