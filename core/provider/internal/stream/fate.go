// SPDX-License-Identifier: MIT

package stream

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

// A fate is how a connection ends: once, by the first cause, in the order of Endpoint.undo.
type fate struct {
	users            atomic.Int64  // calls inside Submit and the like
	ended            atomic.Bool   // no new ones are let in
	vacant           chan struct{} // the last user left after the end
	over             chan struct{} // closed at the end: what waits inside gives up
	quit             chan struct{} // closed when writers have to go
	done             chan struct{} // closed when all is undone
	readers, writers sync.WaitGroup
	once             sync.Once
	cause            error
	words            *lastWords // of FailWith before there was a connection; under Endpoint.mu

	// Under Endpoint.mu: the peer's goodbyes.
	byes              int // of sockets
	byeWire, wantWire bool
}

// lastWords are an extension frame that the peer gets before the end, and the end's cause.
type lastWords struct {
	cause error
	frame socket.Job
}

func (f *fate) init() {
	f.vacant = make(chan struct{}, 1)
	f.over, f.quit, f.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

func (f *fate) isEnded() bool { return f.ended.Load() }

// Enter lets a user in, who must leave, unless the connection ended. Users may enter again inside.
func (f *fate) Enter() bool {
	f.users.Add(1)
	if !f.ended.Load() {
		return true
	}
	f.Leave()
	return false
}

// Leave ends what Enter began.
func (f *fate) Leave() {
	if f.users.Add(-1) == 0 && f.ended.Load() {
		select {
		case f.vacant <- struct{}{}:
		default:
		}
	}
}

// waitUsers waits until the last user left. After the end.
func (f *fate) waitUsers() {
	for f.users.Load() != 0 {
		<-f.vacant
	}
}

// Fail ends the connection with err as its cause; the first cause counts. It returns at once.
func (ep *Endpoint) Fail(err error) { ep.end(err, false) }

// FailWith is Fail, but that the peer gets an extension frame of up to MaxExtension bytes first, unless it does not read for farewellWait. Where
// the connection is just being made it ends once it is.
func (ep *Endpoint) FailWith(err error, kind uint8, body []byte) {
	w := &lastWords{cause: err, frame: extension(kind, body)}
	ep.mu.Lock()
	early := !ep.launched
	if early {
		ep.fate.words = w
	}
	ep.mu.Unlock()
	if !early {
		ep.end(err, true, w.frame)
	}
}

func extension(kind uint8, body []byte) socket.Job {
	return socket.Job{H: frame.Header{Kind: frame.KindExtension, Count: uint32(kind), Length: uint64(len(body))}, Body: append([]byte(nil), body...)}
}

// end begins the end. In good order, the peer hears of it before the sockets are cut, and gets some frames.
func (ep *Endpoint) end(cause error, goodOrder bool, last ...socket.Job) {
	f := &ep.fate
	f.once.Do(func() {
		f.cause = cause
		f.ended.Store(true)
		close(f.over)
		ep.state.Shut()
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if ep.launched {
			go ep.undo(goodOrder, last)
		} else {
			go ep.undoEarly() // launch will see that there is nothing to begin
		}
	})
}

// undo takes the connection apart: first whoever could touch an op's memory, then the ops, then the queues.
func (ep *Endpoint) undo(goodOrder bool, last []socket.Job) {
	f := &ep.fate
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
	f.readers.Wait()
	f.writers.Wait()
	f.waitUsers()
	ep.stage.Stop()
	if ep.direct != nil {
		ep.direct.Stop(f.cause)
	}
	for _, c := range ep.allChannels() {
		c.Stream.Close()
		c.abandon()
	}
	ep.flush()
	ep.tell()
	close(f.done)
}

// undoEarly ends what was submitted before there was a connection.
func (ep *Endpoint) undoEarly() {
	ep.fate.waitUsers()
	if ep.feed != nil {
		ep.flush()
	}
	close(ep.fate.done)
}

// sayGoodbye queues the last frame on each link, on the first socket behind some others, in place of all that was not begun, and waits a little for
// the peer to close.
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
		ep.fate.readers.Wait()
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
	errno, detail := fabric.ErrnoOf(ep.fate.cause), ep.fate.cause.Error()
	for i := range ep.slots.pieces {
		if s := &ep.slots.pieces[i]; s.used() {
			s.piece.End()
			s.end()
		}
	}
	for i := range ep.slots.all {
		if s := &ep.slots.all[i]; s.used() {
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

// tell puts the end into the log and the event queue.
func (ep *Endpoint) tell() {
	level := slog.LevelDebug
	if errno := fabric.ErrnoOf(ep.fate.cause); errno == fabric.ErrProtocol || errno == fabric.ErrCRC {
		level = slog.LevelWarn
	}
	ep.cfg.log(level, "connection ended", "provider", ep.cfg.Info.Provider, "peer", ep.peer, "cause", ep.fate.cause)
	if ep.queues.EQ != nil {
		ep.queues.EQ.Push(fabric.Event{Kind: fabric.EventShutdown, EP: ep, Err: ep.fate.cause})
	}
}

// Shutdown ends the connection in good order; see fabric.Connector.
func (ep *Endpoint) Shutdown() error {
	if !ep.running() {
		return fmt.Errorf("shut down endpoint that is %v: %w", &ep.state, ep.endedErr())
	}
	ep.end(fmt.Errorf("connection to %s shut down on this side: %w", ep.peer, fabric.ErrConnAborted), true)
	<-ep.fate.done
	return nil
}

// Close ends the connection and every op; see fabric.Endpoint.
func (ep *Endpoint) Close() error {
	if !ep.state.Close() {
		return nil
	}
	ep.end(fmt.Errorf("endpoint closed: %w", fabric.ErrCanceled), true)
	<-ep.fate.done
	ep.queues.Unbind()
	ep.domain.forget(ep)
	return nil
}
