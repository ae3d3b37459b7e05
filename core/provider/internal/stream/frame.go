// SPDX-License-Identifier: MIT

package stream

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"mori/core/fabric"
)

// A frame is a header, a table of segments (write and read), and a payload. All numbers are big endian.
//
//	 0 magic    u32       16 length u64    payload bytes, which follow; offer, pull, read, atomic: bytes meant
//	 4 version  u8        24 region u64    write, read, atomic: RegionKey.ID
//	 5 kind     u8        32 secret [16]   write, read, atomic: RegionKey.Secret
//	 6 flags    u16       48 data   u64    remote data; pull, body: the receiver's handle; reply: errno; credit: bytes; atomic: offset
//	 8 ticket   u32       56 table  u32    crc32c of the table; ack, extension, atomic: of what follows
//	12 count    u32       60 sum    u32    crc32c of the payload, with flagSum
//	                      64 packed u32    bytes of the payload on the wire, with flagZstd
//	                      68 check  u32    crc32c of the 68 bytes before
//
// count is the number of table entries {offset u64, len u64}, or of entries {ticket u32, errno u32} of an ack, or an atomicCode. All numbers
// that steer where bytes go are always checked; the bytes themselves where one side wants it (sum.go).

const (
	frameMagic  = 0x6d6f7269
	headerLen   = 72
	checkAt     = headerLen - 4
	segmentLen  = 16
	ackEntryLen = 8
)

type frameKind uint8

const (
	kindSend      frameKind = 1 + iota // a message with its payload
	kindOffer                          // a message too large to be sent unasked
	kindPull                           // answer to an offer: send length bytes to the handle in data
	kindBody                           // answer to a pull: the payload
	kindWrite                          // payload into a region
	kindRead                           // payload wanted from a region
	kindReply                          // answer to a read: the payload, or an errno
	kindAck                            // ops that ended
	kindCredit                         // messages and bytes consumed so far
	kindGoodbye                        // the last frame
	kindExtension                      // a body for Direct.Frame; count is its kind
	kindAtomic                         // an atomic op on a region, with its operand and comparison
	kindTurn                           // the last of link 0 that has to do with messages: the next ones come on the wire
	kindEnd
)

var frameKindText = [...]string{kindSend: "send", kindOffer: "offer", kindPull: "pull", kindBody: "body", kindWrite: "write", kindRead: "read",
	kindReply: "reply", kindAck: "ack", kindCredit: "credit", kindGoodbye: "goodbye", kindExtension: "extension",
	kindAtomic: "atomic", kindTurn: "turn"}

