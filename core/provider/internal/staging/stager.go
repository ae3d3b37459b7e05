// SPDX-License-Identifier: MIT

package staging

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/device"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys/thread"
	"mori/core/provider/internal/queue"
)

const (
	// PieceLen is the largest size of a piece in bytes: one buffer.
	PieceLen = device.StageBytes
	// MaxPieces bounds the pending pieces of one endpoint's own transfers.
	MaxPieces = 64
	// PieceBytes bounds the outgoing buffers of an endpoint's pieces, and separately those of its
	// replies. So a peer that stops reading leaves buffers to other peers.
	PieceBytes = 12 << 20

	// The Stager polls its copies spinLooks times without a pause, and then with growing pauses.
	// One poll asks the driver for one copy (1.4 µs on an H200, where a piece takes 20 to 30 µs).
	// On 2 busy cores, 200 polls reduced the throughput of emulated devices by a tenth.
	spinLooks  = 20
	firstPause = 5 * time.Microsecond

	// LastPause is the longest pause between two polls of what is not signaled: copies and free
	// buffers.
	LastPause = 200 * time.Microsecond

	// closeWait is how long the end of a connection waits for copies.
	closeWait = 10 * time.Second

	// keepEntries is the largest capacity of a segment list that is kept for the next piece.
	keepEntries = 8 << 10
)

// A Port is the data path under a Stager. The Stager calls it from its own goroutine and from the
// callers of Answered, with no lock held.
type Port interface {
	// Reserve makes room for p among the pending operations. It returns false if all are in use;
	// the Port then calls Wake once there is room.
	Reserve(p *Piece) bool
	// Send starts p.Op. The Port must call Answered afterwards.
	Send(p *Piece)
	// Cancel undoes Reserve for a piece that is not sent.
	Cancel(p *Piece)
	// Ended is called once for each Transfer. Its Errno and Detail say how it ended.
	Ended(t *Transfer)
	// Log reports a device error.
	Log(what string, err error)
}

// A Stager moves device memory for one endpoint.
type Stager struct {
	port    Port
	pieces  pool
	pending atomic.Int64 // copies in progress
	regions *regions.Table
	start   sync.Once
	wake    chan struct{}
	quit    chan struct{} // closed by Stop
	gone    chan struct{} // closed when run returned

	mu        sync.Mutex // closed when run has returned
	stopped   bool
	transfers queue.FIFO[*Transfer] // being cut into pieces
	replies   queue.FIFO[*Piece]    // of peers' reads: to be copied out
	arrived   queue.FIFO[*Piece]    // to be copied in
	outward   uint64                // bytes of own pieces in outgoing buffers
	replied   uint64                // bytes of replies in outgoing buffers

	// Used by run only.
	copying    []*Piece
	next       *Piece   // made but not started
	unreported []*Piece // writes whose completion had no room in the queue
}

// Init initializes s, which serves port. Local segments are in regions.
func (s *Stager) Init(port Port, regions *regions.Table) {
	s.port, s.regions = port, regions
	s.wake, s.quit, s.gone = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
}

// Stats returns how many copies are pending, and how many bytes of buffers hold replies.
func (s *Stager) Stats() (copies int, replied uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.pending.Load()), s.replied
}

// add calls put to queue work and starts the goroutine. It returns false after Stop.
func (s *Stager) add(put func()) bool {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return false
	}
	put()
	s.mu.Unlock()
	s.start.Do(func() { go s.run() })
	s.Wake()
	return true
}

// Wake makes the Stager check for work.
func (s *Stager) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run does all work until Stop is called.
func (s *Stager) run() {
	defer close(s.gone)
	looks, pause := 0, firstPause
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			s.finishCopies()
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
		case len(s.copying) > 0: // they end soon, and a timer would sleep for a millisecond
			thread.Nap(pause)
			pause = min(2*pause, LastPause)
		default:
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-s.wake:
			case <-s.quit:
			}
			pause = min(2*pause, LastPause)
		}
	}
}

