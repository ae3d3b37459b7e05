// SPDX-License-Identifier: MIT

package ring

import (
	"encoding/binary"
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
)

// The ring of messages holds entries of different lengths, none of which crosses the ring's end:
//
//	 0 size   u32  bytes of the entry, whole messageUnits
//	 4 kind   u8   messageSkip, messageInline, messageListed or messageFar
//	 5 flags  u8   messageData, messageAnswer, messageChunked
//	 8 number u32  the sender's name for the message, for the answer
//	12 count  u32  listed, far: segments
//	16 length u64  bytes of the message
//	24 data   u64  remote data
//	32             inline: the bytes; listed: segments {address u64, length u64};
//	               far: the address of such a list
//
// A message that is not inline stays in its sender's memory, where the receiver gets it, until the
// answer. The bytes of a chunked one become known while the sender still copies; the last word of
// the entry is an errno, should it not get to its end.
const (
	MessageBytes  = 256 << 10 // of the ring
	MessageUnit   = 64        // every entry is whole units
	MessageHeader = 32        // of an entry
	SegmentLen    = 16
)

// The kinds of entries.
const (
	messageSkip   = iota // nothing up to the ring's end
	MessageInline        // the bytes are here
	MessageListed        // a list of the segments is here
	MessageFar           // a list of the segments is at an address
)

// The flags of an entry.
const (
	MessageData    = 1 << iota // data is for the receiver's completion
	MessageAnswer              // the sender waits for an answer
	MessageChunked             // inline: produced grows chunk by chunk
)

// The limits of messages.
const (
	// InlineMessage is the largest message whose bytes go through the ring. There and back between
	// two processes that spin on 2 cores of an EPYC VM, us for one way, pulled and through the ring
	// in chunks of 1, 2, 4 and 16 KiB:
	//
	//	4 KiB    3.4   1.03  0.85  1.01  1.2
	//	16 KiB   4.7   3.3   3.0   3.0   3.3
	//
	// A ring of 64 KiB was no faster.
	InlineMessage = 16 << 10
	// InlineChunk is how much of a message is made known at a time, so that the receiver's copy
	// runs beside the sender's.
	InlineChunk = 2 << 10
	// ListedSegments is the longest list of segments in an entry.
	ListedSegments = 64
	// farSegments is the longest list at an address; it is fabric.Limits.SegLimit or more.
	farSegments = 1 << 16
	// maxMessage is the protocol's own bound; it is fabric.Limits.MaxMsg or more.
	maxMessage = 1 << 30
)

// A Message is the header of an entry.
type Message struct {
	Size, Number, Count uint32
	Kind, Flags         uint8
	Length, Data        uint64
	At                  uint64 // address of what follows the header
}

// Put writes the header to the address at.
func (e *Message) Put(at uint64) {
	b := sys.Bytes(at, MessageHeader)
	binary.NativeEndian.PutUint32(b, e.Size)
	b[4], b[5] = e.Kind, e.Flags
	binary.NativeEndian.PutUint32(b[8:], e.Number)
	binary.NativeEndian.PutUint32(b[12:], e.Count)
	binary.NativeEndian.PutUint64(b[16:], e.Length)
	binary.NativeEndian.PutUint64(b[24:], e.Data)
}

// read decodes what is at the address at, which the peer may be changing: each byte is looked at
// once.
func (e *Message) read(at uint64) {
	var b [MessageHeader]byte
	for i := uint64(0); i < MessageHeader; i += 8 {
		binary.NativeEndian.PutUint64(b[i:], sys.Load64(at+i))
	}
	e.Size, e.Kind, e.Flags = binary.NativeEndian.Uint32(b[:]), b[4], b[5]
	e.Number, e.Count = binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
	e.Length, e.Data = binary.NativeEndian.Uint64(b[16:]), binary.NativeEndian.Uint64(b[24:])
	e.At = at + MessageHeader
}

// check reports whether an entry at offset off of the ring, in which used bytes are filled, is
// possible.
func (e *Message) check(off, used uint64) error {
	size := uint64(e.Size)
	ok := size >= MessageUnit && size%MessageUnit == 0 && off+size <= MessageBytes && (size <= used || e.Flags&MessageChunked != 0)
	switch {
	case !ok:
	case e.Kind == messageSkip:
		ok = off != 0 && off+size == MessageBytes && size <= used // so that one never follows another
	case e.Kind == MessageInline:
		ok = e.Length <= InlineMessage && e.Flags&^(MessageData|MessageAnswer|MessageChunked) == 0
	case e.Kind == MessageListed:
		ok = e.Count <= ListedSegments && e.Flags&^MessageData == MessageAnswer
	case e.Kind == MessageFar:
		ok = e.Count <= farSegments && e.Flags&^MessageData == MessageAnswer
	default:
		ok = false
	}
	ok = ok && (e.Kind == messageSkip || e.Length <= maxMessage && EntrySize(e.Body()) == size)
	if !ok {
		return fmt.Errorf("peer produced a message entry %+v at %d of %d bytes: %w", *e, off, used, fabric.ErrProtocol)
	}
	return nil
}

// Body is how many bytes follow the header of a message.
func (e *Message) Body() uint64 {
	switch {
	case e.Kind == MessageListed:
		return uint64(e.Count) * SegmentLen
	case e.Kind == MessageFar:
		return 8
	case e.Flags&MessageChunked != 0:
		return e.Length + 8
	}
	return e.Length
}

