// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// begin takes the frame h and says where its payload goes. Its errors end the connection; what only concerns one op is answered. After
// errWait it is called again.
func (l *link) begin(h *frame.Header) error {
	l.in.gone, l.in.own = false, false
	if h.Flags&frame.FlagCompressed != 0 && l.ep.cfg.can()&frame.FeatureDecompress == 0 {
		return frame.ProtocolErr("packed payload of %s, which was not told that it may", l.ep.peer)
	}
	switch h.Kind {
	case frame.KindWrite:
		return l.beginWrite(h)
	case frame.KindRead:
		return l.onRead(h)
	case frame.KindAtomic:
		return l.onAtomic(h)
	case frame.KindReply:
		return l.beginReply(h)
	case frame.KindAck:
		return l.onAck(h)
	case frame.KindGoodbye:
		return l.onGoodbye(h)
	case frame.KindTurn:
		return l.onTurn()
	}
	if l.index != 0 && l.wire == nil || l.wire != nil && h.Kind == frame.KindExtension {
		return frame.ProtocolErr("%v frame of %s on link %d", h.Kind, l.ep.peer, l.index)
	}
	switch h.Kind {
	case frame.KindSend, frame.KindOffer:
		if err := l.inTurn(); err != nil {
			return err
		}
	}
	switch h.Kind {
	case frame.KindSend:
		return l.beginSend(h)
	case frame.KindOffer:
		return l.onOffer(h)
	case frame.KindPull:
		return l.onPull(h)
	case frame.KindBody:
		return l.beginBody(h)
	case frame.KindCredit:
		return l.onCredit(h)
	}
	return l.onExtension(h)
}

// finish ends the frame h, whose payload is in place. After errNoRoom it is called again.
func (l *link) finish(h *frame.Header) error {
	switch h.Kind {
	case frame.KindWrite:
		return l.endWrite(h)
	case frame.KindReply:
		return l.endReplied()
	case frame.KindSend:
		return l.endSend(h)
	case frame.KindBody:
		return l.endBody()
	}
	return nil
}

// claim checks the right to segs and appends their memory to iov. The region is held open when the answer is 0.
func (l *link) claim(h *frame.Header, segs []fabric.RSeg, want fabric.Access, iov []sys.Iovec) (*util.MR, []sys.Iovec, fabric.Errno) {
	mr, err := l.ep.domain.regions.Acquire(fabric.RegionKey{ID: h.Region, Secret: h.Secret}, want)
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

// scratch is the reader's list of entries, empty and with room for n and the staging buffer.
func (in *reader) scratch(n int) []sys.Iovec {
	if cap(in.iov) < n+1 || cap(in.iov) > keepEntries && n < keepEntries {
		in.iov = make([]sys.Iovec, 0, max(64, n+1))
	}
	return in.iov[:0]
}

func (l *link) beginWrite(h *frame.Header) error {
	in := &l.in
	in.errno, in.stuck = 0, false
	if h.Flags&frame.FlagNotice != 0 {
		mr, _, errno := l.claim(h, nil, fabric.AccessRemoteWrite, nil)
		if errno == 0 {
			mr.Release()
		}
		in.errno = errno
		return nil
	}
	if h.Flags&frame.FlagVoid != 0 {
		in.errno, in.drop = fabric.ErrFault, h.Length
		return nil
	}
	if h.Length > answerFirst {
		l.kick()
	}
	in.mr, in.dst, in.errno = l.claim(h, in.segs, fabric.AccessRemoteWrite, in.scratch(len(in.segs)))
	if in.errno != 0 {
		in.drop = h.WireLen()
		return nil
	}
	if h.Length > 0 && in.mr.Buffer().Kind != fabric.MemHost {
		if err := l.beginLanding(h); err != nil || in.landing == nil {
			return err
		}
		l.beginPacked(h)
		return nil
	}
	in.want = h.Length
	in.holds.Store(in.mr)
	l.beginPacked(h)
	return nil
}

// endWrite ends a write whose bytes are visible: the completion that it asked for, then the answer.
func (l *link) endWrite(h *frame.Header) error {
	in := &l.in
	if in.landing != nil {
		return l.endLanding(h)
	}
	if in.mr != nil {
		if in.pack != nil {
			if err := l.unpack(h, l.written()); err != nil {
				return err
			}
		}
		switch {
		case in.gone:
			in.errno = fabric.ErrFault
		case in.differs():
			in.errno = fabric.ErrCRC
		}
		in.holds.Store(nil)
		in.mr.Release()
		in.mr = nil
	}
	if in.errno == 0 && h.Flags&frame.FlagRemoteData != 0 {
		c := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: l.ep.from(), Len: h.Length, Data: h.Data}
		if !l.ep.queues.Rx.TryPush(c) {
			in.stuck = true
			return errNoRoom
		}
		if in.stuck {
			l.ep.inbox.wake() // the word of room came once, and readers of other links may wait for it, too
		}
	}
	return l.ack(h.Ticket, in.errno)
}

