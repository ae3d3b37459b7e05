// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// remoteFlags are the completion flags of a frame.
func remoteFlags(h *frame.Header) fabric.OpFlags {
	if h.Flags&frame.FlagRemoteData != 0 {
		return fabric.OpRemoteData
	}
	return 0
}

func (c *channel) beginSend(in *socket.Incoming) error {
	h := &in.H
	ep := c.ep
	if ep.inbox.busy() {
		return frame.ProtocolErr("message of %s behind an offer", ep.peer)
	}
	if c.rx.receive, c.rx.into = ep.feed.Take(); c.rx.into {
		ep.inbox.fill(&c.rx.receive)
		in.Want = min(h.Length, c.rx.receive.Len())
		in.Drop = h.Length - in.Want
		in.Dst = socket.AppendLocal(in.Scratch(1+len(c.rx.receive.More)), &c.rx.receive, in.Want)
		return nil
	}
	if !ep.feed.Hold(h.Length) {
		if ep.feed.Held()+h.Length+eagerCost > eagerRoom {
			return frame.ProtocolErr("message of %s beyond its credit", ep.peer)
		}
		ep.end(fmt.Errorf("message of %s for an endpoint that closed: %w", ep.peer, fabric.ErrCanceled), true)
		return socket.ErrEnded
	}
	c.rx.early, c.rx.held, in.Own, in.Want = make([]byte, h.Length), true, true, h.Length
	if h.Length > 0 {
		in.Dst = append(in.Scratch(1), sys.Iovec{Addr: sys.AddrOf(c.rx.early), Len: h.Length})
	}
	return nil
}

func (c *channel) endSend(in *socket.Incoming) error {
	h := &in.H
	ep := c.ep
	if in.Differs() && !in.Gone {
		return in.Altered()
	}
	if c.rx.into {
		ep.inbox.filled()
		c.received(in, h)
	} else {
		var later uint64 // token of an answer that placed gives
		if h.Flags&frame.FlagPlaced != 0 {
			if later = ackToken | uint64(h.Ticket); c.IsWire() {
				later |= wireToken
			}
		}
		c.rx.held = false
		ep.feed.Deliver(c.rx.early, h.Data, remoteFlags(h), later)
		c.rx.early = nil
	}
	ep.inbox.arrived.Add(int64(h.Length) + eagerCost)
	if c.rx.into || h.Flags&frame.FlagPlaced == 0 {
		if err := c.Ack(h.Ticket, memoryErrno(in)); err != nil {
			return err
		}
	}
	var t todo
	ep.giveCredit(&t)
	ep.run(&t)
	return nil
}

func (c *channel) onOffer(h *frame.Header) error {
	b := &c.ep.inbox
	if b.busy() {
		return frame.ProtocolErr("offer of %s behind an offer", c.ep.peer)
	}
	b.mu.Lock()
	b.offer, b.on = *h, c
	b.mu.Unlock()
	b.offered.Store(true)
	var t todo
	c.ep.pullOffer(&t)
	c.ep.run(&t)
	return nil
}

// busy reports whether a large message is between its offer and its last byte.
func (b *inbox) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.offered.Load() || b.pulling
}

// onPull sends the body of our offer, and lets go what waited behind it.
func (c *channel) onPull(h *frame.Header) error {
	ep := c.ep
	s := c.find(h.Ticket, false)
	var t todo
	ep.mu.Lock()
	if s == nil || ep.offer != s || h.Length > s.n {
		ep.mu.Unlock()
		return frame.ProtocolErr("pull of %s for no offer of ours", ep.peer)
	}
	ep.offer = nil
	j := socket.Job{H: frame.Header{Kind: frame.KindBody, Flags: ep.checksumFlag(), Ticket: h.Ticket, Length: h.Length, Data: h.Data}, ID: int(s.index), Op: &s.op}
	c.Post(&j, h.Length)
	t.kick(c)
	ep.turnToWire(&t)
	ep.resume(&t)
	ep.mu.Unlock()
	ep.run(&t)
	return nil
}

func (c *channel) beginBody(in *socket.Incoming) error {
	h := &in.H
	b := &c.ep.inbox
	b.mu.Lock()
	ok := b.pulling && h.Data == b.handle && h.Length == b.take
	c.rx.receive = b.receive
	b.mu.Unlock()
	if !ok {
		return frame.ProtocolErr("body of %s that was not pulled", c.ep.peer)
	}
	in.Want = h.Length
	in.Dst = socket.AppendLocal(in.Scratch(1+len(c.rx.receive.More)), &c.rx.receive, in.Want)
	return nil
}

func (c *channel) endBody(in *socket.Incoming) error {
	b := &c.ep.inbox
	if in.Differs() && !in.Gone {
		return in.Altered()
	}
	b.mu.Lock()
	offer := b.offer
	b.pulling, b.receive = false, fabric.Op{}
	b.mu.Unlock()
	c.received(in, &offer)
	return c.Ack(offer.Ticket, memoryErrno(in))
}

// received ends the receive of the message h, which is in its memory unless that is gone.
func (c *channel) received(in *socket.Incoming, h *frame.Header) {
	if in.Gone {
		c.ep.feed.Failed(&c.rx.receive, socket.Unreadable, "the buffer of the receive is not mapped: was it freed before the message came?")
	} else {
		c.ep.feed.Filled(&c.rx.receive, h.Length, h.Data, remoteFlags(h))
	}
	c.rx.receive = fabric.Op{}
}

// memoryErrno is ErrFault if the payload had nowhere to go.
func memoryErrno(in *socket.Incoming) fabric.Errno {
	if in.Gone {
		return fabric.ErrFault
	}
	return 0
}

func (c *channel) onCredit(h *frame.Header) error {
	ep := c.ep
	var t todo
	ep.mu.Lock()
	late := ep.wire.Load() != nil && !c.IsWire() // of before the turn, perhaps behind what came on the wire
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
