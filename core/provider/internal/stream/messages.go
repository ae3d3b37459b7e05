// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// remoteFlags are the completion flags of a frame.
func remoteFlags(h *header) fabric.OpFlags {
	if h.flags&flagRemoteData != 0 {
		return fabric.OpRemoteData
	}
	return 0
}

func (l *link) onSend(h *header) error {
	ep, b := l.ep, &l.ep.inbox
	if b.busy() {
		return protocolErr("message of %s behind an offer", ep.peer)
	}
	ticket, n, data, flags := h.ticket, h.length, h.data, remoteFlags(h)
	var later uint64 // token of an answer that placed gives
	if h.flags&flagPlaced != 0 {
		later = ackToken | uint64(ticket)
	}
	op, posted := ep.feed.Take()
	var err error
	if posted {
		err = l.intoReceive(&op, n, data, flags)
	} else {
		err = l.intoBuffer(n, data, flags, later)
	}
	if err != nil {
		return err
	}
	b.arrived.Add(int64(n) + eagerCost)
	if posted || later == 0 {
		if err := l.ack(ticket, 0); err != nil {
			return err
		}
	}
	var t todo
	ep.giveCredit(&t) // kicked with the ack
	return nil
}

func (l *link) intoReceive(op *fabric.Op, n, data uint64, flags fabric.OpFlags) error {
	b := &l.ep.inbox
	b.fill(op)
	fit := min(n, op.Len())
	if err := l.receive(appendLocal(l.in.scratch(1+len(op.More)), op, fit), fit); err != nil {
		return err
	}
	if err := l.discard(n - fit); err != nil {
		return err
	}
	b.filled()
	l.ep.feed.Filled(op, n, data, flags)
	return nil
}

func (l *link) intoBuffer(n, data uint64, flags fabric.OpFlags, token uint64) error {
	ep := l.ep
	if !ep.feed.Hold(n) {
		if ep.feed.Held()+n+eagerCost > eagerRoom {
			return protocolErr("message of %s beyond its credit", ep.peer)
		}
		ep.end(fmt.Errorf("message of %s for an endpoint that closed: %w", ep.peer, fabric.ErrCanceled), true)
		return errEnded
	}
	buf := make([]byte, n)
	if n > 0 {
		if err := l.receive(append(l.in.scratch(1), sys.Iovec{Addr: sys.AddrOf(buf), Len: n}), n); err != nil {
			ep.feed.Unhold(n)
			return err
		}
	}
	ep.feed.Deliver(buf, data, flags, token)
	return nil
}

func (l *link) onOffer(h *header) error {
	b := &l.ep.inbox
	if b.busy() {
		return protocolErr("offer of %s behind an offer", l.ep.peer)
	}
	b.mu.Lock()
	b.offer = *h
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
func (l *link) onPull(h *header) error {
	ep := l.ep
	s := l.find(h.ticket, false)
	var t todo
	ep.mu.Lock()
	if s == nil || ep.offer != s || h.length > s.n {
		ep.mu.Unlock()
		return protocolErr("pull of %s for no offer of ours", ep.peer)
	}
	ep.offer = nil
	j := job{h: header{kind: kindBody, ticket: h.ticket, length: h.length, data: h.data}, slot: s}
	l.post(&j, h.length)
	t.kick(l)
	ep.resume(&t)
	ep.mu.Unlock()
	ep.run(&t)
	return nil
}

func (l *link) onBody(h *header) error {
	ep, b := l.ep, &l.ep.inbox
	b.mu.Lock()
	ok := b.pulling && h.data == b.handle && h.length == b.take
	op, offer := b.receive, b.offer
	b.mu.Unlock()
	if !ok {
		return protocolErr("body of %s that was not pulled", ep.peer)
	}
	n := h.length
	if err := l.receive(appendLocal(l.in.scratch(1+len(op.More)), &op, n), n); err != nil {
		return err
	}
	b.mu.Lock()
	b.pulling, b.receive = false, fabric.Op{}
	b.mu.Unlock()
	ep.feed.Filled(&op, offer.length, offer.data, remoteFlags(&offer))
	return l.ack(offer.ticket, 0)
}

func (l *link) onCredit(h *header) error {
	ep := l.ep
	var t todo
	ep.mu.Lock()
	if h.data < ep.consumed || h.data > ep.sent {
		ep.mu.Unlock()
		return protocolErr("credit of %s for %d bytes, sent are %d", ep.peer, h.data, ep.sent)
	}
	ep.consumed = h.data
	ep.resume(&t)
	ep.mu.Unlock()
	ep.run(&t)
	return nil
}