func (l *link) onRead(h *frame.Header) error {
	segs := l.in.segs
	r, err := l.openReply(len(segs))
	if err != nil {
		return err
	}
	j := job{h: frame.Header{Kind: frame.KindReply, Ticket: h.Ticket, Flags: h.Flags&frame.FlagChecksum | l.ep.sums()}}
	mr, iov, errno := l.claim(h, segs, fabric.AccessRemoteRead, r.iov[:0])
	r.iov = iov
	if errno != 0 {
		l.endReply(r)
		j.h.Data = uint64(errno)
	} else {
		l.serve(r, mr)
		j.reply, j.h.Length = r, h.Length
		if l.ep.peerFault && h.Length > 0 {
			j.h.Flags |= frame.FlagTrailer
		}
		if h.Length > 0 && mr.Buffer().Kind != fabric.MemHost {
			errno := l.openStaged(h, r, mr)
			if errno == 0 {
				return nil // the stager answers
			}
			l.endReply(r)
			j.reply, j.h.Length, j.h.Data = nil, 0, uint64(errno)
		}
	}
	l.post(&j, j.h.Length)
	l.kick()
	return nil
}

// openReply takes a reply to an op with n segments, unless the peer has asked for more than it may.
func (l *link) openReply(n int) (*reply, error) {
	// Twice the sender's credit: it may use credit again before the pump here has settled what was sent.
	if l.readsIn.Add(1) > 2*frame.MaxReads || l.entriesIn.Add(int64(n)) > 2*frame.MaxReadSegments {
		return nil, frame.ProtocolErr("more reads of %s on their way than allowed", l.ep.peer)
	}
	r := l.newReply()
	r.entries = n
	return r, nil
}

func (l *link) beginReply(h *frame.Header) error {
	in := &l.in
	s := l.find(h.Ticket, true)
	if s == nil || h.Data == 0 && h.Length != s.n || h.Data != 0 && h.Length != 0 {
		return frame.ProtocolErr("reply of %s with %d bytes to no read of ours", l.ep.peer, h.Length)
	}
	s.errno = frame.Errno(h.Data)
	if h.Length > answerFirst {
		l.kick()
	}
	if err := l.stageReply(s, h.Length); err != nil {
		return err
	}
	in.slot, in.want = s, h.Length
	if s.errno != 0 {
		in.want, in.drop = 0, h.WireLen() // there is no buffer for what comes
		return nil
	}
	in.dst = in.scratch(1 + len(s.op.More))
	if a := s.op.Atomic; s.op.Kind != fabric.OpRead {
		in.dst = append(in.dst, sys.Iovec{Addr: a.Result.Addr, Len: h.Length})
	} else {
		in.dst = appendLocal(in.dst, &s.op, h.Length)
	}
	l.beginPacked(h)
	return nil
}

func (l *link) endReplied() error {
	s, h := l.in.slot, &l.in.h
	if h.Flags&frame.FlagTrailer != 0 {
		errno, err := l.takeTrailer()
		if err != nil {
			return err
		}
		if s.errno == 0 {
			s.errno = errno
		}
	}
	if l.in.pack != nil {
		if err := l.unpack(h, l.replied(s, h.Length)); err != nil {
			return err
		}
	}
	switch {
	case l.in.gone:
		s.errno, s.detail = unreadable, unwritableText
	case s.errno == 0 && l.in.differs():
		s.errno = fabric.ErrCRC
	}
	l.in.slot = nil
	if s.mark(slotAnswered) {
		l.ep.complete(s)
	}
	return nil
}

// find returns our op that the peer answers on this link, by a reply or by an ack.
func (l *link) find(ticket uint32, reply bool) *slot {
	l.ep.mu.Lock()
	defer l.ep.mu.Unlock()
	s := l.ep.slots.lookup(Ticket(ticket))
	if s == nil || s.link != l || s.replied() != reply {
		return nil
	}
	return s
}

func (l *link) onAck(h *frame.Header) error {
	n := int(h.Count) * frame.AckLen
	if err := l.need(n); err != nil {
		return err
	}
	if frame.Checksum(0, l.in.buf[l.in.r:l.in.r+n]) != h.TableChecksum {
		return l.altered(h)
	}
	for b := l.in.buf[l.in.r : l.in.r+n]; len(b) > 0; b = b[frame.AckLen:] {
		a := frame.ParseAck(b)
		s := l.find(a.Ticket, false)
		if s == nil {
			return frame.ProtocolErr("ack of %s for no op of ours", l.ep.peer)
		}
		s.errno = a.Errno
		if s.mark(slotAnswered) {
			l.ep.complete(s)
		}
	}
	l.in.r += n
	return nil
}

func (l *link) onExtension(h *frame.Header) error {
	if l.ep.direct == nil {
		return frame.ProtocolErr("extension frame of %s", l.ep.peer)
	}
	n := int(h.Length)
	if err := l.need(n); err != nil {
		return err
	}
	body := l.in.buf[l.in.r : l.in.r+n : l.in.r+n]
	l.in.r += n
	if frame.Checksum(0, body) != h.TableChecksum {
		return l.altered(h)
	}
	if err := l.ep.direct.Frame(uint8(h.Count), body); err != nil {
		return fmt.Errorf("extension frame %d of %s: %w", h.Count, l.ep.peer, err)
	}
	return nil
}
