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
	// eagerCost is what a message counts beside its bytes; it is receive.Queue's own figure or
	// more.
	eagerCost = 64
	// eagerRoom is how much a peer may send before it is consumed. At half of it credit is given
	// back, so that half a room is always there for the largest eager message.
	eagerRoom = 1<<20 + 256*eagerCost
	// ackToken is set in the tokens of messages whose answer waits until they are placed; the rest
	// is the ticket.
	ackToken = 1 << 32
	// wireToken is set, too, where the message came on the wire.
	wireToken = 1 << 33
)

// An inbox is the receiving side of messages, beside the RecvQueue.
//
// A message up to maxEager goes out with its bytes, as far as credit reaches. A larger one is
// offered, and pulled when its receive is posted, straight into that receive's memory. The sender
// sends nothing behind an offer, so there is one at most.
type inbox struct {
	ep    *Endpoint
	space chan struct{} // the queue of OpRemoteWrite completions has room again

	arrived atomic.Int64 // cost of eager messages
	offered atomic.Bool  // an offer waits for its receive
	turned  atomic.Bool  // the peer's messages come on the wire

	mu       sync.Mutex // protects what follows
	credited int64      // what the peer knows to be consumed
	offer    frame.Header
	on       *channel // that the offer came on
	pulling  bool     // a body is on its way, into receive
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

// changed is receive.FeedConfig.Changed: a message that had no receive may have one now, or was
// consumed.
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

// placed is receive.FeedConfig.Placed: it answers a message that asked for that, or notifies the
// DataPath of one of its own.
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

// giveCredit reports to the peer what was consumed, if that is worth a frame.
func (b *inbox) giveCredit(t *todo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// arrived is added to after the queue holds the message, so this errs on the low side.
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

// offerCame keeps the offer h, which came on channel c, until a receive is posted for it.
func (b *inbox) offerCame(c *channel, h *frame.Header) {
	b.mu.Lock()
	b.offer, b.on = *h, c
	b.mu.Unlock()
	b.offered.Store(true)
	var t todo
	b.pullOffer(&t)
	b.ep.out.run(&t)
}

// pullOffer asks for the bytes of the offer that waits, if a receive is posted for it.
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

// bodyCame ends the pull, and returns the offer.
func (b *inbox) bodyCame() frame.Header {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pulling, b.receive = false, fabric.Op{}
	return b.offer
}

// fill marks op as being filled by the reader, until filled.
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
