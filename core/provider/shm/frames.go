// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"fmt"

	"mori/core/fabric"
)

// The frames that shm adds to the stream. The initiator asks for a loan of a region and returns it when the target
// revokes it; wake and space belong to the rings.
const (
	frameAsk    = iota // initiator to target: askFrame
	frameLend          // target to initiator: lendFrame
	frameRefuse        // target to initiator: refuseFrame
	frameRevoke        // target to initiator: ticket
	frameReturn        // initiator to target: ticket; no byte moves under this loan any more
	frameWake          // producer to consumer: an entry is in your inbound ring
	frameSpace         // consumer to producer: there is room in your outbound ring
)

// An askFrame asks for the loan of a region. The ticket is the initiator's name for the loan on this connection.
type askFrame struct {
	ticket uint64
	key    fabric.RegionKey
}

// A lendFrame tells where the region is in the target's memory, and what may be done there.
type lendFrame struct {
	ticket, base, size uint64
	access             fabric.Access
}

// A refuseFrame tells why there is no loan.
type refuseFrame struct {
	ticket uint64
	err    fabric.Errno
}

const (
	askLen    = 8 + 8 + 16
	lendLen   = 8 + 8 + 8 + 4
	refuseLen = 8 + 4
	ticketLen = 8
)

func (f askFrame) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, askLen), f.ticket)
	b = binary.BigEndian.AppendUint64(b, f.key.ID)
	return append(b, f.key.Secret[:]...)
}

func (f lendFrame) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, lendLen), f.ticket)
	b = binary.BigEndian.AppendUint64(b, f.base)
	b = binary.BigEndian.AppendUint64(b, f.size)
	return binary.BigEndian.AppendUint32(b, uint32(f.access))
}

func (f refuseFrame) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, refuseLen), f.ticket)
	return binary.BigEndian.AppendUint32(b, uint32(f.err))
}

func encodeTicket(ticket uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, ticketLen), ticket)
}

func parseAsk(b []byte) (f askFrame, err error) {
	if err := wantLen("ask", b, askLen); err != nil {
		return f, err
	}
	f.ticket, f.key.ID = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	copy(f.key.Secret[:], b[16:])
	return f, nil
}

func parseLend(b []byte) (f lendFrame, err error) {
	if err := wantLen("lend", b, lendLen); err != nil {
		return f, err
	}
	f.ticket, f.base, f.size = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	f.access = fabric.Access(binary.BigEndian.Uint32(b[24:]))
	if f.base+f.size < f.base {
		return f, fmt.Errorf("loan of %d bytes at %#x: %w", f.size, f.base, fabric.ErrProtocol)
	}
	return f, nil
}

func parseRefuse(b []byte) (f refuseFrame, err error) {
	if err := wantLen("refuse", b, refuseLen); err != nil {
		return f, err
	}
	f.ticket, f.err = binary.BigEndian.Uint64(b), fabric.Errno(binary.BigEndian.Uint32(b[8:]))
	if f.err <= 0 {
		return f, fmt.Errorf("refusal without a cause: %w", fabric.ErrProtocol)
	}
	return f, nil
}

func parseTicket(b []byte) (uint64, error) {
	if err := wantLen("ticket", b, ticketLen); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b), nil
}

func wantLen(what string, b []byte, n int) error {
	if len(b) != n {
		return fmt.Errorf("%s frame of %d bytes, want %d: %w", what, len(b), n, fabric.ErrProtocol)
	}
	return nil
}
