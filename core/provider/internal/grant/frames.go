// SPDX-License-Identifier: MIT

package grant

import (
	"encoding/binary"
	"fmt"

	"mori/core/fabric"
)

// The kinds of extension frames (conn.DataPath.Frame) of this package. The provider's own kinds
// begin at FrameOwn.
const (
	FrameRequest uint8 = iota // initiator to target: ticket, key
	FrameGrant                // target to initiator: ticket, where the region is; answers a request, or is a share
	FrameRefuse               // target to initiator: ticket, errno
	FrameRevoke               // target to initiator: ticket
	FrameReturn               // initiator to target: ticket
	FrameOwn
)

// OnFrame passes a frame of the peer to the granter or the holder. It refuses the provider's own
// kinds.
func OnFrame[P any](g *Granter, h *Holder[P], kind uint8, body []byte) error {
	switch kind {
	case FrameRequest:
		return g.OnRequest(body)
	case FrameGrant:
		return h.OnGrant(body)
	case FrameRefuse:
		return h.OnRefuse(body)
	case FrameRevoke:
		return h.OnRevoke(body)
	case FrameReturn:
		return g.OnReturn(body)
	}
	return fmt.Errorf("extension frame of kind %d: %w", kind, fabric.ErrProtocol)
}

// ShareBit is set in the tickets of shares, which the Granter chooses. The Holder chooses the
// others.
const ShareBit = 1 << 63

const (
	ticketLen  = 8
	requestLen = ticketLen + 8 + 16
	refuseLen  = ticketLen + 4
)

func encodeTicket(ticket uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, ticketLen), ticket)
}

func parseTicket(what string, b []byte) (uint64, error) {
	if len(b) != ticketLen {
		return 0, wrongLen(what, b)
	}
	return binary.BigEndian.Uint64(b), nil
}

func encodeRequest(ticket uint64, key fabric.RegionKey) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, requestLen), ticket)
	b = binary.BigEndian.AppendUint64(b, key.ID)
	return append(b, key.Secret[:]...)
}

func parseRequest(b []byte) (ticket uint64, key fabric.RegionKey, err error) {
	if len(b) != requestLen {
		return 0, key, wrongLen("request", b)
	}
	key.ID = binary.BigEndian.Uint64(b[ticketLen:])
	copy(key.Secret[:], b[ticketLen+8:])
	return binary.BigEndian.Uint64(b), key, nil
}

func encodeGrant(ticket uint64, place []byte) []byte { return append(encodeTicket(ticket), place...) }

func parseGrant(b []byte) (ticket uint64, place []byte, err error) {
	if len(b) < ticketLen {
		return 0, nil, wrongLen("grant", b)
	}
	return binary.BigEndian.Uint64(b), b[ticketLen:], nil
}

func encodeRefuse(ticket uint64, why fabric.Errno) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, refuseLen), ticket)
	return binary.BigEndian.AppendUint32(b, uint32(why))
}

func parseRefuse(b []byte) (ticket uint64, why fabric.Errno, err error) {
	if len(b) != refuseLen {
		return 0, 0, wrongLen("refuse", b)
	}
	if why = fabric.Errno(binary.BigEndian.Uint32(b[ticketLen:])); why <= 0 {
		return 0, 0, fmt.Errorf("refusal without a cause: %w", fabric.ErrProtocol)
	}
	return binary.BigEndian.Uint64(b), why, nil
}

func wrongLen(what string, b []byte) error {
	return fmt.Errorf("%s frame of %d bytes: %w", what, len(b), fabric.ErrProtocol)
}