func (k frameKind) String() string {
	if k > 0 && k < kindEnd {
		return frameKindText[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// The frame flags.
const (
	flagRemoteData = 1 << iota // data is for the peer's completion
	flagNotice                 // write: the payload went another way and only data is to be told
	flagPlaced                 // send: answer when the message is in the memory of a receive
	flagSum                    // write, send, body, reply: sum is that of the payload; read, offer: the answer shall have one
	flagZstd                   // write, reply: the payload comes as a zstd frame of packed bytes
	flagTrailer                // reply: a trailer {errno u32, crc32c of that u32} follows the payload
	flagVoid                   // write: the sender could not read the payload, which is filler
	flagsKnown     = flagRemoteData | flagNotice | flagPlaced | flagSum | flagZstd | flagTrailer | flagVoid
)

// The bounds of the protocol, the same on both sides.
const (
	maxSegments    = 1 << 16   // table entries of one frame: 1 MiB of table
	maxMsg         = 1 << 30   // bytes of one op
	maxAckEntries  = 512       // entries of one ack frame
	maxEager       = 256 << 10 // a ping-pong of 256 KiB: 45 µs one way, 58 µs by offer and pull
	eagerBytes     = 1 << 20   // eager bytes that the peer has not consumed
	eagerMsgs      = 256       // messages that the peer has not consumed
	maxReads       = 64        // reads on their way on one link
	maxReadEntries = 2 * maxSegments
)

type header struct {
	kind   frameKind
	flags  uint16
	ticket uint32
	count  uint32
	length uint64
	region uint64
	secret [16]byte
	data   uint64
	table  uint32
	sum    uint32
	packed uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// put encodes h into the first headerLen bytes of b.
func (h *header) put(b []byte) {
	b = b[:headerLen]
	binary.BigEndian.PutUint32(b, frameMagic)
	b[4], b[5] = protocolVersion, byte(h.kind)
	binary.BigEndian.PutUint16(b[6:], h.flags)
	binary.BigEndian.PutUint32(b[8:], h.ticket)
	binary.BigEndian.PutUint32(b[12:], h.count)
	binary.BigEndian.PutUint64(b[16:], h.length)
	binary.BigEndian.PutUint64(b[24:], h.region)
	copy(b[32:48], h.secret[:])
	binary.BigEndian.PutUint64(b[48:], h.data)
	binary.BigEndian.PutUint32(b[56:], h.table)
	binary.BigEndian.PutUint32(b[60:], h.sum)
	binary.BigEndian.PutUint32(b[64:], h.packed)
	binary.BigEndian.PutUint32(b[checkAt:], crc32.Checksum(b[:checkAt], castagnoli))
}

// parseHeader decodes and checks a header. The bytes come from outside: any input is answered, none trusted.
func parseHeader(h *header, b []byte) error {
	if len(b) < headerLen {
		return protocolErr("frame header of %d bytes", len(b))
	}
	b = b[:headerLen]
	if m := binary.BigEndian.Uint32(b); m != frameMagic {
		return protocolErr("frame magic %#x", m)
	}
	if b[4] != protocolVersion {
		return protocolErr("frame of version %d", b[4])
	}
	if crc32.Checksum(b[:checkAt], castagnoli) != binary.BigEndian.Uint32(b[checkAt:]) {
		return fmt.Errorf("frame header: %w", fabric.ErrCRC)
	}
	h.kind = frameKind(b[5])
	h.flags = binary.BigEndian.Uint16(b[6:])
	h.ticket = binary.BigEndian.Uint32(b[8:])
	h.count = binary.BigEndian.Uint32(b[12:])
	h.length = binary.BigEndian.Uint64(b[16:])
	h.region = binary.BigEndian.Uint64(b[24:])
	copy(h.secret[:], b[32:48])
	h.data = binary.BigEndian.Uint64(b[48:])
	h.table = binary.BigEndian.Uint32(b[56:])
	h.sum = binary.BigEndian.Uint32(b[60:])
	h.packed = binary.BigEndian.Uint32(b[64:])
	return h.check()
}

// check tells whether the numbers of h are possible for its kind.
func (h *header) check() error {
	var count, length uint64
	switch h.kind {
	case kindSend:
		length = maxEager
	case kindOffer, kindPull, kindBody, kindReply:
		length = maxMsg
	case kindWrite, kindRead:
		count, length = maxSegments, maxMsg
	case kindAck:
		count = maxAckEntries
	case kindExtension:
		count, length = 255, MaxExtension
	case kindAtomic:
		if err := atomicCode(h.count).check(h.length); err != nil {
			return err
		}
		count, length = uint64(h.count), h.length
	case kindCredit, kindGoodbye, kindTurn:
	default:
		return protocolErr("frame of %v", h.kind)
	}
	switch {
	case uint64(h.count) > count:
		return protocolErr("%v frame with %d entries, more than %d", h.kind, h.count, count)
	case h.length > length:
		return protocolErr("%v frame of %d bytes, more than %d", h.kind, h.length, length)
	case h.flags&^flagsKnown != 0:
		return protocolErr("%v frame with flags %#x", h.kind, h.flags)
	case h.flags&flagTrailer != 0 && (h.kind != kindReply || h.length == 0 || h.flags&flagZstd != 0):
		return protocolErr("%v frame of %d bytes with a trailer", h.kind, h.length)
	case h.flags&flagVoid != 0 && (h.kind != kindWrite || h.flags&(flagNotice|flagZstd) != 0):
		return protocolErr("%v frame with flags %#x without payload", h.kind, h.flags)
	case h.kind == kindRead && h.count == 0:
		return protocolErr("read frame without a segment")
	}
	return h.checkPacked()
}

// checkPacked tells whether the payload may come so packed as h says: to fewer bytes, of no more than maxPack.
func (h *header) checkPacked() error {
	switch {
	case h.flags&flagZstd == 0:
		if h.packed != 0 {
			return protocolErr("%v frame of %d packed bytes without the flag", h.kind, h.packed)
		}
	case h.kind != kindReply && (h.kind != kindWrite || h.flags&flagNotice != 0):
		return protocolErr("%v frame with packed payload", h.kind)
	case h.length > maxPack || h.packed == 0 || uint64(h.packed) >= h.length:
		return protocolErr("%v frame of %d bytes packed to %d", h.kind, h.length, h.packed)
	}
	return nil
}

// wire is how many bytes the payload has on the wire, where length is that of what follows.
func (h *header) wire() uint64 {
	if h.flags&flagZstd != 0 {
		return uint64(h.packed)
	}
	return h.length
}

func putSegment(b []byte, offset, n uint64) {
	binary.BigEndian.PutUint64(b, offset)
	binary.BigEndian.PutUint64(b[8:], n)
}

// appendSegments decodes the whole entries of b, adding their lengths to total, which may not pass limit.
func appendSegments(dst []fabric.RSeg, b []byte, total *uint64, limit uint64) ([]fabric.RSeg, error) {
	for ; len(b) >= segmentLen; b = b[segmentLen:] {
		n := binary.BigEndian.Uint64(b[8:])
		if n > limit-*total {
			return dst, protocolErr("segments of more than %d bytes", limit)
		}
		*total += n
		dst = append(dst, fabric.RSeg{Addr: binary.BigEndian.Uint64(b), Len: n})
	}
	return dst, nil
}

type ackEntry struct {
	ticket uint32
	errno  fabric.Errno
}

func (a ackEntry) put(b []byte) {
	binary.BigEndian.PutUint32(b, a.ticket)
	binary.BigEndian.PutUint32(b[4:], uint32(a.errno))
}

func parseAck(b []byte) ackEntry {
	return ackEntry{binary.BigEndian.Uint32(b), wireErrno(uint64(binary.BigEndian.Uint32(b[4:])))}
}

// wireErrno is the Errno that a peer sent; whatever is none is ErrOther.
func wireErrno(v uint64) fabric.Errno {
	if v > 4095 {
		return fabric.ErrOther
	}
	return fabric.Errno(v)
}

func protocolErr(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, fabric.ErrProtocol)...)
}
