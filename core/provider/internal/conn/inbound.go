// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// Begin takes a frame and says where its payload goes; see socket.Owner. What only concerns one op
// is answered.
func (c *channel) Begin(in *socket.Incoming) error {
	h := &in.H
	if h.Flags&frame.FlagCompressed != 0 && c.ep.cfg.can()&frame.FeatureDecompress == 0 {
		return frame.ProtocolErr("compressed payload of %s, which was not told that it may", c.ep.peer)
	}
	switch h.Kind {
	case frame.KindWrite:
		return c.beginWrite(in)
	case frame.KindRead:
		return c.onRead(in)
	case frame.KindAtomic:
		return c.onAtomic(in)
	case frame.KindReply:
		return c.beginReply(in)
	case frame.KindAck:
		return c.onAck(in)
	case frame.KindGoodbye:
		return c.onGoodbye(h)
	case frame.KindTurn:
		return c.onTurn()
	}
	if c.index != 0 && !c.IsWire() || c.IsWire() && h.Kind == frame.KindExtension {
		return frame.ProtocolErr("%v frame of %s on link %d", h.Kind, c.ep.peer, c.index)
	}
	switch h.Kind {
	case frame.KindSend, frame.KindOffer:
		if err := c.inTurn(); err != nil {
			return err
		}
	}
	switch h.Kind {
	case frame.KindSend:
		return c.beginSend(in)
	case frame.KindOffer:
		return c.onOffer(h)
	case frame.KindPull:
		return c.onPull(h)
	case frame.KindBody:
		return c.beginBody(in)
	case frame.KindCredit:
		return c.onCredit(h)
	}
	return c.onExtension(in)
}

// Finish ends a frame whose payload is in place; see socket.Owner.
func (c *channel) Finish(in *socket.Incoming) error {
	switch in.H.Kind {
	case frame.KindWrite:
		return c.endWrite(in)
	case frame.KindReply:
		return c.endReplied(in)
	case frame.KindSend:
		return c.endSend(in)
	case frame.KindBody:
		return c.endBody(in)
	}
	return nil
}

// answerFirst is the payload before whose reading queued answers are sent.
const answerFirst = 128 << 10

// claim checks the right to segs and appends their memory to iov. The region is held open when the
// answer is 0.
func (c *channel) claim(h *frame.Header, segs []fabric.RSeg, want fabric.Access, iov []sys.Iovec) (*util.MR, []sys.Iovec, fabric.Errno) {
	mr, err := c.ep.domain.regions.Acquire(fabric.RegionKey{ID: h.Region, Secret: h.Secret}, want)
	if err != nil {
		return nil, iov, fabric.ErrnoOf(err)
	}
	for _, s := range segs {
		addr, err := mr.Range(s.Addr, s.Len)
		if err != nil {
			mr.Release()
			return nil, iov, fabric.ErrnoOf(err)
		}
		if s.Len > 0 {
			iov = append(iov, sys.Iovec{Addr: addr, Len: s.Len})
		}
	}
	return mr, iov, 0
}

func (c *channel) beginWrite(in *socket.Incoming) error {
	h := &in.H
	c.rx.errno, c.rx.stuck = 0, false
	if h.Flags&frame.FlagNotice != 0 {
		mr, _, errno := c.claim(h, nil, fabric.AccessRemoteWrite, nil)
		if errno == 0 {
			mr.Release()
		}
		c.rx.errno = errno
		return nil
	}
	if h.Flags&frame.FlagVoid != 0 {
		c.rx.errno, in.Drop = fabric.ErrFault, h.Length
		return nil
	}
	if h.Length > answerFirst {
		c.Kick()
	}
	c.rx.mr, in.Dst, c.rx.errno = c.claim(h, in.Segs, fabric.AccessRemoteWrite, in.Scratch(len(in.Segs)))
	if c.rx.errno != 0 {
		in.Drop = h.WireLen()
		return nil
	}
	if h.Length > 0 && c.rx.mr.Buffer().Kind != fabric.MemHost {
		if err := c.beginLanding(in); err != nil || c.rx.landing == nil {
			return err
		}
		in.ReceiveCompressed()
		return nil
	}
	in.Want = h.Length
	c.rx.holds.Store(c.rx.mr)
	in.ReceiveCompressed()
	return nil
}

// endWrite ends a write whose bytes are visible: the completion that it asked for, then the answer.
func (c *channel) endWrite(in *socket.Incoming) error {
	h := &in.H
	if c.rx.landing != nil {
		return c.endLanding(in)
	}
	if c.rx.mr != nil {
		if in.Compressed() {
			if err := in.Decompress(c.written(in)); err != nil {
				return err
			}
		}
		switch {
		case in.Gone:
			c.rx.errno = fabric.ErrFault
		case in.Differs():
			c.rx.errno = fabric.ErrCRC
		}
		c.rx.holds.Store(nil)
		c.rx.mr.Release()
		c.rx.mr = nil
	}
	if c.rx.errno == 0 && h.Flags&frame.FlagRemoteData != 0 {
		done := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: c.ep.from(), Len: h.Length, Data: h.Data}
		if !c.ep.queues.Rx.TryPush(done) {
			c.rx.stuck = true
			return socket.ErrNoRoom
		}
		if c.rx.stuck {
			c.ep.inbox.wake() // room is signaled once, and readers of other sockets may wait for it, too
		}
	}
	return c.Ack(h.Ticket, c.rx.errno)
}

