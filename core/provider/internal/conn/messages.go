// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// A messages handles the peer's messages that arrive on one channel. Its state describes the
// message that is arriving, and only the channel's reader uses it. State that the channels of an
// endpoint share is in its inbox.
type messages struct {
	c       *channel
	receive fabric.Op // the receive that it fills
	into    bool      // receive is set
	early   []byte    // destination of the bytes if there is no receive
	held    bool      // Feed.Hold reserved room for them
}

// abandon releases what a partly received message holds. The reader has stopped.
func (m *messages) abandon() {
	if m.held {
		m.c.ep.feed.Unhold(uint64(len(m.early)))
		m.held, m.early = false, nil
	}
}

// begin starts a message and sets where its bytes go.
func (m *messages) begin(in *socket.Incoming) error {
	h := &in.H
	ep := m.c.ep
	if ep.inbox.busy() {
		return frame.ProtocolErr("message of %s after an offer", ep.peer)
	}
	if m.receive, m.into = ep.feed.Take(); m.into {
		ep.inbox.fill(&m.receive)
		in.Want = min(h.Length, m.receive.Len())
		in.Drop = h.Length - in.Want
		in.Dst = socket.AppendLocal(in.Scratch(1+len(m.receive.More)), &m.receive, in.Want)
		return nil
	}
	if !ep.feed.Hold(h.Length) {
		if ep.feed.Held()+h.Length+eagerCost > eagerRoom {
			return frame.ProtocolErr("message of %s beyond its credit", ep.peer)
		}
		ep.shutdown.begin(fmt.Errorf("message of %s for an endpoint that closed: %w", ep.peer, fabric.ErrCanceled), true)
		return socket.ErrEnded
	}
	m.early, m.held, in.Own, in.Want = make([]byte, h.Length), true, true, h.Length
	if h.Length > 0 {
		in.Dst = append(in.Scratch(1), sys.Iovec{Addr: sys.AddrOf(m.early), Len: h.Length})
	}
	return nil
}

// end ends a message whose bytes have been received.
func (m *messages) end(in *socket.Incoming) error {
	h := &in.H
	ep := m.c.ep
	if in.Differs() && !in.Gone {
		return in.Altered()
	}
	if m.into {
		ep.inbox.filled()
		m.received(in, h)
	} else {
		var later uint64 // token, if placed answers the message later
		if h.Flags&frame.FlagPlaced != 0 {
			if later = ackToken | uint64(h.Ticket); m.c.IsWire() {
				later |= wireToken
			}
		}
		m.held = false
		ep.feed.Deliver(m.early, h.Data, remoteFlags(h), later)
		m.early = nil
	}
	ep.inbox.arrived.Add(int64(h.Length) + eagerCost)
	if m.into || h.Flags&frame.FlagPlaced == 0 {
		if err := m.c.Ack(h.Ticket, memoryErrno(in)); err != nil {
			return err
		}
	}
	var t todo
	ep.inbox.giveCredit(&t)
	ep.out.run(&t)
	return nil
}

// offer handles the offer of a large message.
func (m *messages) offer(h *frame.Header) error {
	b := &m.c.ep.inbox
	if b.busy() {
		return frame.ProtocolErr("offer of %s after an offer", m.c.ep.peer)
	}
	b.offerCame(m.c, h)
	return nil
}

// beginBody starts the body of an offered message and sets where its bytes go.
func (m *messages) beginBody(in *socket.Incoming) error {
	h := &in.H
	var ok bool
	if m.receive, ok = m.c.ep.inbox.body(h); !ok {
		return frame.ProtocolErr("body of %s that was not requested", m.c.ep.peer)
	}
	in.Want = h.Length
	in.Dst = socket.AppendLocal(in.Scratch(1+len(m.receive.More)), &m.receive, in.Want)
	return nil
}

// endBody ends an offered message whose bytes have been received.
func (m *messages) endBody(in *socket.Incoming) error {
	if in.Differs() && !in.Gone {
		return in.Altered()
	}
	offer := m.c.ep.inbox.bodyCame()
	m.received(in, &offer)
	return m.c.Ack(offer.Ticket, memoryErrno(in))
}

// received ends the receive of the message h. The message is in the receive's memory unless that
// was freed.
func (m *messages) received(in *socket.Incoming, h *frame.Header) {
	if in.Gone {
		m.c.ep.feed.Failed(&m.receive, socket.Unreadable, "the buffer of the receive is not mapped: was it freed before the message arrived?")
	} else {
		m.c.ep.feed.Filled(&m.receive, h.Length, h.Data, remoteFlags(h))
	}
	m.receive = fabric.Op{}
}

// remoteFlags returns the completion flags of a frame.
func remoteFlags(h *frame.Header) fabric.OpFlags {
	if h.Flags&frame.FlagRemoteData != 0 {
		return fabric.OpRemoteData
	}
	return 0
}

// memoryErrno returns ErrFault if the payload could not be written to its destination.
func memoryErrno(in *socket.Incoming) fabric.Errno {
	if in.Gone {
		return fabric.ErrFault
	}
	return 0
}
