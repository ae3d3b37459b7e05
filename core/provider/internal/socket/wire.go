// SPDX-License-Identifier: MIT

package socket

import (
	"syscall"
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/sock"
)

// A Wire is a stream of bytes to the peer that is no socket: a provider carries it, for example by
// queue pairs with buffers at both ends.
type Wire interface {
	// Send copies the first bytes of iov, as many as there is room for. EAGAIN says that there is
	// no room: then Stream.WireRoom is called when there may be. It does not wait. EFAULT: they
	// cannot be read.
	Send(iov []sys.Iovec) (int, error)

	// Recv fills iov with bytes that came. EAGAIN says that none did: then Stream.WireCame is
	// called when there are some. EFAULT: it cannot be written.
	Recv(iov []sys.Iovec) (int, error)
}

// NewWire makes a stream over a Wire, which is open at once.
func NewWire(owner Owner, env *Env, w Wire) *Stream {
	s := newStream(owner, env)
	s.wire, s.news = w, make(chan struct{}, 1)
	return s
}

// IsWire reports whether s is no socket.
func (s *Stream) IsWire() bool { return s.wire != nil }

// Waits reports whether what came on a Wire waits for the program.
func (s *Stream) Waits() bool { return s.waits.Load() }

// WireRoom goes on with what the wire had no room for.
func (s *Stream) WireRoom() {
	for {
		switch was := s.room.Load(); {
		case was == roomAwaited && s.room.CompareAndSwap(was, roomUnknown):
			s.out.pump(true)
			return
		case was != roomAwaited && s.room.CompareAndSwap(was, roomCame):
			return
		}
	}
}

// WireCame takes what came on the wire, on the caller's goroutine as far as it need not wait.
func (s *Stream) WireCame() {
	if !s.in.mu.TryLock() {
		s.Notify()
		return
	}
	err := s.turnWire()
	s.in.mu.Unlock()
	if err != ErrWait {
		s.Notify()
	}
}

// Notify makes ReadWire look.
func (s *Stream) Notify() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// turnWire takes all that came, and answers. With the reader's mu held.
func (s *Stream) turnWire() error {
	for {
		s.in.drained, s.in.got = false, false
		err := s.in.turn()
		s.Kick()
		if err != ErrWait || !s.in.got {
			return err
		}
	}
}

// ReadWire takes what came on the wire where WireCame would have to wait, until the connection
// ends. It returns why, or nil if the connection ended on this side.
func (s *Stream) ReadWire() error {
	for {
		s.in.mu.Lock()
		err := s.turnWire()
		s.in.mu.Unlock()
		var room <-chan struct{}
		var late <-chan time.Time
		switch err {
		case ErrWait, ErrBehind: // Notify follows
		case ErrNoRoom:
			room = s.env.Space
		case ErrNoBuffer:
			late = time.After(bufferPause)
		default:
			return err
		}
		s.waits.Store(room != nil || late != nil)
		select {
		case <-s.news:
		case <-room:
		case <-late:
		case <-s.env.Over:
			return nil
		}
	}
}

// send hands bytes to the socket or the wire, and does not wait.
func (p *pump) send(iov []sys.Iovec) (int, error) {
	if p.s.wire != nil {
		return p.s.wire.Send(iov)
	}
	return sock.Sendv(p.s.fd, iov, syscall.MSG_DONTWAIT)
}

// What is known of the wire's room since it had none.
const (
	roomUnknown uint32 = iota
	roomAwaited        // the pump stands still
	roomCame           // there was some, before the pump stood still
)

// stall leaves the rest to WireRoom, or reports that there has been room since.
func (p *pump) stall() bool {
	if p.s.room.CompareAndSwap(roomUnknown, roomAwaited) {
		return true
	}
	p.s.room.Store(roomUnknown)
	return false
}
