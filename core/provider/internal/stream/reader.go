// SPDX-License-Identifier: MIT

package stream

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/staging"
)

// Why a reader does not go on.
var (
	errEnded  = errors.New("connection ended")            // on this side
	errWait   = errors.New("nothing arrived")             // until the socket is readable
	errNoRoom = errors.New("no room for a completion")    // until the program has read some
	errLent   = errors.New("the link is lent to pollers") // until they give it back

	errNoBuffer = errors.New("no buffer for device memory") // until one is free
)

// A phase is where in a frame a reader is.
type phase uint8

const (
	phaseHeader  phase = iota // before it
	phaseTable                // its header is in h, its table is being read
	phaseBegin                // to be begun
	phasePayload              // payload goes to dst
	phaseEnd                  // to be ended
)

// A reader is the receiving direction of a link: a state machine that takes what arrived and never waits. The link's goroutine
// turns it whenever the socket is readable, or a poller does; see poll.go.
type reader struct {
	mu      sync.Mutex // held by who turns it; protects what follows but for holds
	buf     []byte     // staging
	r, w    int        // what of it is read and filled
	drained bool       // the last read got less than it asked for
	got     bool       // bytes came since somebody reset it
	goodbye bool
	fault   error // what ended the connection

	phase phase
	h     frame.Header
	left  int // entries of the table to come
	total uint64
	check uint32 // of the table so far
	sum   uint32 // of the payload so far, with flagSum
	segs  []fabric.RSeg
	iov   []sys.Iovec  // scratch
	one   [1]sys.Iovec // scratch beside dst, which may lie in iov
	parts []sys.Iovec  // scratch beside both
	dst   []sys.Iovec  // where payload goes; has capacity for one more
	want  uint64       // bytes of it
	drop  uint64       // bytes to come behind that, which go nowhere
	trash []byte       // for them
	mr    *util.MR     // of a write: held open
	errno fabric.Errno // of a write: the answer
	gone  bool         // memory of the payload cannot be written: the rest of it is dropped
	own   bool         // dst is the reader's own memory

	landing *staging.Piece // of a write to device memory: it has mr

	slot  *slot       // of a reply
	op    fabric.Op   // of a send or body: the receive that it fills
	into  bool        // of a send: op is one
	early []byte      // of a send: where it goes without one
	held  bool        // of a send: there is a promise of Feed.Hold
	stuck bool        // of a write: it waited for room
	pack  *frame.Zstd // of a packed payload: where it arrives

	holds atomic.Pointer[util.MR] // the region that payload is arriving in

	try    func(fd uintptr) bool // for RawConn.Read
	result error                 // why try answered true
	lending
}

func (l *link) initReader() {
	in := &l.in
	in.buf = make([]byte, stagingLen)
	in.lending.init()
	in.try = func(uintptr) bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		for in.got = true; in.got; { // to the last: a read that got less than it asked for may have met the end of the stream
			in.drained, in.got = false, false
			if in.result = l.turn(); in.result != errWait {
				return true
			}
			l.kick()
		}
		if l.mayLend() {
			in.result = errLent
			return true
		}
		return false
	}
}

// turn takes what arrived. It returns why it cannot go on; what ended the connection once does so again.
func (l *link) turn() error {
	for l.in.fault == nil {
		switch err := l.step(); err {
		case nil:
		case errWait, errNoRoom, errNoBuffer, errBehind:
			return err
		default:
			l.in.fault = err
		}
	}
	return l.in.fault
}

func (l *link) step() error {
	in := &l.in
	switch in.phase {
	case phaseHeader:
		if err := l.need(frame.HeaderLen); err != nil {
			return err
		}
		if err := frame.ParseHeader(&in.h, in.buf[in.r:in.w]); err != nil {
			return fmt.Errorf("frame of %s: %w", l.ep.peer, err)
		}
		in.r += frame.HeaderLen
		l.openTable()
	case phaseTable:
		if err := l.readTable(); err != nil {
			return err
		}
	case phaseBegin:
		if err := l.begin(&in.h); err != nil {
			return err
		}
	case phasePayload:
		if err := l.payload(); err != nil {
			return err
		}
	case phaseEnd:
		if err := l.finish(&in.h); err != nil {
			return err
		}
		in.phase = phaseHeader
		return nil
	}
	in.phase++
	return nil
}

// abandon lets go of what a frame that did not come to its end holds. Nobody turns the reader any more.
func (l *link) abandon() {
	in := &l.in
	in.pack.Free()
	in.pack = nil
	if in.mr != nil {
		in.mr.Release()
		in.mr = nil
	}
	if in.landing != nil {
		in.landing.End()
		in.landing = nil
	}
	if in.held {
		l.ep.feed.Unhold(uint64(len(in.early)))
		in.held, in.early = false, nil
	}
}
