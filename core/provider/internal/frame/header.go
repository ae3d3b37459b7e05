// SPDX-License-Identifier: MIT

package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"mori/core/fabric"
)

// A frame is a header, a table of segments (write and read), and a payload. All numbers are big
// endian.
//
//	 0 magic    u32       16 length u64       payload bytes, which follow; for offer, pull, read and
//	 4 version  u8                            atomic: bytes to transfer
//	 5 kind     u8        24 region u64       write, read, atomic: RegionKey.ID
//	 6 flags    u16       32 secret [16]      write, read, atomic: RegionKey.Secret
//	 8 ticket   u32       48 data   u64       remote data; see below
//	12 count    u32       56 table  u32       crc32c of the table; of ack, extension and atomic: of
//	                                          what follows
//	                      60 checksum u32     crc32c of the payload, with FlagChecksum
//	                      64 compressed u32   bytes of the payload on the wire, with FlagCompressed
//	                      68 check  u32       crc32c of the 68 bytes before
//
// Data is the receiver's handle of a pull or body, the errno of a reply, the bytes consumed of a
// credit, and the offset of an atomic.
//
// Count is the number of entries of the table {offset u64, len u64} or of an ack {ticket u32, errno
// u32}, or an AtomicCode. Numbers that decide where bytes are written always have a checksum. The
// payload has one if either side asks for it.

// The layout of a frame.
const (
	Magic      = 0x6d6f7269
	HeaderLen  = 72
	CheckAt    = HeaderLen - 4 // offset of the checksum of the header
	SegmentLen = 16
	AckLen     = 8
	TrailerLen = 8
)

// A Kind is the type of a frame.
type Kind uint8

// The kinds of frames.
const (
	KindSend      Kind = 1 + iota // a message with its payload
	KindOffer                     // a message too large to send without a posted receive
	KindPull                      // answer to an offer: send length bytes to the handle in data
	KindBody                      // answer to a pull: the payload
	KindWrite                     // payload into a region
	KindRead                      // request for payload from a region
	KindReply                     // answer to a read: the payload, or an errno
	KindAck                       // ops that have ended
	KindCredit                    // messages and bytes consumed so far
	KindGoodbye                   // the last frame
	KindExtension                 // a frame of the provider; Count is its kind
	KindAtomic                    // an atomic operation on a region, with operand and comparison
	KindTurn                      // the last message frame of socket 0: the next use the short path
	KindEnd
)

var kindText = [...]string{
	KindSend: "send", KindOffer: "offer", KindPull: "pull", KindBody: "body", KindWrite: "write",
	KindRead: "read", KindReply: "reply", KindAck: "ack", KindCredit: "credit",
	KindGoodbye: "goodbye", KindExtension: "extension", KindAtomic: "atomic", KindTurn: "turn",
}