// Verdict is where a chunked message has its errno.
func (e *Message) Verdict() uint64 { return e.At - MessageHeader + uint64(e.Size) - 8 }

// EntrySize is the size of an entry with n bytes behind its header.
func EntrySize(n uint64) uint64 { return (MessageHeader + n + MessageUnit - 1) &^ (MessageUnit - 1) }

// A MessageWriter is the producer's end. Not for concurrent use.
type MessageWriter struct {
	mem      uint64 // address of the mapping
	produced uint64
	consumed uint64 // as last seen
}

// NewMessageWriter makes the producer's end of the ring in the memory at mem.
func NewMessageWriter(mem uint64) MessageWriter { return MessageWriter{mem: mem} }

// Fence is the fence of the consumer's memory.
func (w *MessageWriter) Fence() local.Fence { return fenceOf(w.mem) }

// Reserve returns where the next entry of size bytes goes, or reports that there is no room.
func (w *MessageWriter) Reserve(size uint64) (at uint64, ok bool, err error) {
	off, skip := w.produced%MessageBytes, uint64(0)
	if off+size > MessageBytes {
		skip = MessageBytes - off
	}
	if w.produced-w.consumed+skip+size > MessageBytes {
		consumed := sys.Load64(w.mem + ringConsumed + counterAt(messageRing))
		used := w.produced - consumed
		if used > MessageBytes {
			return 0, false, fmt.Errorf("peer consumed messages that were never produced: %w", fabric.ErrProtocol)
		}
		w.consumed = consumed
		if used+skip+size > MessageBytes {
			return 0, false, nil
		}
	}
	ring := w.mem + ringMessages
	if skip != 0 {
		(&Message{Size: uint32(skip), Kind: messageSkip}).Put(ring + off)
		w.produced += skip
		off = 0
	}
	return ring + off, true, nil
}

// Commit makes the next size bytes of the reserved entry known: all of it at once, or chunks.
func (w *MessageWriter) Commit(size uint64) {
	w.produced += size
	published()
	sys.Store64(w.mem+ringProduced+counterAt(messageRing), w.produced)
}

// ConsumerWaits reports, once for each time it was asked, that the consumer wants to be woken.
func (w *MessageWriter) ConsumerWaits() bool {
	return takeFlag(w.mem + ringConsumerWaits + flagAt(messageRing))
}

// AskForSpace asks the consumer for a frameSpace. The caller calls Reserve once more before it
// relies on that.
func (w *MessageWriter) AskForSpace() { sys.Store32(w.mem+ringProducerWaits+flagAt(messageRing), 1) }

// A MessageReader is the consumer's end. Not for concurrent use.
type MessageReader struct {
	mem      uint64 // address of the mapping
	produced uint64 // as last seen
	consumed uint64
}

// NewMessageReader makes the consumer's end of the ring in the memory at mem.
func NewMessageReader(mem uint64) MessageReader { return MessageReader{mem: mem} }

// Next finds the oldest message without taking it out; Take does that.
func (r *MessageReader) Next(e *Message) (ok bool, err error) {
	for {
		if r.produced == r.consumed {
			produced := sys.Load64(r.mem + ringProduced + counterAt(messageRing))
			if used := produced - r.consumed; used > MessageBytes || used%MessageUnit != 0 {
				return false, fmt.Errorf("peer produced %d bytes in a ring of %d: %w", used, MessageBytes, fabric.ErrProtocol)
			}
			if r.produced = produced; produced == r.consumed {
				return false, nil
			}
		}
		observed()
		off := r.consumed % MessageBytes
		e.read(r.mem + ringMessages + off)
		if err := e.check(off, r.produced-r.consumed); err != nil {
			return false, err
		}
		if e.Kind != messageSkip {
			return true, nil
		}
		r.Take(e)
	}
}

// Arrived is how much of an inline message is there, and whether that is all of its entry.
func (r *MessageReader) Arrived(e *Message) (n uint64, all bool, err error) {
	used := r.produced - r.consumed
	if used < uint64(e.Size) {
		produced := sys.Load64(r.mem + ringProduced + counterAt(messageRing))
		now := produced - r.consumed
		if now < used || now > MessageBytes || now%MessageUnit != 0 {
			return 0, false, fmt.Errorf("peer produced %d bytes after %d in a ring of %d: %w", now, used, MessageBytes, fabric.ErrProtocol)
		}
		observed()
		r.produced, used = produced, now
	}
	return min(e.Length, used-MessageHeader), used >= uint64(e.Size), nil
}

// Take removes the entry that Next found: its memory is the producer's again.
func (r *MessageReader) Take(e *Message) {
	r.consumed += uint64(e.Size)
	sys.Store64(r.mem+ringConsumed+counterAt(messageRing), r.consumed)
}

// ProducerWaits reports, once for each time it was asked, that the producer wants to hear of room.
// It does not before half of the ring is free, so that a frame stands for more than one entry.
func (r *MessageReader) ProducerWaits() bool {
	return r.produced-r.consumed <= MessageBytes/2 && takeFlag(r.mem+ringProducerWaits+flagAt(messageRing))
}
