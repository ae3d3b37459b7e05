// SPDX-License-Identifier: MIT

package stream

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// Device memory. The sockets reach host memory only, so what is in the memory of a GPU goes through pinned buffers of its
// device.Staging, a piece of up to a buffer at a time:
//
//	write   copied out (stager) -> sent -> arrives in a buffer (reader) -> copied in (stager) -> ack
//	read    request -> copied out there (stager) -> sent -> arrives in a buffer (reader) -> copied in (stager)
//
// The initiator cuts reads and writes into pieces, each a frame of its own with a slot of its own, wherever its own memory is a device's or
// the peer's may be (canDevice): so a frame to or from device memory fits a buffer, the pieces spread over the links, and copying out,
// sending and copying in overlap from piece to piece. Sums and packing are of the bytes in the buffers.
//
// Nobody but the stager talks to the device: one goroutine of an endpoint, which runs from the first piece on. It begins copies,
// asks whether they have ended, and parks when none is under way. Readers and writers of sockets never wait for a device; a reader whose frame
// finds no buffer waits until one is free, and buffers that bytes arrive in are free once they are copied in, whatever
// the network does.
//
// A region is held open while a copy of it is under way: MR.Close waits for that. The end of the connection does, too, for closeWait; what a
// device does not finish by then stays pinned, and its regions say so.

const (
	// pieceMax is the length of a piece, of one buffer.
	pieceMax = device.StageBytes
	// pieceSlots are the slots for pieces beside those of Limits.TxSize.
	pieceSlots = 64
	// pieceBytes bounds the buffers of an endpoint's pieces on their way out, and those of its replies: a peer that takes nothing leaves
	// some to others.
	pieceBytes = 12 << 20

	// Between looks at copies under way: at once for spinLooks, each of which asks the driver once for a copy (1.4 µs on an H200, where a piece
	// takes 20 to 30 µs); then with pauses that grow. 200 looks took a tenth of the throughput of emulated devices on 2 busy cores.
	spinLooks  = 20
	firstPause = 5 * time.Microsecond
	lastPause  = 200 * time.Microsecond

	// closeWait is how long the end of a connection waits for copies.
	closeWait = 10 * time.Second
)

// A stager moves what is in device memory through buffers, for one endpoint.
type stager struct {
	ep    *Endpoint
	start sync.Once
	wake  chan struct{}
	quit  chan struct{} // closed by stop
	gone  chan struct{} // closed when run returned

	mu      sync.Mutex
	stopped bool
	ops     fifo[*slot]  // being cut into pieces
	replies fifo[*piece] // of peers' reads: to be copied out
	arrived fifo[*piece] // to be copied in
	spare   []*piece
	outward uint64 // bytes of our pieces on their way out
	replied uint64 // bytes of replies on theirs
	busy    int    // copies under way

	copying []*piece // run's own, as what follows
	next    *piece   // made, and not begun
	stuck   []*piece // writes whose completion found no room
}

func (s *stager) init(ep *Endpoint) {
	s.ep = ep
	s.wake, s.quit, s.gone = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
}

// add queues work by put, unless the connection ended.
func (s *stager) add(put func()) bool {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return false
	}
	put()
	s.mu.Unlock()
	s.start.Do(func() { go s.run() })
	s.nudge()
	return true
}

// nudge makes run look at what there is to do.
func (s *stager) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run does all that has to do with devices until stop.
func (s *stager) run() {
	defer close(s.gone)
	looks, pause := 0, firstPause
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			s.settle()
			return
		default:
		}
		moved, waits := s.advance()
		switch {
		case moved:
			looks, pause = 0, firstPause
		case !waits:
			select {
			case <-s.wake:
			case <-s.quit:
			}
			looks, pause = 0, firstPause
		case looks < spinLooks && len(s.copying) > 0:
			looks++
			runtime.Gosched()
		case len(s.copying) > 0: // soon done, and a timer would sleep for a millisecond
			sys.Nap(pause)
			pause = min(2*pause, lastPause)
		default:
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-s.wake:
			case <-s.quit:
			}
			pause = min(2*pause, lastPause)
		}
	}
}

// advance does what can be done now. It reports whether that was anything, and whether something waits for a device, a buffer or room.
func (s *stager) advance() (moved, waits bool) {
	for i := 0; i < len(s.copying); {
		p := s.copying[i]
		done, err := p.copy.Done()
		if !done && err == nil {
			i++
			continue
		}
		moved = true
		if err != nil {
			p.lose()
		}
		s.count(-1)
		s.copying[i] = s.copying[len(s.copying)-1]
		s.copying[len(s.copying)-1] = nil
		s.copying = s.copying[:len(s.copying)-1]
		s.copied(p, err)
	}
	for i := 0; i < len(s.stuck); {
		if p := s.stuck[i]; s.tell(p) {
			moved = true
			s.stuck = append(s.stuck[:i], s.stuck[i+1:]...)
			s.put(p)
		} else {
			i++
		}
	}
	for _, step := range [...]func() step{s.copyIn, s.copyReply, s.cutOp} {
		for at := step(); at != stepIdle; at = step() {
			if at == stepWaits {
				waits = true
				break
			}
			moved = true
		}
	}
	return moved, waits || len(s.copying) > 0 || len(s.stuck) > 0
}

