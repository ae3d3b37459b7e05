// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
)

// begin takes the frame h and says where its payload goes. Its errors end the connection; what only concerns one op is answered. After
// errWait it is called again.
func (l *link) begin(h *header) error {
	l.in.gone, l.in.own = false, false
	if h.flags&flagZstd != 0 && l.ep.cfg.can()&canUnpack == 0 {
		return protocolErr("packed payload of %s, which was not told that it may", l.ep.peer)
	}
	switch h.kind {
	case kindWrite:
		return l.beginWrite(h)
	case kindRead:
		return l.onRead(h)
	case kindAtomic:
		return l.onAtomic(h)
	case kindReply:
		return l.beginReply(h)
	case kindAck:
		return l.onAck(h)
	case kindGoodbye:
		return l.onGoodbye(h)
	case kindTurn:
		return l.onTurn()
	}
	if l.index != 0 && l.wire == nil || l.wire != nil && h.kind == kindExtension {
		return protocolErr("%v frame of %s on link %d", h.kind, l.ep.peer, l.index)
	}
	switch h.kind {
	case kindSend, kindOffer:
		if err := l.inTurn(); err != nil {
			return err
		}
	}
	switch h.kind {
	case kindSend:
		return l.beginSend(h)
	case kindOffer:
		return l.onOffer(h)
	case kindPull:
		return l.onPull(h)
	case kindBody:
		return l.beginBody(h)
	case kindCredit:
		return l.onCredit(h)
	}
	return l.onExtension(h)
}

// finish ends the frame h, whose payload is in place. After errNoRoom it is called again.
func (l *link) finish(h *header) error {
	switch h.kind {
	case kindWrite:
		return l.endWrite(h)
	case kindReply:
		return l.endReplied()
	case kindSend:
		return l.endSend(h)
	case kindBody:
		return l.endBody()
	}
	return nil
}

// claim checks the right to segs and appends their memory to iov. The region is held open when the answer is 0.
func (l *link) claim(h *header, segs []fabric.RSeg, want fabric.Access, iov []sys.Iovec) (*util.MR, []sys.Iovec, fabric.Errno) {
	mr, err := l.ep.domain.regions.Acquire(fabric.RegionKey{ID: h.region, Secret: h.secret}, want)
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

func (l *link) beginWrite(h *header) error {
	in := &l.in
	in.errno, in.stuck = 0, false
	if h.flags&flagNotice != 0 {
		mr, _, errno := l.claim(h, nil, fabric.AccessRemoteWrite, nil)
		if errno == 0 {
			mr.Release()
		}
		in.errno = errno
		return nil
	}
	if h.flags&flagVoid != 0 {
		in.errno, in.drop = fabric.ErrFault, h.length
		return nil
	}
	if h.length > answerFirst {
		l.kick()
	}
	in.mr, in.dst, in.errno = l.claim(h, in.segs, fabric.AccessRemoteWrite, in.scratch(len(in.segs)))
	if in.errno != 0 {
		in.drop = h.wire()
		return nil
	}
	if h.length > 0 && in.mr.Buffer().Kind != fabric.MemHost {
		if err := l.beginLanding(h); err != nil || in.landing == nil {
			return err
		}
		l.beginPacked(h)
		return nil
	}
	in.want = h.length
	in.holds.Store(in.mr)
	l.beginPacked(h)
	return nil
}

// endWrite ends a write whose bytes are visible: the completion that it asked for, then the answer.
func (l *link) endWrite(h *header) error {
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
	if in.errno == 0 && h.flags&flagRemoteData != 0 {
		c := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: l.ep.from(), Len: h.length, Data: h.data}
		if !l.ep.queues.Rx.TryPush(c) {
			in.stuck = true
			return errNoRoom
		}
		if in.stuck {
			l.ep.inbox.wake() // the word of room came once, and readers of other links may wait for it, too
		}
	}
	return l.ack(h.ticket, in.errno)
}

