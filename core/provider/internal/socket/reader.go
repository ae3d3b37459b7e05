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

// Reasons why a reader stops or waits.
var (
	ErrEnded    = errors.New("connection ended")                  // on this side
	ErrWait     = errors.New("nothing arrived")                   // until the stream is readable
	ErrNoRoom   = errors.New("no room for a completion")          // until the program has read some
	ErrNoBuffer = errors.New("no buffer for device memory")       // until one is free
	ErrBehind   = errors.New("messages of the socket come first") // until Notify
	errLent     = errors.New("the stream belongs to pollers")     // until they give it back
)

// An Incoming is a frame being received. Begin sets where its payload goes.
type Incoming struct {
	H    frame.Header
	Segs []fabric.RSeg // the frame's table
	Dst  []sys.Iovec   // destination of the payload; has capacity for one more entry
	Want uint64        // payload bytes to write to Dst
	Drop uint64        // bytes after those, to be dropped
	Own  bool          // Dst is memory of this package or of the Owner
	Gone bool          // Dst cannot be written: the rest of the payload is dropped

	r *reader
}

// A phase is the part of a frame that a reader is at.
type phase uint8

const (
	phaseHeader  phase = iota // before the header
	phaseTable                // the header is in H, the table is being read
	phaseBegin                // Begin is to be called
	phasePayload              // the payload is read into Dst
	phaseEnd                  // Finish is to be called
)

// A reader is the receiving direction of a Stream: a state machine that reads what arrived and
// never blocks. The stream's goroutine or a poller runs it when the socket is readable; see
// poll.go.
type reader struct {
	s       *Stream
	poller  *Poller    // may be nil
	mu      sync.Mutex // held while the reader runs; protects what follows
	buf     []byte     // headers, tables and small payloads arrive here
	r, w    int        // buf[r:w] is filled and not yet read
	drained bool       // the last read got less than it asked for
	got     bool       // bytes arrived since this was last reset
	fault   error      // the error that ended the connection

	phase phase
	Incoming
	left  int // table entries still to be read
	total uint64
	check uint32       // checksum of the table so far
	sum   uint32       // checksum of the payload so far, with FlagChecksum
	iov   []sys.Iovec  // scratch
	one   [1]sys.Iovec // scratch in addition to Dst, which may use iov
	parts []sys.Iovec  // scratch in addition to both
	trash []byte       // for bytes that are dropped
	zstd  *frame.Zstd  // the buffers of a compressed payload

	try    func(fd uintptr) bool // for RawConn.Read
	result error                 // why try returned true
	lending
}

func (in *reader) init(s *Stream) {
	in.s, in.Incoming.r = s, in
	in.buf = make([]byte, stagingLen)
	in.lending.init()
	in.try = func(uintptr) bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		for in.got = true; in.got; { // until nothing arrives: a short read may be the last
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

// turn reads and handles what arrived. It returns why it cannot continue. After an error that ended
// the connection, it returns the same error again.
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

// Scratch returns an empty list for Dst with capacity for n entries.
func (f *Incoming) Scratch(n int) []sys.Iovec { return f.r.scratch(n) }

func (in *reader) scratch(n int) []sys.Iovec {
	if cap(in.iov) < n+1 || cap(in.iov) > keepEntries && n < keepEntries {
		in.iov = make([]sys.Iovec, 0, max(64, n+1))
	}
	return in.iov[:0]
}

// Take returns the next n bytes after the table. n is small. If they have not arrived, it returns
// ErrWait, which Begin or Finish must return; the reader calls it again later. The bytes are valid
// until Begin or Finish returns.
func (f *Incoming) Take(n int) ([]byte, error) {
	in := f.r
	if err := in.need(n); err != nil {
		return nil, err
	}
	b := in.buf[in.r : in.r+n : in.r+n]
	in.r += n
	return b, nil
}

// Altered returns the error for a frame whose contents changed in transit.
func (f *Incoming) Altered() error { return altered(f.r.s.env.Peer, &f.H) }

// Differs reports whether the received payload does not match its checksum.
func (f *Incoming) Differs() bool { return f.r.differs() }

// Compressed reports whether the payload arrived compressed and is to be decompressed.
func (f *Incoming) Compressed() bool { return f.r.zstd != nil }

// ReceiveCompressed redirects a compressed payload to a buffer. Call it once the destination is
// set. Decompress must follow.
func (f *Incoming) ReceiveCompressed() { f.r.receiveCompressed() }

// Decompress decompresses the payload to its destination. It writes nothing if the payload does not
// match its header.
func (f *Incoming) Decompress(to []sys.Iovec) error { return f.r.decompress(to) }
