// SPDX-License-Identifier: MIT

package p2p

import (
	"encoding/binary"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/internal/stream"
)

// The frames that p2p adds to the stream. A loan is asked for; a share is lent unasked, so that the peer can copy on our behalf. Both
// are called in by who lent them and given back when nothing is copied under them any more.
const (
	frameAsk    = iota // askFrame
	frameLend          // answer to an ask: lendFrame; or a share
	frameRefuse        // answer to an ask: refuseFrame
	frameRevoke        // ticket
	frameReturn        // ticket; no byte moves under this loan any more
	frameOrder         // orderFrame, a part of an order: copy between a share of ours and a region of yours
	frameDone          // answer to an order: doneFrame
)

// shareBit is set in the tickets of shares, which who lends them draws; those of loans are drawn by who asks.
const shareBit = 1 << 63

type askFrame struct {
	ticket uint64
	key    fabric.RegionKey
}

// A lendFrame tells where a region is.
type lendFrame struct {
	ticket uint64
	place  place
}

// A refuseFrame tells why there is no loan.
type refuseFrame struct {
	ticket uint64
	err    fabric.Errno
}

// An orderPart is a run of bytes: at an offset of a share, and at one of a region.
type orderPart struct{ share, region, n uint64 }

// An orderFrame is a piece of an order, the last if last is set.
type orderFrame struct {
	number uint64
	share  uint64 // ticket
	key    fabric.RegionKey
	write  bool // from the share to the region
	last   bool
	parts  []orderPart
}

// A doneFrame ends an order: with 0, an errno, or unable: no byte was copied, and it is to go another way.
type doneFrame struct {
	number uint64
	err    fabric.Errno
	unable bool
	text   string
}

const (
	keyLen    = 8 + 16
	askLen    = 8 + keyLen
	refuseLen = 8 + 4
	ticketLen = 8
	placeLen  = 8 + 8 + 4 + 1 + 1 + len(device.IPCHandle{}.Handle) + 8 + 8
	orderHead = 8 + 8 + keyLen + 1
	partLen   = 3 * 8
	doneHead  = 8 + 4 + 1

	// partsOfFrame are the parts that one frame has room for.
	partsOfFrame = (stream.MaxExtension - orderHead) / partLen

	maxText = 512 // of a cause in words
	maxUUID = 64
)

const (
	orderWrite = 1 << iota
	orderLast
	orderKnown = 1<<iota - 1
)

func putKey(b []byte, k fabric.RegionKey) []byte {
	return append(binary.BigEndian.AppendUint64(b, k.ID), k.Secret[:]...)
}

func getKey(b []byte) (k fabric.RegionKey) {
	k.ID = binary.BigEndian.Uint64(b)
	copy(k.Secret[:], b[8:])
	return k
}

func (f askFrame) encode() []byte {
	return putKey(binary.BigEndian.AppendUint64(make([]byte, 0, askLen), f.ticket), f.key)
}

func parseAsk(b []byte) (f askFrame, err error) {
	if err := wantLen("ask", b, askLen); err != nil {
		return f, err
	}
	return askFrame{binary.BigEndian.Uint64(b), getKey(b[8:])}, nil
}

func (f lendFrame) encode() []byte {
	p := &f.place
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+placeLen+maxUUID+maxText), f.ticket)
	b = binary.BigEndian.AppendUint64(b, p.addr)
	b = binary.BigEndian.AppendUint64(b, p.size)
	b = binary.BigEndian.AppendUint32(b, uint32(p.access))
	b = append(b, byte(p.kind), byte(min(len(p.uuid), maxUUID)))
	b = append(b, p.ipc.Handle[:]...)
	b = binary.BigEndian.AppendUint64(b, p.ipc.Offset)
	b = binary.BigEndian.AppendUint64(b, p.ipc.Bytes)
	b = append(b, p.uuid[:min(len(p.uuid), maxUUID)]...)
	return append(b, p.why[:min(len(p.why), maxText)]...)
}

