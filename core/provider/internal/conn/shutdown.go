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

// A shutdown is how a connection ends: once, by the first cause, in the order of Endpoint.teardown.
type shutdown struct {
	users            atomic.Int64  // calls inside Submit and the like
	ended            atomic.Bool   // no new ones are let in
	vacant           chan struct{} // the last user left after the end
	over             chan struct{} // closed at the end: what waits inside gives up
	quit             chan struct{} // closed when writers have to go
	done             chan struct{} // closed when all is undone
	readers, writers sync.WaitGroup
	once             sync.Once
	cause            error
	final            *finalFrame // of FailWith before there was a connection; under Endpoint.mu

	// Under Endpoint.mu: the peer's goodbyes.
	goodbyes                      int // of sockets
	wireGoodbye, wantsWireGoodbye bool
}

// A finalFrame is an extension frame that the peer gets before the end, and the cause of the end.
type finalFrame struct {
	cause error
	frame socket.Job
}

func (f *shutdown) init() {
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

// Fail ends the connection with err as its cause; the first cause counts. It returns at once.
func (ep *Endpoint) Fail(err error) { ep.end(err, false) }

// FailWith is Fail, but that the peer gets an extension frame of up to MaxExtension bytes first,
// unless it does not read for farewellWait. Where the connection is just being made it ends once it
// is.
func (ep *Endpoint) FailWith(err error, kind uint8, body []byte) {
	w := &finalFrame{cause: err, frame: extension(kind, body)}
	ep.mu.Lock()
	early := !ep.launched
	if early {
		ep.shutdown.final = w
	}
	ep.mu.Unlock()
	if !early {
		ep.end(err, true, w.frame)
	}
}

func extension(kind uint8, body []byte) socket.Job {
	return socket.Job{H: frame.Header{Kind: frame.KindExtension, Count: uint32(kind), Length: uint64(len(body))}, Body: append([]byte(nil), body...)}
}

// end begins the end. In good order, the peer hears of it before the sockets are cut, and gets some
// frames.
func (ep *Endpoint) end(cause error, goodOrder bool, last ...socket.Job) {
	f := &ep.shutdown
	f.once.Do(func() {
		f.cause = cause
		f.ended.Store(true)
		close(f.over)
		ep.state.Shut()
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if ep.launched {
			go ep.teardown(goodOrder, last)
		} else {
			go ep.teardownEarly() // launch will see that there is nothing to begin
		}
	})
}

// teardown takes the connection apart: first whoever could touch an op's memory, then the ops, then
// the queues.
func (ep *Endpoint) teardown(goodOrder bool, last []socket.Job) {
	f := &ep.shutdown
	if ep.poller != nil {
		ep.poller.Stop()
	}
	if goodOrder {
		ep.sayGoodbye(last)
	}
	for _, c := range ep.allChannels() {
		c.Shutdown()
	}
	close(f.quit)
	f.awaitChannels(ep.allChannels(), func() {
		ep.cfg.log(slog.LevelWarn, "a connection is stuck in a page that does not come, and is left behind",
			"provider", ep.cfg.Info.Provider, "peer", ep.peer)
	})
	ep.stage.Stop()
	if ep.path != nil {
		ep.path.Close(f.cause)
	}
	for _, c := range ep.allChannels() {
		c.Stream.Close()
		c.abandon()
	}
	ep.flush()
	ep.reportEnd()
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
func (ep *Endpoint) teardownEarly() {
	ep.shutdown.waitUsers()
	if ep.feed != nil {
		ep.flush()
	}
	close(ep.shutdown.done)
}

// sayGoodbye queues the last frame on each channel, on the first socket behind some others, in
// place of all that was not begun. It waits a little for the peer to close.
func (ep *Endpoint) sayGoodbye(others []socket.Job) {
	bye := socket.Job{H: frame.Header{Kind: frame.KindGoodbye}}
	for _, c := range ep.allChannels() { // the wire first
		last := []socket.Job{bye}
		if c.index == 0 {
			for _, j := range others {
				ep.extra.Add(int64(len(j.Body)))
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
		ep.shutdown.readers.Wait()
		close(gone)
	}()
	t := time.NewTimer(farewellWait)
	defer t.Stop()
	select {
	case <-gone:
	case <-t.C:
	}
}

// flush ends every op with the cause. Nobody else touches them any more.
func (ep *Endpoint) flush() {
	errno, detail := fabric.ErrnoOf(ep.shutdown.cause), ep.shutdown.cause.Error()
	for i := range ep.pending.pieces {
		if s := &ep.pending.pieces[i]; s.used() {
			s.piece.End()
			s.end()
		}
	}
	for i := range ep.pending.all {
		if s := &ep.pending.all[i]; s.used() {
			op, why, text := s.op, errno, detail
			if s.unread.Load() {
				why, text = s.outcome()
			}
			s.end()
			ep.queues.Failed(&op, why, text)
		}
	}
	if op, ok := ep.inbox.abandon(); ok {
		ep.feed.Failed(&op, errno, detail)
	}
	ep.feed.End()
	if !ep.carries {
		ep.recv.End(errno, detail)
	}
	ep.unspace()
}

// reportEnd puts the end into the log and the event queue.
func (ep *Endpoint) reportEnd() {
	level := slog.LevelDebug
	if errno := fabric.ErrnoOf(ep.shutdown.cause); errno == fabric.ErrProtocol || errno == fabric.ErrCRC {
		level = slog.LevelWarn
	}
	ep.cfg.log(level, "connection ended", "provider", ep.cfg.Info.Provider, "peer", ep.peer, "cause", ep.shutdown.cause)
	if ep.queues.EQ != nil {
		ep.queues.EQ.Push(fabric.Event{Kind: fabric.EventShutdown, EP: ep, Err: ep.shutdown.cause})
	}
}

// Shutdown ends the connection in good order; see fabric.Connector.
func (ep *Endpoint) Shutdown() error {
	if !ep.running() {
		return fmt.Errorf("shut down endpoint that is %v: %w", &ep.state, ep.endedErr())
	}
	ep.end(fmt.Errorf("connection to %s shut down on this side: %w", ep.peer, fabric.ErrConnAborted), true)
	<-ep.shutdown.done
	return nil
}

// Close ends the connection and every op; see fabric.Endpoint.
func (ep *Endpoint) Close() error {
	if !ep.state.Close() {
		return nil
	}
	ep.end(fmt.Errorf("endpoint closed: %w", fabric.ErrCanceled), true)
	<-ep.shutdown.done
	ep.queues.Unbind()
	ep.domain.forget(ep)
	return nil
}
