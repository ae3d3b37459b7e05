// SPDX-License-Identifier: MIT

package stream

import (
	"errors"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// Peers' reads and writes of device memory here, as their frames arrive.

// checkPiece tells whether a frame fits a buffer. Whoever was told canDevice cuts so.
func checkPiece(h *frame.Header) fabric.Errno {
	if h.Length > pieceMax {
		return fabric.ErrMsgSize
	}
	return 0
}

// foreign makes a piece of a peer's op whose memory, on a device, is in iov.
func (l *link) foreign(kind pieceKind, h *frame.Header, mr *util.MR, iov []sys.Iovec) (*piece, error) {
	if errno := checkPiece(h); errno != 0 {
		return nil, errno
	}
	staging, err := l.ep.domain.stagingOf(mr.Buffer())
	if err != nil {
		return nil, err
	}
	p := l.ep.stage.get(kind, h.Length)
	p.link, p.h, p.staging = l, *h, staging
	at := uint64(0)
	for _, v := range iov {
		p.toBuffer(v.Addr, v.Len, at)
		at += v.Len
	}
	return p, nil
}

// beginLanding makes the payload of a write, whose memory is in dst, arrive in a buffer.
func (l *link) beginLanding(h *frame.Header) error {
	in := &l.in
	mr := in.mr
	p, err := l.foreign(pieceLanding, h, mr, in.dst)
	if err == nil {
		if err = p.take(h.Length, device.Inward); err == nil {
			p.regions = append(p.regions, mr)
			in.landing, in.mr = p, nil
			in.want, in.own = h.Length, true
			in.holds.Store(mr)
			in.dst = append(in.scratch(1), sys.Iovec{Addr: p.buf.Addr(), Len: h.Length})
			return nil
		}
		l.ep.stage.put(p)
	}
	mr.Release()
	in.mr, in.dst = nil, nil
	if errors.Is(err, device.ErrBusy) {
		return errNoBuffer // and the claim is checked again
	}
	l.logDevice(err)
	in.errno, in.drop = deviceErrno(err), h.WireLen()
	return nil
}

// endLanding leaves a write whose payload arrived to the stager, which copies it in and answers.
func (l *link) endLanding(h *frame.Header) error {
	in := &l.in
	if in.pack != nil {
		if err := l.unpack(h, append(in.scratch(1), sys.Iovec{Addr: in.landing.buf.Addr(), Len: h.Length})); err != nil {
			return err
		}
	}
	p, st := in.landing, &l.ep.stage
	in.landing = nil
	in.holds.Store(nil)
	if in.differs() {
		p.end()
		st.put(p)
		return l.ack(h.Ticket, fabric.ErrCRC)
	}
	if !st.add(func() { st.arrived.push(p) }) {
		p.end()
	}
	return nil
}

// openStaged leaves a read of device memory, in r.iov, to the stager.
func (l *link) openStaged(h *frame.Header, r *reply, mr *util.MR) fabric.Errno {
	p, err := l.foreign(pieceReply, h, mr, r.iov)
	if err != nil {
		l.logDevice(err)
		return deviceErrno(err)
	}
	p.h.Flags = h.Flags&frame.FlagChecksum | l.ep.sums()
	p.reply = r
	r.iov = r.iov[:0]
	st := &l.ep.stage
	if !st.add(func() { st.replies.push(p) }) {
		p.end()
	}
	return 0
}

// stageReply gives the reply to one of our reads a buffer.
func (l *link) stageReply(s *slot, n uint64) error {
	p := s.piece
	if p == nil || p.staging == nil || n == 0 || p.buf != nil {
		return nil
	}
	err := p.take(n, device.Inward)
	if errors.Is(err, device.ErrBusy) {
		return errNoBuffer
	}
	if err != nil {
		s.errno, s.detail = deviceErrno(err), err.Error()
		return nil
	}
	s.op.Seg = fabric.Seg{Addr: p.buf.Addr(), Len: n}
	return nil
}

// logDevice writes down why a peer's op failed, of which the peer gets the number only.
func (l *link) logDevice(err error) {
	var errno fabric.Errno
	if !errors.As(err, &errno) {
		l.ep.logDevice("a peer's op on GPU memory failed", err)
	}
}
