// SPDX-License-Identifier: MIT

package stream

import (
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// A slot is the home of an op from Submit until it ended.
//
// An op of the stream has ended when two things happened, in whichever order they are noticed: its last byte was handed
// to the kernel (slotWritten), so nobody reads its memory any more, and the peer answered (slotAnswered). Whoever notices the
// second one completes it.
type slot struct {
	state  atomic.Uint32 // generation << 16 | bits
	index  uint16
	errno  fabric.Errno // of the answer
	detail string       // beside it
	unread atomic.Bool  // the pump could not read its memory, which goes before the answer

	op     fabric.Op
	n      uint64 // op.Len()
	key    fabric.RegionKey
	notice bool   // only the remote data goes through the stream
	inject []byte // the bytes of an OpInject op; its memory is the slot's, for the next one too

	channel *channel         // where it is, or will be answered
	staged  staging.Transfer // of an op in pieces
	piece   *staging.Piece   // of a slot for pieces
	entries int              // of a read's table, while it counts against its link's credit
}

const (
	slotUsed uint32 = 1 << iota
	slotWritten
	slotAnswered
	slotBits = 1<<16 - 1
)

func (s *slot) ticket() Ticket { return Ticket(s.state.Load()&^slotBits | uint32(s.index)) }

func (s *slot) begin() {
	s.unread.Store(false)
	s.state.Store(s.state.Load()&^slotBits | slotUsed)
}

// outcome is how the op ended, for who completes it.
func (s *slot) outcome() (fabric.Errno, string) {
	if s.unread.Load() {
		return socket.Unreadable, unreadableText
	}
	return s.errno, s.detail
}

// end makes the ticket invalid.
func (s *slot) end() {
	s.state.Store(s.state.Load()&^slotBits + 1<<16)
}

// replied reports whether the peer answers the op by a reply with bytes; others by an ack.
func (s *slot) replied() bool {
	switch s.op.Kind {
	case fabric.OpRead, fabric.OpFetchAtomic, fabric.OpCompareAtomic:
		return true
	}
	return false
}

func (s *slot) used() bool { return s.state.Load()&slotUsed != 0 }

// mark sets bit and reports whether now both are set.
func (s *slot) mark(bit uint32) bool {
	old := s.state.Or(bit)
	return old&bit == 0 && (old|bit)&(slotWritten|slotAnswered) == slotWritten|slotAnswered
}

// A slotTable holds the slots of an endpoint. Guarded by Endpoint.mu but for lookup.
type slotTable struct {
	all  []slot
	free []uint16

	pieces     []slot // behind the others, once there may be pieces
	freePieces []uint16
}

func newSlotTable(n int) slotTable {
	t := slotTable{all: make([]slot, n), free: make([]uint16, n)}
	for i := range t.all {
		t.all[i].index = uint16(i)
		t.free[n-1-i] = uint16(i)
	}
	return t
}

// take returns a free slot, or nil.
func (t *slotTable) take() *slot {
	n := len(t.free)
	if n == 0 {
		return nil
	}
	s := &t.all[t.free[n-1]]
	t.free = t.free[:n-1]
	s.begin()
	return s
}

func (t *slotTable) give(s *slot) {
	s.end()
	s.op, s.channel, s.piece = fabric.Op{}, nil, nil
	if int(s.index) >= len(t.all) {
		t.freePieces = append(t.freePieces, s.index)
		return
	}
	t.free = append(t.free, s.index)
}

// addPieces makes slots for pieces.
func (t *slotTable) addPieces() {
	if t.pieces != nil {
		return
	}
	t.pieces = make([]slot, staging.MaxPieces)
	for i := range t.pieces {
		t.pieces[i].index = uint16(len(t.all) + i)
		t.freePieces = append(t.freePieces, t.pieces[i].index)
	}
}

// takePiece returns a free slot for a piece, or nil.
func (t *slotTable) takePiece() *slot {
	n := len(t.freePieces)
	if n == 0 {
		return nil
	}
	s := t.at(int(t.freePieces[n-1]))
	t.freePieces = t.freePieces[:n-1]
	s.begin()
	return s
}

// at is the slot of an index, or nil.
func (t *slotTable) at(i int) *slot {
	if i < len(t.all) {
		return &t.all[i]
	}
	if i -= len(t.all); i < len(t.pieces) {
		return &t.pieces[i]
	}
	return nil
}

// lookup returns the slot of a ticket that came from outside, if it is in use and not answered.
func (t *slotTable) lookup(k Ticket) *slot {
	s := t.at(int(k & slotBits))
	if s == nil {
		return nil
	}
	v := s.state.Load()
	if v&^slotBits != uint32(k)&^slotBits || v&slotUsed == 0 || v&slotAnswered != 0 {
		return nil
	}
	return s
}

// Why memory of an op could not be used.
const (
	unreadableText = "the local buffer is not mapped: was it freed before the op ended?"
	unwritableText = "the local buffer is not mapped for writing: was it freed before the op ended?"
)
