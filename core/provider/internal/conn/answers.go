// SPDX-License-Identifier: MIT

package conn

import (
	"errors"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// An answers handles the peer's answers to our ops that arrive on one channel. Only the channel's
// reader goroutine uses it.
type answers struct {
	c  *channel
	op *pendingOp // of the reply that is arriving
}

// beginReply starts the reply to one of our reads or atomics and sets where its bytes go.
func (a *answers) beginReply(in *socket.Incoming) error {
	h := &in.H
	s := a.c.ep.out.find(a.c, h.Ticket, true)
	if s == nil || h.Data == 0 && h.Length != s.n || h.Data != 0 && h.Length != 0 {
		return frame.ProtocolErr("reply of %s with %d bytes to an unknown read", a.c.ep.peer, h.Length)
	}
	s.errno = frame.Errno(h.Data)
	if h.Length > answerFirst {
		a.c.Kick()
	}
	if err := a.stageReply(s, h.Length); err != nil {
		return err
	}
	a.op, in.Want = s, h.Length
	if s.errno != 0 {
		in.Want, in.Drop = 0, h.WireLen() // no destination for the payload
		return nil
	}
	in.Dst = in.Scratch(1 + len(s.op.More))
	if x := s.op.Atomic; s.op.Kind != fabric.OpRead {
		in.Dst = append(in.Dst, sys.Iovec{Addr: x.Result.Addr, Len: h.Length})
	} else {
		in.Dst = socket.AppendLocal(in.Dst, &s.op, h.Length)
	}
	in.ReceiveCompressed()
	return nil
}

// endReply ends the op of a reply whose bytes have been received.
func (a *answers) endReply(in *socket.Incoming) error {
	s, h := a.op, &in.H
	if h.Flags&frame.FlagTrailer != 0 {
		errno, err := takeTrailer(in)
		if err != nil {
			return err
		}
		if s.errno == 0 {
			s.errno = errno
		}
	}
	if in.Compressed() {
		if err := in.Decompress(replied(in, s, h.Length)); err != nil {
			return err
		}
	}
	switch {
	case in.Gone:
		s.errno, s.detail = socket.Unreadable, unwritableText
	case s.errno == 0 && in.Differs():
		s.errno = fabric.ErrCRC
	}
	a.op = nil
	if s.mark(opAnswered) {
		a.c.ep.out.complete(s)
	}
	return nil
}

// ack ends the ops listed in an ack frame.
func (a *answers) ack(in *socket.Incoming) error {
	h := &in.H
	n := int(h.Count) * frame.AckLen
	b, err := in.Take(n)
	if err != nil {
		return err
	}
	if frame.Checksum(0, b) != h.TableChecksum {
		return in.Altered()
	}
	for ; len(b) > 0; b = b[frame.AckLen:] {
		k := frame.ParseAck(b)
		s := a.c.ep.out.find(a.c, k.Ticket, false)
		if s == nil {
			return frame.ProtocolErr("ack of %s for an unknown op", a.c.ep.peer)
		}
		s.errno = k.Errno
		if s.mark(opAnswered) {
			a.c.ep.out.complete(s)
		}
	}
	return nil
}

// stageReply takes a staging buffer for the reply to a read of device memory.
func (a *answers) stageReply(s *pendingOp, n uint64) error {
	if s.piece == nil {
		return nil
	}
	took, err := s.piece.Receive(n)
	switch {
	case errors.Is(err, device.ErrBusy):
		return socket.ErrNoBuffer
	case err != nil:
		s.errno, s.detail = staging.Errno(err), err.Error()
	case took:
		s.op.Seg = fabric.Seg{Addr: s.piece.Addr(), Len: n}
	}
	return nil
}

// takeTrailer reads the errno that follows the payload of a reply.
func takeTrailer(in *socket.Incoming) (fabric.Errno, error) {
	b, err := in.Take(frame.TrailerLen)
	if err != nil {
		return 0, err
	}
	errno, ok := frame.ParseTrailer(b)
	if !ok {
		return 0, in.Altered()
	}
	return errno, nil
}

// replied returns the memory of an op that a reply of n bytes has filled.
func replied(in *socket.Incoming, s *pendingOp, n uint64) []sys.Iovec {
	iov := in.Scratch(1 + len(s.op.More))
	if s.op.Kind != fabric.OpRead {
		return append(iov, sys.Iovec{Addr: s.op.Atomic.Result.Addr, Len: n})
	}
	return socket.AppendLocal(iov, &s.op, n)
}
