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

// farewellWait is how long the peer has to take our goodbye and close, before the sockets are cut.
const farewellWait = 300 * time.Millisecond

// A shutdown is how a connection ends: once, by the first cause, in the order of teardown.
type shutdown struct {
	ep               *Endpoint
	users            atomic.Int64  // calls inside Submit and the like
	ended            atomic.Bool   // no new ones are let in
	vacant           chan struct{} // the last user left after the end
	over             chan struct{} // closed at the end: what waits inside gives up
	quit             chan struct{} // closed when writers have to go
	done             chan struct{} // closed when all is undone
	readers, writers sync.WaitGroup
	once             sync.Once
	cause            error
	final            *finalFrame // of FailWith before there was a connection; under outbound.mu
}

// A finalFrame is an extension frame that the peer gets before the end, and the cause of the end.
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

// Enter counts a user, which must Leave, unless the connection ended. Users may enter again.
func (f *shutdown) Enter() bool {
	f.users.Add(1)
	if !f.ended.Load() {
		return true
	}
	f.Leave()
	return false
}

// Leave ends what Enter began.
func (f *shutdown) Leave() {
	if f.users.Add(-1) == 0 && f.ended.Load() {
		select {
		case f.vacant <- struct{}{}:
		default:
		}
	}
}

// waitUsers waits until the last user left. After the end.
func (f *shutdown) waitUsers() {
	for f.users.Load() != 0 {
		<-f.vacant
	}
}

// fail ends the connection with err as its cause; the first cause counts. It returns at once.
func (ep *Endpoint) fail(err error) { ep.shutdown.begin(err, false) }

// beginWith begins the end with a last frame, or leaves that to launch.
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

// begin begins the end; the first cause counts. It returns at once. In good order, the peer gets
// last and a goodbye before the sockets are cut.
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
			go f.teardownEarly() // launch will see that there is nothing to begin
		}
	})
}

// teardown takes the connection apart: first all that could touch an op's memory, then the ops,
// then the queues.
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

// stuckAfter is how long a call on memory of a program may still take once its connection has
// ended.
const stuckAfter = 500 * time.Millisecond

// awaitChannels waits until all goroutines have left the channels. It calls stuck for each channel
// with one that is blocked in a call on memory of the program.
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

// teardownEarly ends what was submitted before there was a connection.
func (f *shutdown) teardownEarly() {
	f.waitUsers()
	if f.ep.feed != nil {
		f.flush()
	}
	close(f.done)
}

// sayGoodbye queues the last frame on each channel, on the first socket behind some others, in
// place of all that was not begun. It waits a little for the peer to close.
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

// flush ends every op with the cause. Nobody else uses them any more.
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

// report puts the end into the log and the event queue.
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

// Close ends the connection and every op; see fabric.Endpoint.
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