func parseLend(b []byte) (f lendFrame, err error) {
	if len(b) < 8+placeLen || len(b) > 8+placeLen+maxUUID+maxText {
		return f, fmt.Errorf("lend frame of %d bytes: %w", len(b), fabric.ErrProtocol)
	}
	p := &f.place
	f.ticket, p.addr, p.size = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	p.access, p.kind = fabric.Access(binary.BigEndian.Uint32(b[24:])), fabric.MemKind(b[28])
	uuid := int(b[29])
	b = b[30:]
	copy(p.ipc.Handle[:], b)
	b = b[len(p.ipc.Handle):]
	p.ipc.Offset, p.ipc.Bytes = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	b = b[16:]
	if uuid > len(b) || p.kind > fabric.MemHIP || p.addr+p.size < p.addr {
		return f, fmt.Errorf("loan of %d bytes at %#x of kind %d: %w", p.size, p.addr, p.kind, fabric.ErrProtocol)
	}
	if p.exported() && (p.ipc.Offset > p.ipc.Bytes || p.size > p.ipc.Bytes-p.ipc.Offset) {
		return f, fmt.Errorf("loan of %d bytes at %d of an allocation of %d: %w", p.size, p.ipc.Offset, p.ipc.Bytes, fabric.ErrProtocol)
	}
	p.uuid, p.why = string(b[:uuid]), string(b[uuid:])
	return f, nil
}

func (f refuseFrame) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, refuseLen), f.ticket)
	return binary.BigEndian.AppendUint32(b, uint32(f.err))
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

// append encodes f, whose parts are partsOfFrame at most.
func (f *orderFrame) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, f.number)
	b = binary.BigEndian.AppendUint64(b, f.share)
	b = putKey(b, f.key)
	flags := byte(0)
	if f.write {
		flags |= orderWrite
	}
	if f.last {
		flags |= orderLast
	}
	b = append(b, flags)
	for _, p := range f.parts {
		b = binary.BigEndian.AppendUint64(b, p.share)
		b = binary.BigEndian.AppendUint64(b, p.region)
		b = binary.BigEndian.AppendUint64(b, p.n)
	}
	return b
}

// parseOrder appends the frame's parts to parts.
func parseOrder(b []byte, parts []orderPart) (f orderFrame, err error) {
	if len(b) < orderHead || (len(b)-orderHead)%partLen != 0 || b[orderHead-1]&^orderKnown != 0 {
		return f, fmt.Errorf("order frame of %d bytes: %w", len(b), fabric.ErrProtocol)
	}
	f.number, f.share, f.key = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), getKey(b[16:])
	f.write, f.last = b[orderHead-1]&orderWrite != 0, b[orderHead-1]&orderLast != 0
	for b = b[orderHead:]; len(b) > 0; b = b[partLen:] {
		parts = append(parts, orderPart{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])})
	}
	f.parts = parts
	return f, nil
}

func (f doneFrame) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, doneHead+maxText), f.number)
	b = binary.BigEndian.AppendUint32(b, uint32(f.err))
	unable := byte(0)
	if f.unable {
		unable = 1
	}
	return append(append(b, unable), f.text[:min(len(f.text), maxText)]...)
}

func parseDone(b []byte) (f doneFrame, err error) {
	if len(b) < doneHead || len(b) > doneHead+maxText || b[doneHead-1] > 1 {
		return f, fmt.Errorf("done frame of %d bytes: %w", len(b), fabric.ErrProtocol)
	}
	f.number, f.err, f.unable = binary.BigEndian.Uint64(b), fabric.Errno(binary.BigEndian.Uint32(b[8:])), b[12] != 0
	if f.err < 0 {
		return f, fmt.Errorf("done frame with errno %d: %w", f.err, fabric.ErrProtocol)
	}
	f.text = string(b[doneHead:])
	return f, nil
}

func encodeTicket(ticket uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, ticketLen), ticket)
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
