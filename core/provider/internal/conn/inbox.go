// SPDX-License-Identifier: MIT

package conn

import (
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

const (
	// eagerCost is the fixed cost in bytes of a message, added to its length. It is at least
	// receive.Queue's own figure.
	eagerCost = 64
	// eagerRoom is how many bytes of messages a peer may send before this side consumes them.
	// Credit is returned when half of it is consumed. So half of the room is always enough for the
	// largest eager message.
	eagerRoom = 1<<20 + 256*eagerCost
	// ackToken is set in the tokens of messages that are acknowledged once they are placed. The
	// other bits are the ticket.
	ackToken = 1 << 32
	// wireToken is also set if the message arrived on the wire.
	wireToken = 1 << 33
)

// An inbox is the receiving side of messages, together with the receive queue.
//
// A sender sends a message of up to maxEager bytes with its frame, as far as it has credit. It
// offers a larger one, and this side pulls that when a receive is posted, straight into the
// receive's memory. The sender sends nothing after an offer, so there is at most one.
// sends nothing behind an offer, so there is one at most.
type inbox struct {
	ep    *Endpoint
	space chan struct{} // the queue of OpRemoteWrite completions has room again

	arrived atomic.Int64 // cost of eager messages
	offered atomic.Bool  // an offer is waiting for a receive
	turned  atomic.Bool  // the peer's messages now arrive on the wire

	mu       sync.Mutex // protects what follows
	credited int64      // cost already reported to the peer as consumed
	offer    frame.Header
	on       *channel // the channel on which the offer arrived
	pulling  bool     // a body is arriving, into receive
	handle   uint64
	take     uint64 // bytes of it that fit
	filling  bool   // the reader is filling receive
	receive  fabric.Op
}

func (b *inbox) init() { b.space = make(chan struct{}, 1) }

func (b *inbox) wake() {
	select {
	case b.space <- struct{}{}:
	default:
	}
}

// changed is receive.FeedConfig.Changed. It is called when a message that had no receive may have
// one now, or when a message was consumed.
func (b *inbox) changed() {
	ep := b.ep
	if !ep.shutdown.Enter() {
		return
	}
	defer ep.shutdown.Leave()
	var t todo
	b.pullOffer(&t)
	b.giveCredit(&t)
	ep.out.run(&t)
	if ep.messages != nil {
		ep.messages.Changed()
	}
}

// placed is receive.FeedConfig.Placed. It answers a message whose sender asked for that, or
// notifies the DataPath if the message is its own.
func (b *inbox) placed(token uint64) {
	ep := b.ep
	if !ep.shutdown.Enter() {
		return
	}
	defer ep.shutdown.Leave()
	if token&PathToken != 0 {
		ep.messages.Placed(token)
		return
	}
	c := ep.channels.sockets[0]
	if token&wireToken != 0 {
		c = ep.channels.wire.Load()
	}
	if err := c.Ack(uint32(token), 0); err != nil {
		ep.fail(err)
		return
	}
	c.Kick()
}

// giveCredit reports to the peer what was consumed, if that is enough to justify a frame.
func (b *inbox) giveCredit(t *todo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// arrived is increased after the message is queued, so this may be too low, but never too high.
	if now := b.arrived.Load() - int64(b.ep.feed.Held()); now-b.credited >= eagerRoom/2 {
		b.credited = now
		c := b.ep.channels.short()
		c.Post(&socket.Job{H: frame.Header{Kind: frame.KindCredit, Data: uint64(now)}}, 0)
		t.kick(c)
	}
}

// busy reports whether a large message is between its offer and its last byte.
func (b *inbox) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.offered.Load() || b.pulling
}

// offerCame keeps the offer h, which arrived on channel c, until a receive is posted for it.
func (b *inbox) offerCame(c *channel, h *frame.Header) {
	b.mu.Lock()
	b.offer, b.on = *h, c
	b.mu.Unlock()
	b.offered.Store(true)
	var t todo
	b.pullOffer(&t)
	b.ep.out.run(&t)
}

// pullOffer pulls the bytes of the waiting offer, if a receive is posted for it.
func (b *inbox) pullOffer(t *todo) {
	if !b.offered.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.offered.Load() {
		return
	}
	op, ok := b.ep.feed.Take()
	if !ok {
		return
	}
	b.offered.Store(false)
	b.handle++
	b.pulling, b.receive, b.take = true, op, min(op.Len(), b.offer.Length)
	c := b.on
	c.Post(&socket.Job{H: frame.Header{
		Kind: frame.KindPull, Ticket: b.offer.Ticket, Length: b.take, Data: b.handle,
	}}, 0)
	t.kick(c)
}

// body returns the receive for the body h, or false if it was not pulled.
func (b *inbox) body(h *frame.Header) (receive fabric.Op, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.receive, b.pulling && h.Data == b.handle && h.Length == b.take
}

// bodyCame ends the pull and returns the offer.
func (b *inbox) bodyCame() frame.Header {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pulling, b.receive = false, fabric.Op{}
	return b.offer
}

// fill marks op as being filled by the reader, until filled is called.
func (b *inbox) fill(op *fabric.Op) {
	b.mu.Lock()
	b.filling, b.receive = true, *op
	b.mu.Unlock()
}

func (b *inbox) filled() {
	b.mu.Lock()
	b.filling, b.receive = false, fabric.Op{}
	b.mu.Unlock()
}

// abandon returns the receive that was being filled or pulled when the connection ended.
func (b *inbox) abandon() (op fabric.Op, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	op, ok = b.receive, b.filling || b.pulling
	b.filling, b.pulling = false, false
	return op, ok
}