// advance does the work that is possible now. It reports whether it did any, and whether some work
// waits for a device, a buffer or room.
func (s *Stager) advance() (moved, waits bool) {
	moved = s.pollCopies()
	for i := 0; i < len(s.unreported); {
		if p := s.unreported[i]; p.writer.Landed(&p.h, p.errno) {
			moved = true
			s.unreported = append(s.unreported[:i], s.unreported[i+1:]...)
			s.pieces.put(p)
		} else {
			i++
		}
	}
	for _, step := range [...]func() step{s.copyIn, s.copyReply, s.cutNext} {
		for at := step(); at != stepIdle; at = step() {
			if at == stepWaits {
				waits = true
				break
			}
			moved = true
		}
	}
	return moved, waits || len(s.copying) > 0 || len(s.unreported) > 0
}

// pollCopies continues the pieces whose copy has ended.
func (s *Stager) pollCopies() (moved bool) {
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
		s.pending.Add(-1)
		s.copying[i] = s.copying[len(s.copying)-1]
		s.copying[len(s.copying)-1] = nil
		s.copying = s.copying[:len(s.copying)-1]
		s.copied(p, err)
	}
	return moved
}

// A step is the result of one attempt to do some work.
type step int

const (
	stepIdle  step = iota // no work, or none until Wake
	stepDone              // the work was done
	stepWaits             // the work waits for something that does not call Wake
)

// startCopy starts a piece's copy. It returns false and no error if the device has no room yet.
func (s *Stager) startCopy(p *Piece) (ok bool, err error) {
	if err := p.aim(s.regions); err != nil {
		return false, err
	}
	p.copy, err = p.buf.Copy(p.copies)
	if errors.Is(err, device.ErrBusy) {
		return false, nil
	}
	if err == nil {
		s.copying = append(s.copying, p)
		s.pending.Add(1)
	}
	return err == nil, err
}

// copyIn starts to copy an arrived piece to its memory.
func (s *Stager) copyIn() step {
	s.mu.Lock()
	if s.arrived.Len() == 0 {
		s.mu.Unlock()
		return stepIdle
	}
	p := *s.arrived.Peek()
	s.mu.Unlock()
	ok, err := s.startCopy(p)
	if !ok && err == nil {
		return stepWaits
	}
	s.mu.Lock()
	s.arrived.Pop()
	s.mu.Unlock()
	if err != nil {
		s.copied(p, err)
	}
	return stepDone
}

// copied continues a piece whose copy has ended.
func (s *Stager) copied(p *Piece, err error) {
	p.releaseRegions()
	if err != nil {
		s.port.Log("copy of GPU memory failed", err)
		p.errno, p.detail = Errno(err), err.Error()
	}
	switch p.kind {
	case ownWrite:
		if err != nil {
			s.port.Cancel(p)
			s.endPiece(p)
			return
		}
		s.port.Send(p)
	case ownRead:
		s.endPiece(p)
	case peerRead:
		s.answerRead(p)
		s.pieces.put(p)
	case peerWrite:
		p.free()
		if p.writer.Landed(&p.h, p.errno) {
			s.pieces.put(p)
			return
		}
		s.unreported = append(s.unreported, p)
	}
}

// Stop ends all work. No other goroutine may use s any more. When Stop returns, no copy is pending,
// except abandoned ones, which keep their buffers and regions.
func (s *Stager) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	close(s.quit)
	s.start.Do(func() { close(s.gone) })
	<-s.gone
	for s.arrived.Len() > 0 {
		s.arrived.Pop().End()
	}
	for s.replies.Len() > 0 {
		s.replies.Pop().End()
	}
}

// finishCopies waits for pending copies.
func (s *Stager) finishCopies() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	for _, p := range s.copying {
		switch err := p.copy.Wait(ctx); {
		case errors.Is(err, device.ErrTimeout):
			s.port.Log("a GPU did not finish copying, its memory stays registered", err)
			p.buf, p.regions, p.reader = nil, nil, nil
		case err != nil:
			p.lose()
		}
		p.End()
	}
	s.copying, s.unreported = nil, nil
}
