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

// A channels has the channels of an endpoint: one for each socket, and that of the wire.
type channels struct {
	sockets []*channel              // constant once the connection is made
	wire    atomic.Pointer[channel] // once the DataPath has one
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

// short is where short frames without an order go.
func (s *channels) short() *channel {
	if w := s.wire.Load(); w != nil {
		return w
	}
	return s.sockets[0]
}

// lightest is the socket with the fewest bytes queued.
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

// forRead is the socket with the fewest bytes asked for that has credit for a reply to an op with n
// remote segments, or nil. With outbound.mu held.
func (s *channels) forRead(n int) *channel {
	var best *channel
	for _, c := range s.sockets {
		if c.credit.has(n) && (best == nil || c.credit.bytes < best.credit.bytes) {
			best = c
		}
	}
	return best
}

// AddWire gives the connection a wire, once; see Wire. WireCame and WireRoom may then be called.
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
	if !ep.shutdown.isEnded() { // teardown comes after out.mu, and waits for both
		ep.channels.wire.Store(c)
		c.start(c.readWire)
		ep.out.turnToWire(&t)
	}
	ep.out.mu.Unlock()
	ep.out.run(&t)
}

// WireRoom sends what the wire had no room for.
func (p Port) WireRoom() {
	if c := p.ep.channels.wire.Load(); c != nil {
		c.Stream.WireRoom()
	}
}

// WireCame takes what came on the wire, on the caller's goroutine as far as it need not wait.
func (p Port) WireCame() {
	c := p.ep.channels.wire.Load()
	if c == nil || !p.ep.shutdown.Enter() {
		return
	}
	defer p.ep.shutdown.Leave()
	c.Stream.WireCame()
}

// readWire takes what comes on the wire until the connection ends.
func (c *channel) readWire() {
	if err := c.ReadWire(); err != nil {
		c.ep.fail(err)
	}
}

// onTurn lets the messages of the wire in. It may come before this side has its end.
func (c *channel) onTurn() error {
	if c.ep.path == nil || c.index != 0 || c.ep.inbox.turned.Swap(true) {
		return frame.ProtocolErr("switch of %s to a ring that does not exist", c.ep.peer)
	}
	if w := c.ep.channels.wire.Load(); w != nil {
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
		return frame.ProtocolErr("message of %s on the socket after its switch to the ring", c.ep.peer)
	}
	return nil
}

// onGoodbye ends the connection with the goodbye of the last channel.
func (c *channel) onGoodbye(h *frame.Header) error {
	c.goodbye = true
	all := c.ep.goodbyes.came(c, h)
	if !c.IsWire() && c.index == 0 && !c.ep.inbox.turned.Swap(true) {
		if w := c.ep.channels.wire.Load(); w != nil { // no message of the socket comes any more
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
	wantsWire bool // one comes on the wire
}

// came counts the goodbye h on c, and reports whether it was the last one.
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

// awaitsWire reports whether the goodbye on the wire is still to come.
func (g *goodbyes) awaitsWire() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wantsWire && !g.wire
}

// awaitWire runs at the end of a socket on which the peer said goodbye. What is left on the wire
// has come, or comes soon. If the goodbye on the wire stays away, the peer has cut the connection
// after its goodbye on the socket, which is an orderly end, too.
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
		w.Notify() // the program may have made room since
	}
}
