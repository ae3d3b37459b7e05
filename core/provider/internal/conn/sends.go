// SPDX-License-Identifier: MIT

package conn

import (
	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/queue"
	"mori/core/provider/internal/socket"
)

// A sends is the sending side of messages. Only one large message is in progress at a time and no
// message overtakes it, so messages stay in order. Guarded by outbound.mu.
type sends struct {
	waiting  queue.FIFO[*pendingOp] // issued, waiting for credit or for an offer's body
	offer    *pendingOp             // offered; its body is not queued yet
	sent     uint64                 // cost of all eager messages sent
	consumed uint64                 // cost of eager messages that the peer has reported as consumed
	turned   bool                   // messages use the wire
}

// issueSend issues a message. It returns false if the message must wait for credit or behind an
// offer. The caller holds o.mu.
func (o *outbound) issueSend(s *pendingOp, t *todo) bool {
	q := &o.sends
	if q.offer != nil {
		return false
	}
	if s.n > frame.MaxEager {
		q.offer = s
		j := socket.Job{H: frame.Header{Kind: frame.KindOffer, Length: s.n}}
		o.post(o.messageChannel(), s, &j, 0, t)
		return true
	}
	cost := s.n + eagerCost
	if q.sent+cost-q.consumed > eagerRoom {
		return false
	}
	q.sent += cost
	j := socket.Job{H: frame.Header{Kind: frame.KindSend, Flags: o.ep.cfg.checksumFlag(), Length: s.n}}
	if s.op.Flags&fabric.OpDeliveryComplete != 0 {
		j.H.Flags |= frame.FlagPlaced
	}
	o.post(o.messageChannel(), s, &j, s.n, t)
	return true
}

// unsent subtracts the cost of an eager message that was not sent.
func (o *outbound) unsent(s *pendingOp) {
	o.mu.Lock()
	o.sends.sent -= s.n + eagerCost
	o.mu.Unlock()
}

// pulled sends the body of our offer s, which the peer pulls on channel c, and issues the messages
// that waited behind it.
func (o *outbound) pulled(c *channel, s *pendingOp, h *frame.Header) error {
	var t todo
	o.mu.Lock()
	if s == nil || o.sends.offer != s || h.Length > s.n {
		o.mu.Unlock()
		return frame.ProtocolErr("pull of %s for an unknown offer", o.ep.peer)
	}
	o.sends.offer = nil
	j := socket.Job{H: frame.Header{
		Kind: frame.KindBody, Flags: o.ep.cfg.checksumFlag(), Ticket: h.Ticket, Length: h.Length, Data: h.Data,
	}, ID: int(s.index), Op: &s.op}
	c.Post(&j, h.Length)
	t.kick(c)
	o.turnToWire(&t)
	o.resume(&t)
	o.mu.Unlock()
	o.run(&t)
	return nil
}

// credited handles a credit frame on channel c: the peer has consumed messages of this total cost.
func (o *outbound) credited(c *channel, cost uint64) error {
	var t todo
	q := &o.sends
	o.mu.Lock()
	// A credit frame on the socket may be older than one on the wire.
	late := o.ep.channels.wire.Load() != nil && !c.IsWire()
	if cost < q.consumed && !late || cost > q.sent {
		o.mu.Unlock()
		return frame.ProtocolErr("credit of %s for %d bytes, sent are %d", o.ep.peer, cost, q.sent)
	}
	q.consumed = max(q.consumed, cost)
	o.resume(&t)
	o.mu.Unlock()
	o.run(&t)
	return nil
}

// turnToWire makes messages use the wire from now on, if there is one. It waits if the body of a
// message must still be sent on the socket. The caller holds o.mu.
func (o *outbound) turnToWire(t *todo) {
	if o.sends.turned || o.sends.offer != nil || o.ep.channels.wire.Load() == nil {
		return
	}
	o.sends.turned = true
	first := o.ep.channels.sockets[0]
	first.Post(&socket.Job{H: frame.Header{Kind: frame.KindTurn}}, 0)
	t.kick(first)
}

// messageChannel returns the channel that messages are sent on. The caller holds o.mu.
func (o *outbound) messageChannel() *channel {
	if o.sends.turned {
		return o.ep.channels.wire.Load()
	}
	return o.ep.channels.sockets[0]
}