func (l *link) onRead(h *header) error {
	segs := l.in.segs
	r, err := l.openReply(len(segs))
	if err != nil {
		return err
	}
	j := job{h: header{kind: kindReply, ticket: h.ticket, flags: h.flags&flagSum | l.ep.sums()}}
	mr, iov, errno := l.claim(h, segs, fabric.AccessRemoteRead, r.iov[:0])
	r.iov = iov
	if errno != 0 {
		l.endReply(r)
		j.h.data = uint64(errno)
	} else {
		l.serve(r, mr)
		j.reply, j.h.length = r, h.length
		if l.ep.peerFault && h.length > 0 {
			j.h.flags |= flagTrailer
		}
		if h.length > 0 && mr.Buffer().Kind != fabric.MemHost {
			errno := l.openStaged(h, r, mr)
			if errno == 0 {
				return nil // the stager answers
			}
			l.endReply(r)
			j.reply, j.h.length, j.h.data = nil, 0, uint64(errno)
		}
	}
	l.post(&j, j.h.length)
	l.kick()
	return nil
}

// openReply takes a reply to an op with n segments, unless the peer has asked for more than it may.
func (l *link) openReply(n int) (*reply, error) {
	// Twice the sender's credit: it may use credit again before the pump here has settled what was sent.
	if l.readsIn.Add(1) > 2*maxReads || l.entriesIn.Add(int64(n)) > 2*maxReadEntries {
		return nil, protocolErr("more reads of %s on their way than allowed", l.ep.peer)
	}
	r := l.newReply()
	r.entries = n
	return r, nil
}

func (l *link) beginReply(h *header) error {
	in := &l.in
	s := l.find(h.ticket, true)
	if s == nil || h.data == 0 && h.length != s.n || h.data != 0 && h.length != 0 {
		return protocolErr("reply of %s with %d bytes to no read of ours", l.ep.peer, h.length)
	}
	s.errno = wireErrno(h.data)
	if h.length > answerFirst {
		l.kick()
	}
	if err := l.stageReply(s, h.length); err != nil {
		return err
	}
	in.slot, in.want = s, h.length
	if s.errno != 0 {
		in.want, in.drop = 0, h.wire() // there is no buffer for what comes
		return nil
	}
	in.dst = in.scratch(1 + len(s.op.More))
	if a := s.op.Atomic; s.op.Kind != fabric.OpRead {
		in.dst = append(in.dst, sys.Iovec{Addr: a.Result.Addr, Len: h.length})
	} else {
		in.dst = appendLocal(in.dst, &s.op, h.length)
	}
	l.beginPacked(h)
	return nil
}

func (l *link) endReplied() error {
	s, h := l.in.slot, &l.in.h
	if h.flags&flagTrailer != 0 {
		errno, err := l.takeTrailer()
		if err != nil {
			return err
		}
		if s.errno == 0 {
			s.errno = errno
		}
	}
	if l.in.pack != nil {
		if err := l.unpack(h, l.replied(s, h.length)); err != nil {
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

func (l *link) onAck(h *header) error {
	n := int(h.count) * ackEntryLen
	if err := l.need(n); err != nil {
		return err
	}
	if tableSum(0, l.in.buf[l.in.r:l.in.r+n]) != h.table {
		return l.altered(h)
	}
	for b := l.in.buf[l.in.r : l.in.r+n]; len(b) > 0; b = b[ackEntryLen:] {
		a := parseAck(b)
		s := l.find(a.ticket, false)
		if s == nil {
			return protocolErr("ack of %s for no op of ours", l.ep.peer)
		}
		s.errno = a.errno
		if s.mark(slotAnswered) {
			l.ep.complete(s)
		}
	}
	l.in.r += n
	return nil
}

func (l *link) onExtension(h *header) error {
	if l.ep.direct == nil {
		return protocolErr("extension frame of %s", l.ep.peer)
	}
	n := int(h.length)
	if err := l.need(n); err != nil {
		return err
	}
	body := l.in.buf[l.in.r : l.in.r+n : l.in.r+n]
	l.in.r += n
	if tableSum(0, body) != h.table {
		return l.altered(h)
	}
	if err := l.ep.direct.Frame(uint8(h.count), body); err != nil {
		return fmt.Errorf("extension frame %d of %s: %w", h.count, l.ep.peer, err)
	}
	return nil
}
