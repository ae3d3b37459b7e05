// SPDX-License-Identifier: MIT

package socket

import (
	"errors"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// Why a reader does not go on.
var (
	ErrEnded    = errors.New("connection ended")                  // on this side
	ErrWait     = errors.New("nothing arrived")                   // until the stream is readable
	ErrNoRoom   = errors.New("no room for a completion")          // until the program has read some
	ErrNoBuffer = errors.New("no buffer for device memory")       // until one is free
	ErrBehind   = errors.New("messages of the socket come first") // until Notify
	errLent     = errors.New("the stream belongs to pollers")     // until they give it back
)

// An Incoming is a frame that arrives. Begin sets where its payload goes.
type Incoming struct {
	H    frame.Header
	Segs []fabric.RSeg // its table
	Dst  []sys.Iovec   // where payload goes; has capacity for one more
	Want uint64        // bytes of Dst
	Drop uint64        // bytes behind those, which go nowhere
	Own  bool          // Dst is memory of this package or of the Owner
	Gone bool          // Dst cannot be written: the rest of the payload is dropped

	r *reader
}

// A phase is where in a frame a reader is.
type phase uint8

const (
	phaseHeader  phase = iota // before it
	phaseTable                // its header is in h, its table is being read
	phaseBegin                // to be begun
	phasePayload              // payload goes to dst
	phaseEnd                  // to be ended
)

// A reader is the receiving direction of a Stream: a state machine that takes what arrived and
// never waits. The stream's goroutine runs it when the socket is readable, or a poller does; see
// poll.go.
type reader struct {
	s       *Stream
	poller  *Poller    // may be nil
	mu      sync.Mutex // held while the reader runs; protects what follows
	buf     []byte     // headers, tables and small payloads arrive here
	r, w    int        // what of it is read and filled
	drained bool       // the last read got less than it asked for
	got     bool       // bytes came since it was reset
	fault   error      // what ended the connection

	phase phase
	Incoming
	left  int // entries of the table to come
	total uint64
	check uint32       // checksum of the table so far
	sum   uint32       // checksum of the payload so far, with FlagChecksum
	iov   []sys.Iovec  // scratch
	one   [1]sys.Iovec // scratch beside Dst, which may lie in iov
	parts []sys.Iovec  // scratch beside both
	trash []byte       // for bytes that are dropped
	zstd  *frame.Zstd  // of a compressed payload: where it arrives

	try    func(fd uintptr) bool // for RawConn.Read
	result error                 // why try answered true
	lending
}

func (in *reader) init(s *Stream) {
	in.s, in.Incoming.r = s, in
	in.buf = make([]byte, stagingLen)
	in.lending.init()
	in.try = func(uintptr) bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		for in.got = true; in.got; { // to the last: a read that got less than it asked for may have met the end of the stream
			in.drained, in.got = false, false
			if in.result = in.turn(); in.result != ErrWait {
				return true
			}
			in.s.Kick()
		}
		if in.mayLend() {
			in.result = errLent
			return true
		}
		return false
	}
}

// turn takes what arrived. It returns why it cannot go on. An error that ended the connection comes
// again.
func (in *reader) turn() error {
	for in.fault == nil {
		switch err := in.step(); err {
		case nil:
		case ErrWait, ErrNoRoom, ErrNoBuffer, ErrBehind:
			return err
		default:
			in.fault = err
		}
	}
	return in.fault
}

func (in *reader) step() error {
	switch in.phase {
	case phaseHeader:
		if err := in.need(frame.HeaderLen); err != nil {
			return err
		}
		if err := frame.ParseHeader(&in.H, in.buf[in.r:in.w]); err != nil {
			return fmt.Errorf("frame of %s: %w", in.s.env.Peer, err)
		}
		in.r += frame.HeaderLen
		in.openTable()
	case phaseTable:
		if err := in.readTable(); err != nil {
			return err
		}
	case phaseBegin:
		if err := in.begin(); err != nil {
			return err
		}
	case phasePayload:
		if err := in.payload(); err != nil {
			return err
		}
	case phaseEnd:
		if err := in.s.owner.Finish(&in.Incoming); err != nil {
			return err
		}
		in.phase = phaseHeader
		return nil
	}
	in.phase++
	return nil
}

func (in *reader) begin() error {
	in.Gone, in.Own = false, false
	return in.s.owner.Begin(&in.Incoming)
}

// Scratch is a list of entries for Dst, empty and with room for n.
func (f *Incoming) Scratch(n int) []sys.Iovec { return f.r.scratch(n) }

func (in *reader) scratch(n int) []sys.Iovec {
	if cap(in.iov) < n+1 || cap(in.iov) > keepEntries && n < keepEntries {
		in.iov = make([]sys.Iovec, 0, max(64, n+1))
	}
	return in.iov[:0]
}

// Take returns the next n bytes behind the table, which are few, or ErrWait: then Begin or Finish
// returns it and is called again. The bytes are valid until that returns.
func (f *Incoming) Take(n int) ([]byte, error) {
	in := f.r
	if err := in.need(n); err != nil {
		return nil, err
	}
	b := in.buf[in.r : in.r+n : in.r+n]
	in.r += n
	return b, nil
}

// Altered is the error of a frame whose contents were changed on the way.
func (f *Incoming) Altered() error { return altered(f.r.s.env.Peer, &f.H) }

// Differs reports whether the payload that arrived is not what was sent.
func (f *Incoming) Differs() bool { return f.r.differs() }

// Compressed reports whether the payload arrived compressed and is to be decompressed.
func (f *Incoming) Compressed() bool { return f.r.zstd != nil }

// ReceiveCompressed makes the payload, whose destination is known, arrive in a buffer if it is
// compressed. Decompress follows.
func (f *Incoming) ReceiveCompressed() { f.r.receiveCompressed() }

// Decompress moves a compressed payload to its destination. It writes nothing unless the payload is
// what its header says.
func (f *Incoming) Decompress(to []sys.Iovec) error { return f.r.decompress(to) }
