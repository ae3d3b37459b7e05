// SPDX-License-Identifier: MIT

package frame

import (
	"encoding/binary"

	"mori/core/fabric"
)

// The entries that follow a header: segments of a table, answers of an ack, the trailer of a reply.

// PutSegment encodes a segment into the first SegmentLen bytes of b.
func PutSegment(b []byte, offset, n uint64) {
	binary.BigEndian.PutUint64(b, offset)
	binary.BigEndian.PutUint64(b[8:], n)
}

// PutTable encodes the count remote segments of op. A notice has none.
func PutTable(b []byte, op *fabric.Op, count int) {
	if count == 0 {
		return
	}
	PutSegment(b, op.RSeg.Addr, op.RSeg.Len)
	for i := range op.RMore {
		PutSegment(b[(i+1)*SegmentLen:], op.RMore[i].Addr, op.RMore[i].Len)
	}
}

// AppendSegments decodes the complete entries of b, appends them to dst and adds their lengths to
// total. It returns an error if total exceeds limit.
func AppendSegments(dst []fabric.RSeg, b []byte, total *uint64, limit uint64) ([]fabric.RSeg, error) {
	for ; len(b) >= SegmentLen; b = b[SegmentLen:] {
		n := binary.BigEndian.Uint64(b[8:])
		if n > limit-*total {
			return dst, ProtocolErr("segments of more than %d bytes", limit)
		}
		*total += n
		dst = append(dst, fabric.RSeg{Addr: binary.BigEndian.Uint64(b), Len: n})
	}
	return dst, nil
}

// An Ack reports how one operation ended.
type Ack struct {
	Ticket uint32
	Errno  fabric.Errno
}

// Put encodes a into the first AckLen bytes of b.
func (a Ack) Put(b []byte) {
	binary.BigEndian.PutUint32(b, a.Ticket)
	binary.BigEndian.PutUint32(b[4:], uint32(a.Errno))
}

// ParseAck decodes the first AckLen bytes of b.
func ParseAck(b []byte) Ack {
	return Ack{binary.BigEndian.Uint32(b), Errno(uint64(binary.BigEndian.Uint32(b[4:])))}
}

// Errno returns the errno that a peer sent, or ErrOther if v is not a valid errno.
func Errno(v uint64) fabric.Errno {
	if v > 4095 {
		return fabric.ErrOther
	}
	return fabric.Errno(v)
}

// PutTrailer encodes a trailer into the first TrailerLen bytes of b.
func PutTrailer(b []byte, errno fabric.Errno) {
	binary.BigEndian.PutUint32(b, uint32(errno))
	binary.BigEndian.PutUint32(b[4:], Checksum(0, b[:4]))
}

// ParseTrailer decodes the first TrailerLen bytes of b. It returns false if their checksum is
// wrong.
func ParseTrailer(b []byte) (fabric.Errno, bool) {
	if Checksum(0, b[:4]) != binary.BigEndian.Uint32(b[4:]) {
		return 0, false
	}
	return Errno(uint64(binary.BigEndian.Uint32(b))), true
}
