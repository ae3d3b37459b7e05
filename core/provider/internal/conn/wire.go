// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// A Wire carries short frames beside the sockets: messages, atomic ops, remote data, and their
// answers. The sockets stay for the DataPath's own frames, for what is long, and to report the
// peer's end.
//
//	side with a wire          the peer
//	        ── socket: turn ─────▶      all messages of the socket are before it
//	        ── wire: messages ───▶      are taken once the turn has come
//
// Nothing else is ordered between the socket and the wire, so nothing else waits for the turn. The
// goodbye of socket 0 says whether one comes on the wire, too.
type Wire = socket.Wire

const (
	// wireIndex is the wire's among the channels.
	wireIndex = frame.MaxLinks
	// wireLate is how long the wire's goodbye may come after the end of the sockets.
	wireLate = time.Second
)

// AddWire gives the connection a wire, once; see Wire.
func (ep *Endpoint) AddWire(w Wire) {
	if !ep.shutdown.Enter() {
		return
	}
	defer ep.shutdown.Leave()
	c := newChannel(ep, wireIndex)
	c.Stream = socket.NewWire(c, &ep.env, w)
	var t todo
	ep.mu.Lock()
	if !ep.shutdown.isEnded() { // teardown comes after ep.mu, and waits for both
		ep.wire.Store(c)
		c.start(c.readWire)
		ep.turnToWire(&t)
	}
	ep.mu.Unlock()
	ep.run(&t)
}

// readWire takes what comes on the wire until the connection ends.
func (c *channel) readWire() {
	if err := c.ReadWire(); err != nil {
		c.ep.Fail(err)
	}
}

// WireRoom goes on with what the wire had no room for.
func (ep *Endpoint) WireRoom() {
	if c := ep.wire.Load(); c != nil {
		c.Stream.WireRoom()
	}
}

// WireCame takes what came on the wire, on the caller's goroutine as far as it need not wait.
func (ep *Endpoint) WireCame() {
	c := ep.wire.Load()
	if c == nil || !ep.shutdown.Enter() {
		return
	}
	defer ep.shutdown.Leave()
	c.Stream.WireCame()
}

// turnToWire has messages go by the wire from now on, if there is one, unless the body of one is
// still to go by the socket. With ep.mu held.
func (ep *Endpoint) turnToWire(t *todo) {
	if ep.turned || ep.offer != nil || ep.wire.Load() == nil {
		return
	}
	ep.turned = true
	ep.channels[0].Post(&socket.Job{H: frame.Header{Kind: frame.KindTurn}}, 0)
	t.kick(ep.channels[0])
}

// messageChannel is where messages go. With ep.mu held.
func (ep *Endpoint) messageChannel() *channel {
	if ep.turned {
		return ep.wire.Load()
	}
	return ep.channels[0]
}

// shortChannel is where what is short and has no order goes.
func (ep *Endpoint) shortChannel() *channel {
	if l := ep.wire.Load(); l != nil {
		return l
	}
	return ep.channels[0]
}

// allChannels are the wire, if there is one, and the sockets.
func (ep *Endpoint) allChannels() []*channel {
	if l := ep.wire.Load(); l != nil {
		return append([]*channel{l}, ep.channels...)
	}
	return ep.channels
}

func (ep *Endpoint) channelAt(i int) *channel {
	if i == wireIndex {
		return ep.wire.Load()
	}
	return ep.channels[i]
}

// onTurn lets the messages of the wire in. It may come before this side has its end.
func (c *channel) onTurn() error {
	if c.ep.path == nil || c.index != 0 || c.ep.inbox.turned.Swap(true) {
		return frame.ProtocolErr("turn of %s to a wire that there is not", c.ep.peer)
	}
	if w := c.ep.wire.Load(); w != nil {
		w.Notify()
	}
	return nil
}

// inTurn returns an error unless messages may come on this channel now.
func (c *channel) inTurn() error {
	turned := c.ep.inbox.turned.Load()
	switch {
	case c.IsWire() && !turned:
		return socket.ErrBehind
	case !c.IsWire() && turned:
		return frame.ProtocolErr("message of %s on a socket behind its turn to the wire", c.ep.peer)
	}
	return nil
}

// onGoodbye ends the connection with the goodbye of the last channel.
func (c *channel) onGoodbye(h *frame.Header) error {
	ep := c.ep
	c.goodbye = true
	ep.mu.Lock()
	f := &ep.shutdown
	switch {
	case c.IsWire():
		f.wireGoodbye = true
	case c.index == 0 && h.Data != 0:
		f.wantsWireGoodbye = true
		fallthrough
	default:
		f.goodbyes++
	}
	over := f.goodbyes == len(ep.channels) && (f.wireGoodbye || !f.wantsWireGoodbye)
	ep.mu.Unlock()
	if !c.IsWire() && c.index == 0 && !ep.inbox.turned.Swap(true) {
		if w := ep.wire.Load(); w != nil { // no message of the socket comes any more
			w.Notify()
		}
	}
	if over {
		return fmt.Errorf("%s shut down: %w", ep.peer, fabric.ErrShutdown)
	}
	return nil
}

// awaitWire is the end of a socket on which the peer has said goodbye: what is left on the wire
// came, or does soon. What does not come any more was answered to nobody, so the peer has ended it
// with the connection: that is no less in good order.
func (ep *Endpoint) awaitWire() {
	for {
		ep.mu.Lock()
		left := ep.shutdown.wantsWireGoodbye && !ep.shutdown.wireGoodbye
		ep.mu.Unlock()
		if !left {
			return
		}
		select {
		case <-ep.shutdown.over:
			return
		case <-time.After(wireLate):
		}
		w := ep.wire.Load()
		if w == nil || !w.Waits() {
			ep.Fail(fmt.Errorf("%s shut down: %w", ep.peer, fabric.ErrShutdown))
			return
		}
		w.Notify() // somebody else may have gone on since
	}
}
