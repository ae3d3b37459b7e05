// SPDX-License-Identifier: MIT

package stream

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/staging"
)

// A Wire is a stream of bytes to the peer that is not a socket: queue pairs carry it, with buffers of the Direct's at both ends. Once a connection has
// one, what is short goes there: messages, atomic ops, remote data, and their answers. It is a link like the sockets, with the same frames; the
// sockets stay, for the Direct's own frames, for what is long, and to tell of the peer's end.
//
//	who has a wire            the peer
//	        ── socket: kindTurn ──▶      all messages of the socket are before it
//	        ── wire: messages ──▶        are taken once the turn has come
//
// Nothing else has an order between the socket and the wire, so nothing else waits for the turn. The goodbye of link 0 says whether one comes on
// the wire, too.
type Wire interface {
	// Send copies the first bytes of iov, as many as there is room for; EAGAIN if for none: then Endpoint.WireRoom is called when there may be. It
	// does not wait. EFAULT: they cannot be read.
	Send(iov []sys.Iovec) (int, error)

	// Recv fills iov with bytes that came; EAGAIN if none did: then Endpoint.WireCame is called when there are some. EFAULT: it cannot be written.
	Recv(iov []sys.Iovec) (int, error)
}

const (
	// wireIndex is the wire's among the links.
	wireIndex = frame.MaxLinks
	// wireLate is how long the wire's goodbye may come after the end of the sockets.
	wireLate = time.Second
)

// errBehind: a message on the wire came before the last one of the socket.
var errBehind = errors.New("messages of the socket come first")