func (k Kind) String() string {
	if k > 0 && k < KindEnd {
		return kindText[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// The flags of a frame.
const (
	FlagRemoteData = 1 << iota // Data goes into the peer's completion
	FlagNotice                 // write: the payload used another path; only Data is delivered
	FlagPlaced                 // send: answer once the message is in the memory of a receive
	FlagChecksum               // Checksum is valid; read, offer: the answer must have one
	FlagCompressed             // write, reply: the payload is a zstd frame of Compressed bytes
	FlagTrailer                // reply: a trailer {errno u32, crc32c of that u32} follows the payload
	FlagVoid                   // write: the sender could not read the payload, and sends filler
	flagsKnown     = FlagRemoteData | FlagNotice | FlagPlaced | FlagChecksum | FlagCompressed | FlagTrailer | FlagVoid
)

// The bounds of the protocol, the same on both sides.
const (
	MaxSegments     = 1 << 16         // table entries of one frame: 1 MiB of table
	MaxMsg          = 1 << 30         // bytes of one operation
	MaxAcks         = 512             // entries of one ack frame
	MaxEager        = 256 << 10       // larger messages are offered: 256 KiB take 58 µs, eager 45 µs
	MaxReads        = 64              // reads pending on one link
	MaxReadSegments = 2 * MaxSegments // table entries of those reads
	MaxLinks        = 8               // sockets of one connection
	MaxExtension    = 4096            // bytes of the body of one extension frame
	MaxCompress     = 4 << 20         // bytes of a payload that may be sent compressed
)

// A Header is the fixed part of a frame.
type Header struct {
	Kind          Kind
	Flags         uint16
	Ticket        uint32
	Count         uint32
	Length        uint64
	Region        uint64
	Secret        [16]byte
	Data          uint64
	TableChecksum uint32
	Checksum      uint32
	Compressed    uint32
}

// Put encodes h into the first HeaderLen bytes of b.
func (h *Header) Put(b []byte) {
	b = b[:HeaderLen]
	binary.BigEndian.PutUint32(b, Magic)
	b[4], b[5] = Version, byte(h.Kind)
	binary.BigEndian.PutUint16(b[6:], h.Flags)
	binary.BigEndian.PutUint32(b[8:], h.Ticket)
	binary.BigEndian.PutUint32(b[12:], h.Count)
	binary.BigEndian.PutUint64(b[16:], h.Length)
	binary.BigEndian.PutUint64(b[24:], h.Region)
	copy(b[32:48], h.Secret[:])
	binary.BigEndian.PutUint64(b[48:], h.Data)
	binary.BigEndian.PutUint32(b[56:], h.TableChecksum)
	binary.BigEndian.PutUint32(b[60:], h.Checksum)
	binary.BigEndian.PutUint32(b[64:], h.Compressed)
	binary.BigEndian.PutUint32(b[CheckAt:], crc32.Checksum(b[:CheckAt], castagnoli))
}

// ParseHeader decodes b into h. It accepts any input. Its error wraps fabric.ErrCRC if the checksum
// is wrong, or fabric.ErrProtocol if a number is impossible for the kind of frame.
func ParseHeader(h *Header, b []byte) error {
	if len(b) < HeaderLen {
		return ProtocolErr("frame header of %d bytes", len(b))
	}
	b = b[:HeaderLen]
	if m := binary.BigEndian.Uint32(b); m != Magic {
		return ProtocolErr("frame magic %#x", m)
	}
	if b[4] != Version {
		return ProtocolErr("frame of version %d", b[4])
	}
	if crc32.Checksum(b[:CheckAt], castagnoli) != binary.BigEndian.Uint32(b[CheckAt:]) {
		return fmt.Errorf("frame header: %w", fabric.ErrCRC)
	}
	h.Kind = Kind(b[5])
	h.Flags = binary.BigEndian.Uint16(b[6:])
	h.Ticket = binary.BigEndian.Uint32(b[8:])
	h.Count = binary.BigEndian.Uint32(b[12:])
	h.Length = binary.BigEndian.Uint64(b[16:])
	h.Region = binary.BigEndian.Uint64(b[24:])
	copy(h.Secret[:], b[32:48])
	h.Data = binary.BigEndian.Uint64(b[48:])
	h.TableChecksum = binary.BigEndian.Uint32(b[56:])
	h.Checksum = binary.BigEndian.Uint32(b[60:])
	h.Compressed = binary.BigEndian.Uint32(b[64:])
	return h.check()
}

// check returns an error if the numbers of h are impossible for its kind.
func (h *Header) check() error {
	var count, length uint64
	switch h.Kind {
	case KindSend:
		length = MaxEager
	case KindOffer, KindPull, KindBody, KindReply:
		length = MaxMsg
	case KindWrite, KindRead:
		count, length = MaxSegments, MaxMsg
	case KindAck:
		count = MaxAcks
	case KindExtension:
		count, length = 255, MaxExtension
	case KindAtomic:
		if err := AtomicCode(h.Count).check(h.Length); err != nil {
			return err
		}
		count, length = uint64(h.Count), h.Length
	case KindCredit, KindGoodbye, KindTurn:
	default:
		return ProtocolErr("frame of %v", h.Kind)
	}
	switch {
	case uint64(h.Count) > count:
		return ProtocolErr("%v frame with %d entries, more than %d", h.Kind, h.Count, count)
	case h.Length > length:
		return ProtocolErr("%v frame of %d bytes, more than %d", h.Kind, h.Length, length)
	case h.Flags&^flagsKnown != 0:
		return ProtocolErr("%v frame with flags %#x", h.Kind, h.Flags)
	case h.Flags&FlagTrailer != 0 && (h.Kind != KindReply || h.Length == 0 || h.Flags&FlagCompressed != 0):
		return ProtocolErr("%v frame of %d bytes with a trailer", h.Kind, h.Length)
	case h.Flags&FlagVoid != 0 && (h.Kind != KindWrite || h.Flags&(FlagNotice|FlagCompressed) != 0):
		return ProtocolErr("%v frame with flags %#x without payload", h.Kind, h.Flags)
	case h.Kind == KindRead && h.Count == 0:
		return ProtocolErr("read frame without a segment")
	}
	return h.checkCompressed()
}

// checkCompressed returns an error if the payload cannot be compressed as h says. Only replies and
// writes of up to MaxCompress bytes may be compressed, and only to fewer bytes.
func (h *Header) checkCompressed() error {
	switch {
	case h.Flags&FlagCompressed == 0:
		if h.Compressed != 0 {
			return ProtocolErr("%v frame of %d compressed bytes without the flag", h.Kind, h.Compressed)
		}
	case h.Kind != KindReply && (h.Kind != KindWrite || h.Flags&FlagNotice != 0):
		return ProtocolErr("%v frame with compressed payload", h.Kind)
	case h.Length > MaxCompress || h.Compressed == 0 || uint64(h.Compressed) >= h.Length:
		return ProtocolErr("%v frame of %d bytes compressed to %d", h.Kind, h.Length, h.Compressed)
	}
	return nil
}

// HasTable reports whether a table of segments follows the header.
func (h *Header) HasTable() bool {
	return h.Kind == KindWrite && h.Flags&FlagNotice == 0 || h.Kind == KindRead
}

// PayloadLen returns the length of the payload before compression.
func (h *Header) PayloadLen() uint64 {
	switch h.Kind {
	case KindAtomic:
		return AtomicCode(h.Count).PayloadLen(h.Length)
	case KindSend, KindBody, KindReply, KindExtension:
		return h.Length
	case KindWrite:
		if h.Flags&FlagNotice == 0 {
			return h.Length
		}
	}
	return 0
}

// WireLen returns the length of the payload on the wire. It is valid for frames whose Length is the
// length of what follows.
func (h *Header) WireLen() uint64 {
	if h.Flags&FlagCompressed != 0 {
		return uint64(h.Compressed)
	}
	return h.Length
}