func (c *channel) onRead(in *socket.Incoming) error {
	h := &in.H
	segs := in.Segs
	r, err := c.replies.open(len(segs), c.ep.peer)
	if err != nil {
		return err
	}
	j := socket.Job{H: frame.Header{Kind: frame.KindReply, Ticket: h.Ticket, Flags: h.Flags&frame.FlagChecksum | c.ep.checksumFlag()}}
	mr, iov, errno := c.claim(h, segs, fabric.AccessRemoteRead, r.iov[:0])
	r.iov = iov
	if errno != 0 {
		c.replies.end(r)
		j.H.Data = uint64(errno)
	} else {
		c.replies.serve(r, mr)
		j.Reply, j.H.Length = r, h.Length
		if c.ep.peerFault && h.Length > 0 {
			j.H.Flags |= frame.FlagTrailer
		}
		if h.Length > 0 && mr.Buffer().Kind != fabric.MemHost {
			errno := c.openStaged(h, r, mr)
			if errno == 0 {
				return nil // the stager answers
			}
			c.replies.end(r)
			j.Reply, j.H.Length, j.H.Data = nil, 0, uint64(errno)
		}
	}
	c.Post(&j, j.H.Length)
	c.Kick()
	return nil
}

func (c *channel) beginReply(in *socket.Incoming) error {
	h := &in.H
	s := c.find(h.Ticket, true)
	if s == nil || h.Data == 0 && h.Length != s.n || h.Data != 0 && h.Length != 0 {
		return frame.ProtocolErr("reply of %s with %d bytes to no read of ours", c.ep.peer, h.Length)
	}
	s.errno = frame.Errno(h.Data)
	if h.Length > answerFirst {
		c.Kick()
	}
	if err := c.stageReply(s, h.Length); err != nil {
		return err
	}
	c.rx.op, in.Want = s, h.Length
	if s.errno != 0 {
		in.Want, in.Drop = 0, h.WireLen() // there is no buffer for what comes
		return nil
	}
	in.Dst = in.Scratch(1 + len(s.op.More))
	if a := s.op.Atomic; s.op.Kind != fabric.OpRead {
		in.Dst = append(in.Dst, sys.Iovec{Addr: a.Result.Addr, Len: h.Length})
	} else {
		in.Dst = socket.AppendLocal(in.Dst, &s.op, h.Length)
	}
	in.ReceiveCompressed()
	return nil
}

func (c *channel) endReplied(in *socket.Incoming) error {
	s, h := c.rx.op, &in.H
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
	c.rx.op = nil
	if s.mark(opAnswered) {
		c.ep.complete(s)
	}
	return nil
}

// find returns our op that the peer answers on this channel, by a reply or by an ack.
func (c *channel) find(ticket uint32, reply bool) *pendingOp {
	c.ep.mu.Lock()
	defer c.ep.mu.Unlock()
	s := c.ep.pending.lookup(Ticket(ticket))
	if s == nil || s.channel != c || s.replied() != reply {
		return nil
	}
	return s
}

func (c *channel) onAck(in *socket.Incoming) error {
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
		a := frame.ParseAck(b)
		s := c.find(a.Ticket, false)
		if s == nil {
			return frame.ProtocolErr("ack of %s for no op of ours", c.ep.peer)
		}
		s.errno = a.Errno
		if s.mark(opAnswered) {
			c.ep.complete(s)
		}
	}
	return nil
}

func (c *channel) onExtension(in *socket.Incoming) error {
	h := &in.H
	if c.ep.path == nil {
		return frame.ProtocolErr("extension frame of %s", c.ep.peer)
	}
	body, err := in.Take(int(h.Length))
	if err != nil {
		return err
	}
	if frame.Checksum(0, body) != h.TableChecksum {
		return in.Altered()
	}
	if err := c.ep.path.Frame(uint8(h.Count), body); err != nil {
		return fmt.Errorf("extension frame %d of %s: %w", h.Count, c.ep.peer, err)
	}
	return nil
}

// takeTrailer reads the errno behind the payload of a reply.
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

// written is the memory of a write whose claim holds.
func (c *channel) written(in *socket.Incoming) []sys.Iovec {
	iov := in.Scratch(len(in.Segs))
	for _, s := range in.Segs {
		if addr, err := c.rx.mr.Range(s.Addr, s.Len); err == nil && s.Len > 0 {
			iov = append(iov, sys.Iovec{Addr: addr, Len: s.Len})
		}
	}
	return iov
}

// replied is the memory of an op that a reply of n bytes has filled.
func replied(in *socket.Incoming, s *pendingOp, n uint64) []sys.Iovec {
	iov := in.Scratch(1 + len(s.op.More))
	if s.op.Kind != fabric.OpRead {
		return append(iov, sys.Iovec{Addr: s.op.Atomic.Result.Addr, Len: n})
	}
	return socket.AppendLocal(iov, &s.op, n)
}
