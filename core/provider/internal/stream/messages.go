// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// remoteFlags are the completion flags of a frame.
func remoteFlags(h *frame.Header) fabric.OpFlags {
	if h.Flags&frame.FlagRemoteData != 0 {
		return fabric.OpRemoteData
	}
	return 0
}

func (l *link) beginSend(h *frame.Header) error {
	ep, in := l.ep, &l.in
	if ep.inbox.busy() {
		return frame.ProtocolErr("message of %s behind an offer", ep.peer)
	}
	if in.op, in.into = ep.feed.Take(); in.into {
		ep.inbox.fill(&in.op)
		in.want = min(h.Length, in.op.Len())
		in.drop = h.Length - in.want
		in.dst = appendLocal(in.scratch(1+len(in.op.More)), &in.op, in.want)
		return nil
	}
	if !ep.feed.Hold(h.Length) {
		if ep.feed.Held()+h.Length+eagerCost > eagerRoom {
			return frame.ProtocolErr("message of %s beyond its credit", ep.peer)
		}
		ep.end(fmt.Errorf("message of %s for an endpoint that closed: %w", ep.peer, fabric.ErrCanceled), true)
		return errEnded
	}
	in.early, in.held, in.own, in.want = make([]byte, h.Length), true, true, h.Length
	if h.Length > 0 {
		in.dst = append(in.scratch(1), sys.Iovec{Addr: sys.AddrOf(in.early), Len: h.Length})
	}
	return nil
}

func (l *link) endSend(h *frame.Header) error {
	ep, in := l.ep, &l.in
	if in.differs() && !in.gone {
		return l.altered(h)
	}
	if in.into {
		ep.inbox.filled()
		l.received(h)
	} else {
		var later uint64 // token of an answer that placed gives
		if h.Flags&frame.FlagPlaced != 0 {
			if later = ackToken | uint64(h.Ticket); l.wire != nil {
				later |= wireToken
			}
		}
		in.held = false
		ep.feed.Deliver(in.early, h.Data, remoteFlags(h), later)
		in.early = nil
	}
	ep.inbox.arrived.Add(int64(h.Length) + eagerCost)
	if in.into || h.Flags&frame.FlagPlaced == 0 {
		if err := l.ack(h.Ticket, in.memoryErrno()); err != nil {
			return err
		}
	}
	var t todo
	ep.giveCredit(&t)
	ep.run(&t)
	return nil
}

func (l *link) onOffer(h *frame.Header) error {
	b := &l.ep.inbox
	if b.busy() {
		return frame.ProtocolErr("offer of %s behind an offer", l.ep.peer)
	}
	b.mu.Lock()
	b.offer, b.on = *h, l
	b.mu.Unlock()
	b.offered.Store(true)
	var t todo
	l.ep.pullOffer(&t)
	l.ep.run(&t)
	return nil
}

// busy reports whether a large message is between its offer and its last byte.
func (b *inbox) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.offered.Load() || b.pulling
}

// onPull sends the body of our offer, and lets go what waited behind it.
func (l *link) onPull(h *frame.Header) error {
	ep := l.ep
	s := l.find(h.Ticket, false)
	var t todo
	ep.mu.Lock()
	if s == nil || ep.offer != s || h.Length > s.n {
		ep.mu.Unlock()
		return frame.ProtocolErr("pull of %s for no offer of ours", ep.peer)
	}
	ep.offer = nil
	j := job{h: frame.Header{Kind: frame.KindBody, Flags: ep.sums(), Ticket: h.Ticket, Length: h.Length, Data: h.Data}, slot: s}
	l.post(&j, h.Length)
	t.kick(l)
	ep.turnToWire(&t)
	ep.resume(&t)
	ep.mu.Unlock()
	ep.run(&t)
	return nil
}

func (l *link) beginBody(h *frame.Header) error {
	in, b := &l.in, &l.ep.inbox
	b.mu.Lock()
	ok := b.pulling && h.Data == b.handle && h.Length == b.take
	in.op = b.receive
	b.mu.Unlock()
	if !ok {
		return frame.ProtocolErr("body of %s that was not pulled", l.ep.peer)
	}
	in.want = h.Length
	in.dst = appendLocal(in.scratch(1+len(in.op.More)), &in.op, in.want)
	return nil
}

func (l *link) endBody() error {
	in, b := &l.in, &l.ep.inbox
	if in.differs() && !in.gone {
		return l.altered(&in.h)
	}
	b.mu.Lock()
	offer := b.offer
	b.pulling, b.receive = false, fabric.Op{}
	b.mu.Unlock()
	l.received(&offer)
	return l.ack(offer.Ticket, in.memoryErrno())
}

// received ends the receive of the message h, which is in its memory unless that is gone.
func (l *link) received(h *frame.Header) {
	in := &l.in
	if in.gone {
		l.ep.feed.Failed(&in.op, unreadable, "the buffer of the receive is not mapped: was it freed before the message came?")
	} else {
		l.ep.feed.Filled(&in.op, h.Length, h.Data, remoteFlags(h))
	}
	in.op = fabric.Op{}
}

// memoryErrno is ErrFault if the payload had nowhere to go.
func (in *reader) memoryErrno() fabric.Errno {
	if in.gone {
		return fabric.ErrFault
	}
	return 0
}

func (l *link) onCredit(h *frame.Header) error {
	ep := l.ep
	var t todo
	ep.mu.Lock()
	late := ep.wire.Load() != nil && l.wire == nil // of before the turn, perhaps behind what came on the wire
	if h.Data < ep.consumed && !late || h.Data > ep.sent {
		ep.mu.Unlock()
		return frame.ProtocolErr("credit of %s for %d bytes, sent are %d", ep.peer, h.Data, ep.sent)
	}
	ep.consumed = max(ep.consumed, h.Data)
	ep.resume(&t)
	ep.mu.Unlock()
	ep.run(&t)
	return nil
}
