// SPDX-License-Identifier: MIT

package p2p

import (
	"encoding/binary"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/grant"
)

// The frames that p2p adds to the stream, in addition to those of package grant.
const (
	frameOrder = grant.FrameOwn + iota // orderFrame, a part of an order: a copy between the sender's share and the receiver's region
	frameDone                          // doneFrame, the reply to an order
)

// An orderPart is a range of bytes, given by its offset in a share and its offset in a region.
type orderPart struct{ share, region, n uint64 }

// An orderFrame is a part of an order. last marks the final part.
type orderFrame struct {
	number uint64
	share  uint64 // ticket
	key    fabric.RegionKey
	write  bool // from the share to the region
	last   bool
	parts  []orderPart
}

// A doneFrame ends an order: with 0, with an errno, or with unable. unable means that no byte was
// copied and that the stream has to carry the op.
type doneFrame struct {
	number uint64
	err    fabric.Errno
	unable bool
	text   string
}

const (
	keyLen       = 8 + 16
	regionRefLen = 8 + 8 + 4 + 1 + 1 + len(device.IPCHandle{}.Handle) + 8 + 8
	orderHead    = 8 + 8 + keyLen + 1
	partLen      = 3 * 8
	doneHead     = 8 + 4 + 1

	// partsOfFrame is the most parts of a frame.
	partsOfFrame = (frame.MaxExtension - orderHead) / partLen

	maxText = 512 // bytes of the text of a cause
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

// encode returns the body of a grant, without its ticket.
func (r *regionRef) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, regionRefLen+maxUUID+maxText), r.addr)
	b = binary.BigEndian.AppendUint64(b, r.size)
	b = binary.BigEndian.AppendUint32(b, uint32(r.access))
	b = append(b, byte(r.kind), byte(min(len(r.uuid), maxUUID)))
	b = append(b, r.ipc.Handle[:]...)
	b = binary.BigEndian.AppendUint64(b, r.ipc.Offset)
	b = binary.BigEndian.AppendUint64(b, r.ipc.Bytes)
	b = append(b, r.uuid[:min(len(r.uuid), maxUUID)]...)
	return append(b, r.why[:min(len(r.why), maxText)]...)
}

// parseRegionRef is the inverse of encode. The bytes are untrusted.
func parseRegionRef(b []byte) (r regionRef, err error) {
	if len(b) < regionRefLen || len(b) > regionRefLen+maxUUID+maxText {
		return r, fmt.Errorf("region reference of %d bytes: %w", len(b), fabric.ErrProtocol)
	}
	r.addr, r.size = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	r.access, r.kind = fabric.Access(binary.BigEndian.Uint32(b[16:])), fabric.MemKind(b[20])
	uuid := int(b[21])
	b = b[22:]
	copy(r.ipc.Handle[:], b)
	b = b[len(r.ipc.Handle):]
	r.ipc.Offset, r.ipc.Bytes = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	b = b[16:]
	if uuid > len(b) || r.kind > fabric.MemHIP || r.addr+r.size < r.addr {
		return r, fmt.Errorf("grant of %d bytes at %#x of kind %d: %w", r.size, r.addr, r.kind, fabric.ErrProtocol)
	}
	if r.exported() && (r.ipc.Offset > r.ipc.Bytes || r.size > r.ipc.Bytes-r.ipc.Offset) {
		return r, fmt.Errorf("grant of %d bytes at %d of an allocation of %d: %w", r.size, r.ipc.Offset, r.ipc.Bytes, fabric.ErrProtocol)
	}
	r.uuid, r.why = string(b[:uuid]), string(b[uuid:])
	return r, nil
}

// append encodes f, which has at most partsOfFrame parts.
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
