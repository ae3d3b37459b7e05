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
	// PieceLen is the most bytes of a piece: one buffer.
	PieceLen = device.StageBytes
	// MaxPieces bounds the pieces of one endpoint's own transfers that are pending.
	MaxPieces = 64
	// PieceBytes bounds the buffers of an endpoint's pieces on their way out, and those of its
	// replies: a peer that takes nothing leaves some to others.
	PieceBytes = 12 << 20

	// The Stager polls its copies spinLooks times without a pause, and then with growing pauses.
	// One look asks the driver for one copy (1.4 µs on an H200, where a piece takes 20 to 30 µs).
	// 200 looks cost emulated devices on 2 busy cores a tenth of their throughput.
	spinLooks  = 20
	firstPause = 5 * time.Microsecond

	// LastPause is the longest pause between two looks at what is not signaled: copies and free
	// buffers.
	LastPause = 200 * time.Microsecond

	// closeWait is how long the end of a connection waits for copies.
	closeWait = 10 * time.Second

	// keepEntries is how long a list of segments may grow and still be kept for the next piece.
	keepEntries = 8 << 10
)

// A Port is the data path under a Stager. The Stager calls it from its own goroutine and from those
// of Answered, without a lock.
type Port interface {
	// Reserve makes room for p among the pending operations, or reports false. Then Wake must
	// follow once there is room.
	Reserve(p *Piece) bool
	// Send starts p.Op. Answered must follow.
	Send(p *Piece)
	// Cancel undoes Reserve for a piece that is not sent.
	Cancel(p *Piece)
	// Ended is called once for each Transfer: its Errno and Detail say how.
	Ended(t *Transfer)
	// Log reports what a device did wrong.
	Log(what string, err error)
}

// A Stager moves device memory for one endpoint.
type Stager struct {
	port    Port
	pieces  pool
	pending atomic.Int64 // copies
	regions *regions.Table
	start   sync.Once
	wake    chan struct{}
	quit    chan struct{} // closed by Stop
	gone    chan struct{} // closed when run returned

	mu        sync.Mutex // protects what follows
	stopped   bool
	transfers queue.FIFO[*Transfer] // being cut into pieces
	replies   queue.FIFO[*Piece]    // of peers' reads: to be copied out
	arrived   queue.FIFO[*Piece]    // to be copied in
	outward   uint64                // bytes of own pieces on their way out
	replied   uint64                // bytes of replies on theirs

	// Of run alone.
	copying    []*Piece
	next       *Piece   // made and not started
	unreported []*Piece // writes whose completion found no room
}

// Init readies s, which serves port. Local segments are of regions.
func (s *Stager) Init(port Port, regions *regions.Table) {
	s.port, s.regions = port, regions
	s.wake, s.quit, s.gone = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
}

// Stats returns how many copies are pending, and the bytes of buffers that replies are sent from.
func (s *Stager) Stats() (copies int, replied uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.pending.Load()), s.replied
}

// add queues work by put and starts the goroutine, or reports false after Stop.
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

// Wake makes the Stager look for work.
func (s *Stager) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run does all work until Stop.
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
		case len(s.copying) > 0: // soon done, and a timer would sleep for a millisecond
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

// advance does what can be done now. It reports whether that was anything, and whether something
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

// A step is the result of trying to do one thing.
type step int

const (
	stepIdle  step = iota // there is nothing to do, or nothing until Wake
	stepDone              // it was done
	stepWaits             // for something that no Wake announces
)

// startCopy starts a piece's copy. It reports false without an error if the device has no room yet.
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

// copyIn starts to copy a piece that arrived to its memory.
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

// copied goes on with a piece whose copy has ended.
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

// Stop ends all work. Nobody but the caller uses s any more. When it returns, no copy is pending,
// or the copy was given up with its buffer and its regions.
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
