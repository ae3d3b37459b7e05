// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// A Wire carries short frames without the sockets: messages, atomic ops, remote data, and their
// answers. The sockets still carry the DataPath's own frames and long frames, and they report the
// end of the peer.
//
//	side with a wire          the peer
//	         ── socket: turn ─────▶      all messages of the socket precede it
//	         ── wire: messages ───▶      accepted once the turn has arrived
//
// No other frames are ordered between the socket and the wire, so no other frames wait for the
// turn. The goodbye on socket 0 says whether the wire has one, too.
type Wire = socket.Wire

const (
	// wireIndex is the index of the wire's channel.
	wireIndex = frame.MaxLinks
	// wireLate is how long the wire's goodbye may arrive after the end of the sockets.
	wireLate = time.Second
)

// A channels has the channels of an endpoint: one for each socket, and one for the wire.
type channels struct {
	sockets []*channel              // constant once the connection is made
	wire    atomic.Pointer[channel] // set once the DataPath has added a wire
}

// all returns the wire, if there is one, and the sockets.
func (s *channels) all() []*channel {
	if w := s.wire.Load(); w != nil {
		return append([]*channel{w}, s.sockets...)
	}
	return s.sockets
}

func (s *channels) at(i int) *channel {
	if i == wireIndex {
		return s.wire.Load()
	}
	return s.sockets[i]
}

// short returns the channel for short frames that need no order.
func (s *channels) short() *channel {
	if w := s.wire.Load(); w != nil {
		return w
	}
	return s.sockets[0]
}

// lightest returns the socket with the fewest bytes queued.
func (s *channels) lightest() *channel {
	best := s.sockets[0]
	least := best.Queued()
	for _, c := range s.sockets[1:] {
		if n := c.Queued(); n < least {
			best, least = c, n
		}
	}
	return best
}

// forRead returns a socket that has credit for a reply to an op with n remote segments, or nil. It
// chooses the one with the fewest bytes requested. The caller holds outbound.mu.
func (s *channels) forRead(n int) *channel {
	var best *channel
	for _, c := range s.sockets {
		if c.credit.has(n) && (best == nil || c.credit.bytes < best.credit.bytes) {
			best = c
		}
	}
	return best
}

// AddWire gives the connection a wire, once; see Wire. The DataPath may call WireCame and WireRoom
// afterwards.
func (p Port) AddWire(w Wire) {
	ep := p.ep
	if !ep.shutdown.Enter() {
		return
	}
	defer ep.shutdown.Leave()
	c := newChannel(ep, wireIndex)
	c.Stream = socket.NewWire(c, &ep.env, w)
	var t todo
	ep.out.mu.Lock()
	if !ep.shutdown.isEnded() { // teardown runs after out.mu is released and waits for both goroutines
		ep.channels.wire.Store(c)
		c.start(c.readWire)
		ep.out.turnToWire(&t)
	}
	ep.out.mu.Unlock()
	ep.out.run(&t)
}

// WireRoom sends the bytes for which the wire had no room.
func (p Port) WireRoom() {
	if c := p.ep.channels.wire.Load(); c != nil {
		c.Stream.WireRoom()
	}
}

// WireCame reads the bytes that arrived on the wire, on the caller's goroutine as far as that does
// not block.
func (p Port) WireCame() {
	c := p.ep.channels.wire.Load()
	if c == nil || !p.ep.shutdown.Enter() {
		return
	}
	defer p.ep.shutdown.Leave()
	c.Stream.WireCame()
}

// readWire reads from the wire until the connection ends.
func (c *channel) readWire() {
	if err := c.ReadWire(); err != nil {
		c.ep.fail(err)
	}
}

// onTurn accepts messages on the wire from now on. It may arrive before this side has its end of
// the wire.
func (c *channel) onTurn() error {
	if c.ep.path == nil || c.index != 0 || c.ep.inbox.turned.Swap(true) {
		return frame.ProtocolErr("switch of %s to a ring that does not exist", c.ep.peer)
	}
	if w := c.ep.channels.wire.Load(); w != nil {
		w.Notify()
	}
	return nil
}

// inTurn returns an error if messages may not arrive on this channel now.
func (c *channel) inTurn() error {
	turned := c.ep.inbox.turned.Load()
	switch {
	case c.IsWire() && !turned:
		return socket.ErrBehind
	case !c.IsWire() && turned:
		return frame.ProtocolErr("message of %s on the socket after its switch to the ring", c.ep.peer)
	}
	return nil
}

// onGoodbye ends the connection once the goodbyes of all channels have arrived.
func (c *channel) onGoodbye(h *frame.Header) error {
	c.goodbye = true
	all := c.ep.goodbyes.came(c, h)
	if !c.IsWire() && c.index == 0 && !c.ep.inbox.turned.Swap(true) {
		if w := c.ep.channels.wire.Load(); w != nil { // no more messages will arrive on the socket
			w.Notify()
		}
	}
	if all {
		return fmt.Errorf("%s shut down: %w", c.ep.peer, fabric.ErrShutdown)
	}
	return nil
}

// A goodbyes counts the goodbyes of the peer.
type goodbyes struct {
	mu        sync.Mutex // protects what follows
	sockets   int
	wire      bool
	wantsWire bool // the wire will have a goodbye, too
}

// came counts the goodbye h on c and reports whether it was the last one.
func (g *goodbyes) came(c *channel, h *frame.Header) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.IsWire() {
		g.wire = true
	} else {
		g.sockets++
		g.wantsWire = g.wantsWire || c.index == 0 && h.Data != 0
	}
	return g.sockets == len(c.ep.channels.sockets) && (g.wire || !g.wantsWire)
}

// awaitsWire reports whether the goodbye on the wire has not arrived yet.
func (g *goodbyes) awaitsWire() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wantsWire && !g.wire
}

// awaitWire runs at the end of a socket on which the peer said goodbye. The remaining bytes of the
// wire have arrived or will arrive soon. If the goodbye on the wire does not arrive, the peer cut
// the connection after its goodbye on the socket. That is also an orderly end.
func (ep *Endpoint) awaitWire() {
	for ep.goodbyes.awaitsWire() {
		select {
		case <-ep.shutdown.over:
			return
		case <-time.After(wireLate):
		}
		w := ep.channels.wire.Load()
		if w == nil || !w.Waits() {
			ep.fail(fmt.Errorf("%s shut down: %w", ep.peer, fabric.ErrShutdown))
			return
		}
		w.Notify() // the program may have made room in the meantime
	}
}