// A step is what came of trying to do one thing.
type step int

const (
	stepIdle  step = iota // there is nothing to do, or nothing until a nudge
	stepDone              // it was done
	stepWaits             // for what comes without a nudge
)

// begin begins a piece's copy. A device that has no room for it is asked again.
func (s *stager) begin(p *piece) (ok bool, err error) {
	if err := p.aim(s.ep.domain.regions); err != nil {
		return false, err
	}
	p.copy, err = p.buf.Copy(p.copies)
	if errors.Is(err, device.ErrBusy) {
		return false, nil
	}
	if err == nil {
		s.copying = append(s.copying, p)
		s.count(1)
	}
	return err == nil, err
}

// reply counts the bytes of a reply that has a buffer.
func (s *stager) reply(n uint64) {
	s.mu.Lock()
	s.replied += n
	s.mu.Unlock()
}

// sent counts those of one that needs it no more.
func (s *stager) sent(n uint64) {
	s.mu.Lock()
	s.replied -= n
	s.mu.Unlock()
	s.nudge()
}

// count counts copies under way.
func (s *stager) count(n int) {
	s.mu.Lock()
	s.busy += n
	s.mu.Unlock()
}

// copyIn begins to copy a piece that arrived into its memory.
func (s *stager) copyIn() step {
	s.mu.Lock()
	if s.arrived.len() == 0 {
		s.mu.Unlock()
		return stepIdle
	}
	p := *s.arrived.peek()
	s.mu.Unlock()
	ok, err := s.begin(p)
	if !ok && err == nil {
		return stepWaits
	}
	s.mu.Lock()
	s.arrived.pop()
	s.mu.Unlock()
	if err != nil {
		s.copied(p, err)
	}
	return stepDone
}

// copyReply begins to copy out what a peer reads.
func (s *stager) copyReply() step {
	s.mu.Lock()
	if s.replies.len() == 0 {
		s.mu.Unlock()
		return stepIdle
	}
	p := *s.replies.peek()
	full := s.replied >= pieceBytes
	s.mu.Unlock()
	ok, err := true, error(nil)
	if p.buf == nil {
		if full {
			return stepIdle
		}
		if err = p.take(p.n, device.Outward); err == nil {
			p.size = p.n
			s.reply(p.n)
		}
	}
	if err == nil {
		ok, err = s.begin(p)
	}
	if !ok && err == nil || errors.Is(err, device.ErrBusy) {
		return stepWaits
	}
	s.mu.Lock()
	s.replies.pop()
	s.mu.Unlock()
	if err != nil {
		s.copied(p, err)
	}
	return stepDone
}

// copied goes on with a piece whose copy has ended.
func (s *stager) copied(p *piece, err error) {
	p.release()
	if err != nil {
		s.ep.logDevice("copy of GPU memory failed", err)
		p.errno, p.detail = deviceErrno(err), err.Error()
	}
	switch p.kind {
	case pieceOut:
		if err != nil {
			s.ep.dropPiece(p)
			return
		}
		s.ep.sendPiece(p)
	case pieceIn:
		s.ep.endPiece(p)
	case pieceReply:
		p.answerRead()
		s.put(p)
	case pieceLanding:
		p.free()
		if s.tell(p) {
			s.put(p)
			return
		}
		s.stuck = append(s.stuck, p)
	}
}

// tell ends a peer's write: the completion that it asked for, then the answer. It reports false if there is no room for the completion.
func (s *stager) tell(p *piece) bool {
	h := &p.h
	if p.errno == 0 && h.Flags&frame.FlagRemoteData != 0 {
		c := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: s.ep.from(), Len: h.Length, Data: h.Data}
		if !s.ep.queues.Rx.TryPush(c) {
			return false
		}
	}
	if err := p.link.ack(h.Ticket, p.errno); err != nil {
		s.ep.Fail(err)
	}
	p.link.kick()
	return true
}

// stop ends all that has to do with devices: nobody but the caller uses the endpoint any more. When it returns, no copy is under way, or it
// was given up with its buffer and its regions.
func (s *stager) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	close(s.quit)
	s.start.Do(func() { close(s.gone) })
	<-s.gone
	for s.arrived.len() > 0 {
		s.arrived.pop().end()
	}
	for s.replies.len() > 0 {
		s.replies.pop().end()
	}
}

// settle waits for copies under way.
func (s *stager) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	for _, p := range s.copying {
		switch err := p.copy.Wait(ctx); {
		case errors.Is(err, device.ErrTimeout):
			s.ep.logDevice("a GPU does not finish copying: its memory stays registered", err)
			p.buf, p.regions, p.reply = nil, nil, nil
		case err != nil:
			p.lose()
		}
		p.end()
	}
	s.copying, s.stuck = nil, nil
}
