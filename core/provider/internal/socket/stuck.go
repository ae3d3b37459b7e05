// SPDX-License-Identifier: MIT

package socket

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mori/core/internal/sys"
)

// Pages of a program's memory may never arrive: those of a userfaultfd, or of a network file
// system. The system call that touches such a page blocks in the kernel. It may hold the lock of
// its socket, and then every other call on the socket blocks, too, even shutdown and close.
// Therefore:
//
//   - a submitter, which may hold the GIL, sends only payload that is in memory, and nothing while
//     the reader is in a call on memory of the program;
//   - the end of a connection waits a bounded time for its streams, and leaves behind those that
//     are in such a call (Abandon).

// inlineEntries is in how many places the memory may lie that a submitter sends itself.
const inlineEntries = 16

// A window is a direction of a stream in calls that may block.
type window struct{ state atomic.Int32 }

const (
	outside int32 = iota
	inside        // a system call
	abandoned
)

// enter reports false if the direction was abandoned.
func (w *window) enter() bool { return w.state.CompareAndSwap(outside, inside) }

// leave reports false if the direction was abandoned meanwhile: the caller touches nothing of the
// stream any more.
func (w *window) leave() bool { return w.state.CompareAndSwap(inside, outside) }

// abandon gives up a goroutine that is inside, and lets nobody wait for it in all.
func (w *window) abandon(all *sync.WaitGroup) bool {
	if !w.state.CompareAndSwap(inside, abandoned) {
		return false
	}
	all.Done()
	return true
}

// done ends the goroutine in all, unless it was abandoned.
func (w *window) done(all *sync.WaitGroup) {
	if !w.isAbandoned() {
		all.Done()
	}
}

func (w *window) isAbandoned() bool { return w.state.Load() == abandoned }

// ReadDone ends the goroutine of Read in the group that Abandon gets.
func (s *Stream) ReadDone(readers *sync.WaitGroup) { s.reading.done(readers) }

// WriteDone ends the goroutine of Write in the group that Abandon gets.
func (s *Stream) WriteDone(writers *sync.WaitGroup) { s.sending.done(writers) }

// Shutdown lets nobody start to send, and ends the socket for whoever does send or receive. It does
// not wait for that.
func (s *Stream) Shutdown() {
	s.stop()
	s.shut = make(chan struct{})
	go func() {
		defer close(s.shut)
		if s.wire == nil {
			// An error means that the socket is not connected any more, which is what is wanted.
			_ = syscall.Shutdown(s.fd, syscall.SHUT_RDWR)
		}
	}()
}

// Abandon takes the goroutines of Read and Write out of their groups if they are blocked in a call
// on memory of the program, and reports whether one is. After Shutdown.
func (s *Stream) Abandon(readers, writers *sync.WaitGroup) bool {
	if s.wire == nil {
		// It wakes whoever waits for the socket, where shutdown is blocked.
		_ = s.conn.SetDeadline(time.Unix(1, 0))
	}
	reading, sending := s.reading.abandon(readers), s.sending.abandon(writers)
	return reading || sending
}

// closeSocket closes the socket after its shutdown, which an abandoned call may hold up.
func (s *Stream) closeSocket() {
	if s.wire != nil {
		return
	}
	after := func() {
		<-s.shut
		_ = s.conn.Close() // nothing is left to fail
	}
	if s.reading.isAbandoned() || s.sending.isAbandoned() {
		go after()
	} else {
		after()
	}
}

// mayInline reports whether a submitter may send the rest of the batch. Where locked is true, the
// reader keeps away from memory of the program until sendRest.
func (p *pump) mayInline(inline bool) (may, locked bool) {
	if !inline || p.s.wire != nil || p.s.in.lent.Load() {
		return true, false
	}
	locked = p.resident() && p.s.touching.TryLock()
	return locked, locked
}

// sendRest returns ErrEnded if the writer was abandoned.
func (p *pump) sendRest(locked bool) (n int, err error) {
	if locked {
		defer p.s.touching.Unlock()
	}
	if !p.s.sending.enter() {
		return 0, ErrEnded
	}
	n, err = p.send(p.rest)
	if !p.s.sending.leave() {
		return 0, ErrEnded
	}
	return n, err
}

// resident reports whether the payload of the rest is in memory. The arena is.
func (p *pump) resident() bool {
	from, to := uint64(0), uint64(0)
	if cap(p.arena) > 0 {
		from = sys.AddrOf(p.arena[:1])
		to = from + uint64(cap(p.arena))
	}
	places := 0
	for i := range p.rest {
		if v := &p.rest[i]; v.Addr >= from && v.Addr < to {
			continue
		}
		if places++; places > inlineEntries || !sys.Resident(p.rest[i:i+1], &p.pages) {
			return false
		}
	}
	return true
}
