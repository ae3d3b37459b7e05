// SPDX-License-Identifier: MIT

package socket

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/pages"
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

// ends has a socket and the two directions of its stream.
type ends struct {
	conn net.Conn // nil: the stream is no socket
	fd   int      // valid until conn.Close, which comes after every user of it has gone

	reading, sending window
	touching         sync.Mutex    // held in calls on the socket that touch memory of the program
	shut             chan struct{} // closed after the shutdown of the socket; made by shutdown
}

// ReadDone ends the goroutine of Stream.Read in the group that Abandon gets.
func (e *ends) ReadDone(readers *sync.WaitGroup) { e.reading.done(readers) }

// WriteDone ends the goroutine of Stream.Write in the group that Abandon gets.
func (e *ends) WriteDone(writers *sync.WaitGroup) { e.sending.done(writers) }

// shutdown ends the socket. It does not wait for that.
func (e *ends) shutdown() {
	e.shut = make(chan struct{})
	go func() {
		defer close(e.shut)
		if e.conn != nil {
			// An error means that the socket is not connected any more, which is what is wanted.
			_ = syscall.Shutdown(e.fd, syscall.SHUT_RDWR)
		}
	}()
}

// Abandon takes the goroutines of Stream.Read and Stream.Write out of their groups if they are
// blocked in a call on memory of the program, and reports whether one is. After Stream.Shutdown.
func (e *ends) Abandon(readers, writers *sync.WaitGroup) bool {
	if e.conn != nil {
		// It wakes every goroutine that waits for the socket, where shutdown is blocked.
		_ = e.conn.SetDeadline(time.Unix(1, 0))
	}
	reading, sending := e.reading.abandon(readers), e.sending.abandon(writers)
	return reading || sending
}

// close closes the socket after its shutdown, which an abandoned call may hold up.
func (e *ends) close() {
	if e.conn == nil {
		return
	}
	after := func() {
		<-e.shut
		_ = e.conn.Close() // nothing is left to fail
	}
	if e.reading.isAbandoned() || e.sending.isAbandoned() {
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
		if places++; places > inlineEntries || !pages.Resident(p.rest[i:i+1], &p.pages) {
			return false
		}
	}
	return true
}