// AddWire gives the connection a wire, once; see Wire.
func (ep *Endpoint) AddWire(w Wire) {
	if !ep.fate.enter() {
		return
	}
	defer ep.fate.leave()
	l := &link{ep: ep, index: wireIndex, fd: -1, wire: w, wake: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	l.initReader()
	l.out.init()
	var t todo
	ep.mu.Lock()
	if !ep.fate.isEnded() { // undo comes after ep.mu, and waits for both
		ep.wire.Store(l)
		ep.fate.readers.Add(1)
		ep.fate.writers.Add(1)
		go l.wireLoop()
		go l.writer()
		ep.turnToWire(&t)
	}
	ep.mu.Unlock()
	ep.run(&t)
}

// turnToWire has messages go by the wire from now on, if there is one, unless the body of one is still to go by the socket. With ep.mu held.
func (ep *Endpoint) turnToWire(t *todo) {
	if ep.turned || ep.offer != nil || ep.wire.Load() == nil {
		return
	}
	ep.turned = true
	ep.links[0].post(&job{h: frame.Header{Kind: frame.KindTurn}}, 0)
	t.kick(ep.links[0])
}

// messageLink is where messages go. With ep.mu held.
func (ep *Endpoint) messageLink() *link {
	if ep.turned {
		return ep.wire.Load()
	}
	return ep.links[0]
}

// shortLink is where what is short and has no order goes.
func (ep *Endpoint) shortLink() *link {
	if l := ep.wire.Load(); l != nil {
		return l
	}
	return ep.links[0]
}

// allLinks are the wire, if there is one, and the sockets.
func (ep *Endpoint) allLinks() []*link {
	if l := ep.wire.Load(); l != nil {
		return append([]*link{l}, ep.links...)
	}
	return ep.links
}

func (ep *Endpoint) linkAt(i int) *link {
	if i == wireIndex {
		return ep.wire.Load()
	}
	return ep.links[i]
}

// WireRoom goes on with what the wire had no room for.
func (ep *Endpoint) WireRoom() {
	l := ep.wire.Load()
	for l != nil {
		switch was := l.room.Load(); {
		case was == roomAwaited && l.room.CompareAndSwap(was, roomUnknown):
			l.pump(true)
			return
		case was != roomAwaited && l.room.CompareAndSwap(was, roomCame):
			return
		}
	}
}

// WireCame takes what came on the wire, on the caller's goroutine as far as nothing has to be waited for.
func (ep *Endpoint) WireCame() {
	l := ep.wire.Load()
	if l == nil || !ep.fate.enter() {
		return
	}
	defer ep.fate.leave()
	if !l.in.mu.TryLock() {
		l.tell()
		return
	}
	err := l.turnWire()
	l.in.mu.Unlock()
	if err != errWait {
		l.tell()
	}
}

// tell makes wireLoop look.
func (l *link) tell() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// turnWire turns the reader to the last byte, and answers. With its mu held.
func (l *link) turnWire() error {
	in := &l.in
	for {
		in.drained, in.got = false, false
		err := l.turn()
		l.kick()
		if err != errWait || !in.got {
			return err
		}
	}
}

// wireLoop turns the reader where it has to wait for something else than the wire, and ends the connection where it has failed.
func (l *link) wireLoop() {
	ep := l.ep
	defer ep.fate.readers.Done()
	for {
		l.in.mu.Lock()
		err := l.turnWire()
		l.in.mu.Unlock()
		var room <-chan struct{}
		var late <-chan time.Time
		switch err {
		case errWait, errBehind: // the turn tells
		case errNoRoom:
			room = ep.inbox.space
		case errNoBuffer:
			late = time.After(staging.LastPause)
		default:
			ep.Fail(err)
			return
		}
		l.waits.Store(room != nil || late != nil)
		select {
		case <-l.news:
		case <-room:
		case <-late:
		case <-ep.fate.over:
			return
		}
	}
}

// onTurn lets the messages of the wire in. It may come before this side has its end.
func (l *link) onTurn() error {
	if l.ep.direct == nil || l.index != 0 || l.ep.inbox.turned.Swap(true) {
		return frame.ProtocolErr("turn of %s to a wire that there is not", l.ep.peer)
	}
	if w := l.ep.wire.Load(); w != nil {
		w.tell()
	}
	return nil
}

// inTurn tells whether messages may come on this link now.
func (l *link) inTurn() error {
	turned := l.ep.inbox.turned.Load()
	switch {
	case l.wire != nil && !turned:
		return errBehind
	case l.wire == nil && turned:
		return frame.ProtocolErr("message of %s on a socket behind its turn to the wire", l.ep.peer)
	}
	return nil
}

// onGoodbye ends the connection with the goodbye of the last link.
func (l *link) onGoodbye(h *frame.Header) error {
	ep := l.ep
	l.in.goodbye = true
	ep.mu.Lock()
	f := &ep.fate
	switch {
	case l.wire != nil:
		f.byeWire = true
	case l.index == 0 && h.Data != 0:
		f.wantWire = true
		fallthrough
	default:
		f.byes++
	}
	over := f.byes == len(ep.links) && (f.byeWire || !f.wantWire)
	ep.mu.Unlock()
	if l.wire == nil && l.index == 0 && !ep.inbox.turned.Swap(true) {
		if w := ep.wire.Load(); w != nil { // no message of the socket comes any more
			w.tell()
		}
	}
	if over {
		return fmt.Errorf("%s shut down: %w", ep.peer, fabric.ErrShutdown)
	}
	return nil
}

// awaitWire is the end of a socket on which the peer has said goodbye: what is left on the wire came, or does soon. What does not come any more was
// answered to nobody, so the peer has ended it with the connection: that is no less in good order.
func (ep *Endpoint) awaitWire() {
	for {
		ep.mu.Lock()
		left := ep.fate.wantWire && !ep.fate.byeWire
		ep.mu.Unlock()
		if !left {
			return
		}
		select {
		case <-ep.fate.over:
			return
		case <-time.After(wireLate):
		}
		w := ep.wire.Load()
		if w == nil || !w.waits.Load() {
			ep.Fail(fmt.Errorf("%s shut down: %w", ep.peer, fabric.ErrShutdown))
			return
		}
		w.tell() // somebody else may have gone on since
	}
}

// send hands bytes to the socket or the wire, and does not wait.
func (l *link) send(iov []sys.Iovec) (int, error) {
	if l.wire != nil {
		return l.wire.Send(iov)
	}
	return sys.Sendv(l.fd, iov, syscall.MSG_DONTWAIT)
}

// What is known of the wire's room since it had none.
const (
	roomUnknown uint32 = iota
	roomAwaited        // the pump stands still
	roomCame           // there was some, before the pump stood still
)

// stall leaves the rest to WireRoom, or reports that there has been room since.
func (l *link) stall() bool {
	if l.room.CompareAndSwap(roomUnknown, roomAwaited) {
		return true
	}
	l.room.Store(roomUnknown)
	return false
}
