// SPDX-License-Identifier: MIT

package socket

import (
	"syscall"
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/sock"
)

// A Wire is a byte stream to the peer that is not a socket. A provider implements it, for example
// with queue pairs and buffers at both ends.
type Wire interface {
	// Send copies the first bytes of iov, as many as there is room for. It does not block. It
	// returns EAGAIN if there is no room; the provider calls Stream.WireRoom when there may be room
	// again. It returns EFAULT if the memory cannot be read.
	Send(iov []sys.Iovec) (int, error)

	// Recv fills iov with bytes that arrived. It returns EAGAIN if none did; the provider calls
	// Stream.WireCame when some have. It returns EFAULT if the memory cannot be written.
	Recv(iov []sys.Iovec) (int, error)
}

// NewWire makes a stream over a Wire. The stream is open immediately.
func NewWire(owner Owner, env *Env, w Wire) *Stream {
	s := newStream(owner, env)
	s.wire, s.news = w, make(chan struct{}, 1)
	return s
}

// IsWire reports whether s is a Wire and not a socket.
func (s *Stream) IsWire() bool { return s.wire != nil }

// Waits reports whether bytes that arrived on a Wire wait for the program.
func (s *Stream) Waits() bool { return s.waits.Load() }

// WireRoom sends the bytes for which the wire had no room.
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

// WireCame reads what arrived on the wire, on the caller's goroutine as far as that does not block.
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

// Notify wakes ReadWire.
func (s *Stream) Notify() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// turnWire reads all that arrived, and sends the answers. The caller holds the reader's mu.
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

// ReadWire reads from the wire when WireCame would have to block, until the connection ends. It
// returns the cause, or nil if this side ended the connection.
func (s *Stream) ReadWire() error {
	for {
		s.in.mu.Lock()
		err := s.turnWire()
		s.in.mu.Unlock()
		var room <-chan struct{}
		var late <-chan time.Time
		switch err {
		case ErrWait, ErrBehind: // wait for Notify
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

// send passes bytes to the socket or the wire. It does not block.
func (p *pump) send(iov []sys.Iovec) (int, error) {
	if p.s.wire != nil {
		return p.s.wire.Send(iov)
	}
	return sock.Sendv(p.s.fd, iov, syscall.MSG_DONTWAIT)
}

// What is known about the wire's room since Send returned EAGAIN.
const (
	roomUnknown uint32 = iota
	roomAwaited        // the pump has stopped
	roomCame           // room became free before the pump stopped
)

// stall leaves the rest to WireRoom. It returns false if room became free in the meantime.
func (p *pump) stall() bool {
	if p.s.room.CompareAndSwap(roomUnknown, roomAwaited) {
		return true
	}
	p.s.room.Store(roomUnknown)
	return false
}
