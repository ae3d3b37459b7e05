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

// A page fault on a program's memory may never be served, for example with userfaultfd or a network
// file system. The system call that touches such a page blocks in the kernel. It may hold the lock
// of its socket. Then every other call on the socket blocks, too, even shutdown and close.
// Therefore:
//
//   - a submitter, which may hold the GIL, sends only payload that is in memory, and sends nothing
//     while the reader is in a system call on memory of the program;
//   - the end of a connection waits a bounded time for its streams, and abandons those that are
//     still in such a call (Abandon).

// inlineEntries bounds the number of memory ranges in what a submitter sends itself.
const inlineEntries = 16

// A window tracks one direction of a stream while it is in system calls that may block.
type window struct{ state atomic.Int32 }

const (
	outside int32 = iota
	inside        // in a system call
	abandoned
)

// enter returns false if the direction was abandoned.
func (w *window) enter() bool { return w.state.CompareAndSwap(outside, inside) }

// leave returns false if the direction was abandoned in the meantime. The caller must not access
// the stream any more.
func (w *window) leave() bool { return w.state.CompareAndSwap(inside, outside) }

// abandon gives up a goroutine that is inside, and removes it from all.
func (w *window) abandon(all *sync.WaitGroup) bool {
	if !w.state.CompareAndSwap(inside, abandoned) {
		return false
	}
	all.Done()
	return true
}

// done removes the goroutine from all, unless it was abandoned.
func (w *window) done(all *sync.WaitGroup) {
	if !w.isAbandoned() {
		all.Done()
	}
}

func (w *window) isAbandoned() bool { return w.state.Load() == abandoned }

// ends holds a socket and the two directions of its stream.
type ends struct {
	conn net.Conn // nil if the stream is not a socket
	fd   int      // valid until conn.Close, which runs after all users of fd have left

	reading, sending window
	touching         sync.Mutex    // held in system calls on the socket that access memory of the program
	shut             chan struct{} // closed after the shutdown of the socket; made by shutdown
}

// ReadDone removes the goroutine of Stream.Read from the group that Abandon gets.
func (e *ends) ReadDone(readers *sync.WaitGroup) { e.reading.done(readers) }

// WriteDone removes the goroutine of Stream.Write from the group that Abandon gets.
func (e *ends) WriteDone(writers *sync.WaitGroup) { e.sending.done(writers) }

// shutdown shuts the socket down. It does not wait for that.
func (e *ends) shutdown() {
	e.shut = make(chan struct{})
	go func() {
		defer close(e.shut)
		if e.conn != nil {
			// An error means that the socket is no longer connected, which is the goal.
			_ = syscall.Shutdown(e.fd, syscall.SHUT_RDWR)
		}
	}()
}

// Abandon removes the goroutines of Stream.Read and Stream.Write from their groups if they are
// blocked in a system call on memory of the program. It reports whether it removed one. Call it
// after Stream.Shutdown.
func (e *ends) Abandon(readers, writers *sync.WaitGroup) bool {
	if e.conn != nil {
		// If shutdown is blocked, this still wakes every goroutine that waits for the socket.
		_ = e.conn.SetDeadline(time.Unix(1, 0))
	}
	reading, sending := e.reading.abandon(readers), e.sending.abandon(writers)
	return reading || sending
}

// close closes the socket after its shutdown. An abandoned call may delay that.
func (e *ends) close() {
	if e.conn == nil {
		return
	}
	after := func() {
		<-e.shut
		_ = e.conn.Close() // a failure would have no consequence
	}
	if e.reading.isAbandoned() || e.sending.isAbandoned() {
		go after()
	} else {
		after()
	}
}

// mayInline reports whether a submitter may send the rest of the batch. If locked is true, the
// reader does not access memory of the program until sendRest returns.
func (p *pump) mayInline(inline bool) (may, locked bool) {
	if !inline || p.s.wire != nil || p.s.in.lent.Load() {
		return true, false
	}
	locked = p.resident() && p.s.touching.TryLock()
	return locked, locked
}

// sendRest sends the rest of the batch once. It returns ErrEnded if the writer was abandoned.
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

// resident reports whether the payload of the rest is in memory. The arena always is.
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
