// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// farewellWait is how long the peer may take to read our goodbye and close. After that, the sockets
// are cut.
const farewellWait = 300 * time.Millisecond

// A shutdown ends a connection once, with the first cause, in the order of teardown.
type shutdown struct {
	ep               *Endpoint
	users            atomic.Int64  // calls inside Submit and similar methods
	ended            atomic.Bool   // Enter refuses new users
	vacant           chan struct{} // signaled when the last user has left after the end
	over             chan struct{} // closed at the end, to wake blocked users
	quit             chan struct{} // closed when writers must return
	done             chan struct{} // closed when teardown is complete
	readers, writers sync.WaitGroup
	once             sync.Once
	cause            error
	final            *finalFrame // of a FailWith before the connection was made; under outbound.mu
}

// A finalFrame is an extension frame sent to the peer before the end, and the cause of the end.
type finalFrame struct {
	cause error
	frame socket.Job
}

func (f *shutdown) init(ep *Endpoint) {
	f.ep = ep
	f.vacant = make(chan struct{}, 1)
	f.over, f.quit, f.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

func (f *shutdown) isEnded() bool { return f.ended.Load() }

// Enter counts a user and returns true, or returns false if the connection has ended. After true,
// the caller must call Leave. Users may call Enter again.
func (f *shutdown) Enter() bool {
	f.users.Add(1)
	if !f.ended.Load() {
		return true
	}
	f.Leave()
	return false
}

// Leave undoes Enter.
func (f *shutdown) Leave() {
	if f.users.Add(-1) == 0 && f.ended.Load() {
		select {
		case f.vacant <- struct{}{}:
		default:
		}
	}
}

// waitUsers waits until the last user has left. Call it after the end.
func (f *shutdown) waitUsers() {
	for f.users.Load() != 0 {
		<-f.vacant
	}
}

// fail ends the connection with err as its cause; the first cause counts. It does not block.
func (ep *Endpoint) fail(err error) { ep.shutdown.begin(err, false) }

// beginWith starts the shutdown with a final frame. If the connection is still being made, launch
// does that.
func (f *shutdown) beginWith(w *finalFrame) {
	out := &f.ep.out
	out.mu.Lock()
	early := !out.launched
	if early {
		f.final = w
	}
	out.mu.Unlock()
	if !early {
		f.begin(w.cause, true, w.frame)
	}
}

// begin starts the shutdown; the first cause counts. It does not block. If goodOrder is set, the
// peer gets last and a goodbye before the sockets are cut.
func (f *shutdown) begin(cause error, goodOrder bool, last ...socket.Job) {
	f.once.Do(func() {
		f.cause = cause
		f.ended.Store(true)
		close(f.over)
		f.ep.State.Shut()
		f.ep.out.mu.Lock()
		defer f.ep.out.mu.Unlock()
		if f.ep.out.launched {
			go f.teardown(goodOrder, last)
		} else {
			go f.teardownEarly() // launch checks whether the connection has ended
		}
	})
}

// teardown takes the connection apart in this order: everything that could access an op's memory,
// the ops, the queues.
func (f *shutdown) teardown(goodOrder bool, last []socket.Job) {
	ep := f.ep
	if ep.poller != nil {
		ep.poller.Stop()
	}
	if goodOrder {
		f.sayGoodbye(last)
	}
	for _, c := range ep.channels.all() {
		c.Shutdown()
	}
	close(f.quit)
	f.awaitChannels(ep.channels.all(), func() {
		ep.cfg.log(slog.LevelWarn, "a connection waits for a page fault that is not served, abandoning it",
			"provider", ep.cfg.Info.Provider, "peer", ep.peer)
	})
	ep.stage.Stop()
	if ep.path != nil {
		ep.path.Close(f.cause)
	}
	for _, c := range ep.channels.all() {
		c.Stream.Close()
		c.abandon()
	}
	f.flush()
	f.report()
	close(f.done)
}

// stuckAfter is how long a system call on memory of the program may take after the connection has
// ended.
const stuckAfter = 500 * time.Millisecond

// awaitChannels waits until all goroutines have left the channels. It calls stuck for each channel
// with a goroutine that is blocked in a system call on memory of the program.
func (f *shutdown) awaitChannels(all []*channel, stuck func()) {
	gone := make(chan struct{})
	go func() {
		f.readers.Wait()
		f.writers.Wait()
		f.waitUsers()
		close(gone)
	}()
	for {
		select {
		case <-gone:
			return
		case <-time.After(stuckAfter):
		}
		for _, c := range all {
			if c.Abandon(&f.readers, &f.writers) {
				stuck()
			}
		}
	}
}

// teardownEarly ends the ops that were submitted before the connection was made.
func (f *shutdown) teardownEarly() {
	f.waitUsers()
	if f.ep.feed != nil {
		f.flush()
	}
	close(f.done)
}

// sayGoodbye replaces all jobs that were not started with the goodbye on each channel. On the first
// socket, it sends others before the goodbye. It waits up to farewellWait for the peer to close.
func (f *shutdown) sayGoodbye(others []socket.Job) {
	bye := socket.Job{H: frame.Header{Kind: frame.KindGoodbye}}
	for _, c := range f.ep.channels.all() { // the wire first
		last := []socket.Job{bye}
		if c.index == 0 {
			for _, j := range others {
				f.ep.extensions.queued.Add(int64(len(j.Body)))
			}
			last = append(others, bye)
		}
		if c.IsWire() {
			bye.H.Data = 1
		}
		c.Farewell(last...)
	}
	gone := make(chan struct{})
	go func() {
		f.readers.Wait()
		close(gone)
	}()
	t := time.NewTimer(farewellWait)
	defer t.Stop()
	select {
	case <-gone:
	case <-t.C:
	}
}

// flush ends every op with the cause. No other goroutine uses the ops.
func (f *shutdown) flush() {
	ep := f.ep
	errno, detail := fabric.ErrnoOf(f.cause), f.cause.Error()
	ep.out.flush(errno, detail)
	if op, ok := ep.inbox.abandon(); ok {
		ep.feed.Failed(&op, errno, detail)
	}
	ep.feed.End()
	if !ep.carries {
		ep.recv.End(errno, detail)
	}
	ep.unspace()
}

// report writes the end to the log and to the event queue.
func (f *shutdown) report() {
	ep := f.ep
	level := slog.LevelDebug
	if errno := fabric.ErrnoOf(f.cause); errno == fabric.ErrProtocol || errno == fabric.ErrCRC {
		level = slog.LevelWarn
	}
	ep.cfg.log(level, "connection ended", "provider", ep.cfg.Info.Provider, "peer", ep.peer, "cause", f.cause)
	if ep.Queues.EQ != nil {
		ep.Queues.EQ.Push(fabric.Event{Kind: fabric.EventShutdown, EP: ep, Err: f.cause})
	}
}

// Shutdown ends the connection in good order; see fabric.Connector.
func (ep *Endpoint) Shutdown() error {
	if !ep.running() {
		return fmt.Errorf("shut down endpoint that is %v: %w", &ep.State, ep.endedErr())
	}
	ep.shutdown.begin(fmt.Errorf("connection to %s was shut down on this side: %w", ep.peer, fabric.ErrConnAborted), true)
	<-ep.shutdown.done
	return nil
}

// Close ends the connection and all its ops; see fabric.Endpoint.
func (ep *Endpoint) Close() error {
	if !ep.State.Close() {
		return nil
	}
	ep.shutdown.begin(fmt.Errorf("endpoint closed: %w", fabric.ErrCanceled), true)
	<-ep.shutdown.done
	ep.Queues.Unbind()
	ep.domain.forget(ep)
	return nil
}
