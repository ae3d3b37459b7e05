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
// A message that is not inline stays in the sender's memory until the answer, and the receiver
// copies it from there. A chunked message is published in chunks while the sender still copies. The
// last word of its entry is an errno, in case the sender cannot complete it.
const (
	MessageBytes  = 256 << 10 // bytes of the ring
	MessageUnit   = 64        // every entry is a multiple of this
	MessageHeader = 32        // bytes of an entry's header
	SegmentLen    = 16
)

// The kinds of entries.
const (
	messageSkip   = iota // padding up to the end of the ring
	MessageInline        // the bytes follow the header
	MessageListed        // a list of the segments follows the header
	MessageFar           // the address of a list of the segments follows the header
)

// The flags of an entry.
const (
	MessageData    = 1 << iota // data is for the receiver's completion
	MessageAnswer              // the sender waits for an answer
	MessageChunked             // inline: the entry is published chunk by chunk
)

// The limits of messages.
const (
	// InlineMessage is the largest message in bytes whose payload goes through the ring. Half a
	// round trip in us between two processes that spin on 2 cores of an EPYC VM, pulled, and
	// through the ring in chunks of 1, 2, 4 and 16 KiB:
	//
	//	4 KiB    3.4   1.03  0.85  1.01  1.2
	//	16 KiB   4.7   3.3   3.0   3.0   3.3
	//
	// A ring of 64 KiB was no faster.
	InlineMessage = 16 << 10
	// InlineChunk is how many bytes of a message are published at a time, so that the receiver
	// copies while the sender still copies.
	InlineChunk = 2 << 10
	// ListedSegments is the longest list of segments in an entry.
	ListedSegments = 64
	// farSegments is the longest list at an address. It is at least fabric.Limits.SegLimit.
	farSegments = 1 << 16
	// maxMessage is the protocol's own bound. It is at least fabric.Limits.MaxMsg.
	maxMessage = 1 << 30
)

// A Message is the header of an entry.
type Message struct {
	Size, Number, Count uint32
	Kind, Flags         uint8
	Length, Data        uint64
	At                  uint64 // address of the bytes after the header
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

// read decodes the header at the address at. The peer may change it concurrently, so read loads
// each byte once.
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

// check returns an error if an entry at offset off is impossible in a ring with used bytes filled.
func (e *Message) check(off, used uint64) error {
	size := uint64(e.Size)
	ok := size >= MessageUnit && size%MessageUnit == 0 && off+size <= MessageBytes && (size <= used || e.Flags&MessageChunked != 0)
	switch {
	case !ok:
	case e.Kind == messageSkip:
		ok = off != 0 && off+size == MessageBytes && size <= used // never two in a row
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

// Body returns how many bytes follow the header of a message.
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

// Verdict returns the address of a chunked message's errno.
func (e *Message) Verdict() uint64 { return e.At - MessageHeader + uint64(e.Size) - 8 }

// EntrySize returns the size of an entry with n bytes after its header.
func EntrySize(n uint64) uint64 { return (MessageHeader + n + MessageUnit - 1) &^ (MessageUnit - 1) }

// A MessageWriter is the producer's end. It is not safe for concurrent use.
type MessageWriter struct {
	mem      uint64 // address of the mapping
	produced uint64
	consumed uint64 // the last value read
}

// NewMessageWriter makes the producer's end of the ring in the memory at mem.
func NewMessageWriter(mem uint64) MessageWriter { return MessageWriter{mem: mem} }

// Fence returns the fence of the consumer's memory.
func (w *MessageWriter) Fence() local.Fence { return fenceOf(w.mem) }

// Reserve returns the address for the next entry of size bytes. It returns false if there is no
// room.
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

// Commit publishes the next size bytes of the reserved entry: all of them, or a chunk.
func (w *MessageWriter) Commit(size uint64) {
	w.produced += size
	published()
	sys.Store64(w.mem+ringProduced+counterAt(messageRing), w.produced)
}

// ConsumerWaits reports, once per request, that the consumer asked to be woken.
func (w *MessageWriter) ConsumerWaits() bool {
	return takeFlag(w.mem + ringConsumerWaits + flagAt(messageRing))
}

// AskForSpace asks the consumer for a frameSpace. The caller must call Reserve once more before it
// relies on that.
func (w *MessageWriter) AskForSpace() { sys.Store32(w.mem+ringProducerWaits+flagAt(messageRing), 1) }

// A MessageReader is the consumer's end. It is not safe for concurrent use.
type MessageReader struct {
	mem      uint64 // address of the mapping
	produced uint64 // the last value read
	consumed uint64
}

// NewMessageReader makes the consumer's end of the ring in the memory at mem.
func NewMessageReader(mem uint64) MessageReader { return MessageReader{mem: mem} }

// Next returns the oldest message without removing it; Take removes it.
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

// Arrived returns how many bytes of an inline message have been published, and whether the entry is
// complete.
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

// Take removes the entry that Next returned. The producer may then reuse its memory.
func (r *MessageReader) Take(e *Message) {
	r.consumed += uint64(e.Size)
	sys.Store64(r.mem+ringConsumed+counterAt(messageRing), r.consumed)
}

// ProducerWaits reports, once per request, that the producer asked for a frameSpace. It returns
// true only when half of the ring is free, so that one frame covers more than one entry.
func (r *MessageReader) ProducerWaits() bool {
	return r.produced-r.consumed <= MessageBytes/2 && takeFlag(r.mem+ringProducerWaits+flagAt(messageRing))
}
