// SPDX-License-Identifier: MIT

package conn

import (
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// A pendingOp is an op from Submit until its end.
//
// An op on the stream ends after two events, in either order. Its last byte was handed to the
// kernel (opWritten), so its memory is no longer read. The peer answered it (opAnswered). The
// goroutine that observes the second event completes the op.
type pendingOp struct {
	state  atomic.Uint32 // generation << 16 | bits
	index  uint16
	errno  fabric.Errno // from the answer
	detail string       // text for errno
	unread atomic.Bool  // the pump could not read the op's memory; overrides the answer's errno

	op     fabric.Op
	n      uint64 // op.Len()
	key    fabric.RegionKey
	notice bool   // only the remote data goes through the stream
	inject []byte // the bytes of an OpInject op; the buffer is reused by the next op

	channel *channel         // the channel that carries the op or its answer
	staged  staging.Transfer // if the op is moved in pieces
	piece   *staging.Piece   // if the op is a piece
	entries int              // table entries of a read, while they count against its socket's credit
}

const (
	opUsed uint32 = 1 << iota
	opWritten
	opAnswered
	opBits = 1<<16 - 1
)

func (s *pendingOp) ticket() Ticket { return Ticket(s.state.Load()&^opBits | uint32(s.index)) }

func (s *pendingOp) begin() {
	s.unread.Store(false)
	s.state.Store(s.state.Load()&^opBits | opUsed)
}

// outcome returns how the op ended.
func (s *pendingOp) outcome() (fabric.Errno, string) {
	if s.unread.Load() {
		return socket.Unreadable, unreadableText
	}
	return s.errno, s.detail
}

// end makes the ticket invalid.
func (s *pendingOp) end() {
	s.state.Store(s.state.Load()&^opBits + 1<<16)
}

// replied reports whether the peer answers the op with a reply that has bytes. It answers other ops
// with an ack.
func (s *pendingOp) replied() bool {
	switch s.op.Kind {
	case fabric.OpRead, fabric.OpFetchAtomic, fabric.OpCompareAtomic:
		return true
	}
	return false
}

func (s *pendingOp) used() bool { return s.state.Load()&opUsed != 0 }

// mark sets bit and reports whether both bits are now set.
func (s *pendingOp) mark(bit uint32) bool {
	old := s.state.Or(bit)
	return old&bit == 0 && (old|bit)&(opWritten|opAnswered) == opWritten|opAnswered
}

// keepBytes copies the op's memory and points the op at the copy, so that the caller may reuse the
// memory after Submit.
func (s *pendingOp) keepBytes(most uint64) error {
	if s.inject == nil {
		s.inject = make([]byte, most)
	}
	s.inject = s.inject[:s.n]
	if err := socket.Gather(s.inject, &s.op); err != nil {
		return err
	}
	s.op.Seg, s.op.More = fabric.Seg{Addr: sys.AddrOf(s.inject), Len: s.n}, nil
	return nil
}

// A pendingOps has the pending ops of an endpoint, and free entries for more. Guarded by
// outbound.mu, except for lookup and at.
type pendingOps struct {
	all  []pendingOp
	free []uint16

	pieces     []pendingOp // follow the others, once the endpoint moves pieces
	freePieces []uint16
}

func newPendingOps(n int) pendingOps {
	t := pendingOps{all: make([]pendingOp, n), free: make([]uint16, n)}
	for i := range t.all {
		t.all[i].index = uint16(i)
		t.free[n-1-i] = uint16(i)
	}
	return t
}

// take returns a free entry, or nil.
func (t *pendingOps) take() *pendingOp {
	n := len(t.free)
	if n == 0 {
		return nil
	}
	s := &t.all[t.free[n-1]]
	t.free = t.free[:n-1]
	s.begin()
	return s
}

func (t *pendingOps) release(s *pendingOp) {
	s.end()
	s.op, s.channel, s.piece = fabric.Op{}, nil, nil
	if int(s.index) >= len(t.all) {
		t.freePieces = append(t.freePieces, s.index)
		return
	}
	t.free = append(t.free, s.index)
}

// addPieces allocates the entries for pieces.
func (t *pendingOps) addPieces() {
	if t.pieces != nil {
		return
	}
	t.pieces = make([]pendingOp, staging.MaxPieces)
	for i := range t.pieces {
		t.pieces[i].index = uint16(len(t.all) + i)
		t.freePieces = append(t.freePieces, t.pieces[i].index)
	}
}

// takePiece returns a free entry for a piece, or nil.
func (t *pendingOps) takePiece() *pendingOp {
	n := len(t.freePieces)
	if n == 0 {
		return nil
	}
	s := t.at(int(t.freePieces[n-1]))
	t.freePieces = t.freePieces[:n-1]
	s.begin()
	return s
}

// at returns the entry with index i, or nil.
func (t *pendingOps) at(i int) *pendingOp {
	if i < len(t.all) {
		return &t.all[i]
	}
	if i -= len(t.all); i < len(t.pieces) {
		return &t.pieces[i]
	}
	return nil
}

// lookup returns the op of a ticket that the peer or the DataPath named, if the op is in use and
// not answered.
func (t *pendingOps) lookup(k Ticket) *pendingOp {
	s := t.at(int(k & opBits))
	if s == nil {
		return nil
	}
	v := s.state.Load()
	if v&^opBits != uint32(k)&^opBits || v&opUsed == 0 || v&opAnswered != 0 {
		return nil
	}
	return s
}

// Reasons why an op's memory could not be used.
const (
	unreadableText = "the local buffer is not mapped: was it freed before the op ended?"
	unwritableText = "the local buffer is not mapped for writing: was it freed before the op ended?"
)
