// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
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
	messageBytes  = 256 << 10
	messageUnit   = 64
	messageHeader = 32
	segmentLen    = 16
)

const (
	messageSkip   = iota // nothing up to the ring's end
	messageInline        // the bytes are here
	messageListed        // a list of the segments is here
	messageFar           // a list of the segments is at an address
)

const (
	messageData    = 1 << iota // data is for the receiver's completion
	messageAnswer              // the sender waits for an answer
	messageChunked             // inline: produced grows chunk by chunk
)

const (
	// inlineMessage is the largest message whose bytes go through the ring. There and back between
	// two processes that spin on 2 cores of an EPYC VM, us for one way, pulled and through the ring
	// in chunks of 1, 2, 4 and 16 KiB:
	//
	//	4 KiB    3.4   1.03  0.85  1.01  1.2
	//	16 KiB   4.7   3.3   3.0   3.0   3.3
	//
	// A ring of 64 KiB was no faster.
	inlineMessage = 16 << 10
	// inlineChunk is how much of a message is made known at a time, so that the receiver's copy
	// runs beside the sender's.
	inlineChunk = 2 << 10
	// listedSegments is the longest list of segments in an entry.
	listedSegments = 64
	// farSegments is the longest list at an address; it is fabric.Limits.SegLimit or more.
	farSegments = 1 << 16
	// maxMessage is the protocol's own bound; it is fabric.Limits.MaxMsg or more.
	maxMessage = 1 << 30
)

// A messageEntry is the header of an entry.
type messageEntry struct {
	size, number, count uint32
	kind, flags         uint8
	length, data        uint64
	at                  uint64 // address of what follows the header
}

func (e *messageEntry) put(at uint64) {
	b := sys.Bytes(at, messageHeader)
	binary.NativeEndian.PutUint32(b, e.size)
	b[4], b[5] = e.kind, e.flags
	binary.NativeEndian.PutUint32(b[8:], e.number)
	binary.NativeEndian.PutUint32(b[12:], e.count)
	binary.NativeEndian.PutUint64(b[16:], e.length)
	binary.NativeEndian.PutUint64(b[24:], e.data)
}

// read decodes what is at the address at, which the peer may be changing: each byte is looked at
// once.
func (e *messageEntry) read(at uint64) {
	var b [messageHeader]byte
	for i := uint64(0); i < messageHeader; i += 8 {
		binary.NativeEndian.PutUint64(b[i:], sys.Load64(at+i))
	}
	e.size, e.kind, e.flags = binary.NativeEndian.Uint32(b[:]), b[4], b[5]
	e.number, e.count = binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
	e.length, e.data = binary.NativeEndian.Uint64(b[16:]), binary.NativeEndian.Uint64(b[24:])
	e.at = at + messageHeader
}

// check reports whether an entry at offset off of the ring, in which used bytes are filled, is
// possible.
func (e *messageEntry) check(off, used uint64) error {
	size := uint64(e.size)
	ok := size >= messageUnit && size%messageUnit == 0 && off+size <= messageBytes && (size <= used || e.flags&messageChunked != 0)
	switch {
	case !ok:
	case e.kind == messageSkip:
		ok = off != 0 && off+size == messageBytes && size <= used // so that one never follows another
	case e.kind == messageInline:
		ok = e.length <= inlineMessage && e.flags&^(messageData|messageAnswer|messageChunked) == 0
	case e.kind == messageListed:
		ok = e.count <= listedSegments && e.flags&^messageData == messageAnswer
	case e.kind == messageFar:
		ok = e.count <= farSegments && e.flags&^messageData == messageAnswer
	default:
		ok = false
	}
	ok = ok && (e.kind == messageSkip || e.length <= maxMessage && entrySize(e.body()) == size)
	if !ok {
		return fmt.Errorf("peer produced a message entry %+v at %d of %d bytes: %w", *e, off, used, fabric.ErrProtocol)
	}
	return nil
}

// body is how many bytes follow the header of a message.
func (e *messageEntry) body() uint64 {
	switch {
	case e.kind == messageListed:
		return uint64(e.count) * segmentLen
	case e.kind == messageFar:
		return 8
	case e.flags&messageChunked != 0:
		return e.length + 8
	}
	return e.length
}

// verdict is where a chunked message has its errno.
func (e *messageEntry) verdict() uint64 { return e.at - messageHeader + uint64(e.size) - 8 }

// entrySize is the size of an entry with n bytes behind its header.
func entrySize(n uint64) uint64 { return (messageHeader + n + messageUnit - 1) &^ (messageUnit - 1) }

// A messageWriter is the producer's end. Not for concurrent use.
type messageWriter struct {
	mem      uint64 // address of the mapping
	produced uint64
	consumed uint64 // as last seen
}

// reserve returns where the next entry of size bytes goes, or reports that there is no room.
func (w *messageWriter) reserve(size uint64) (at uint64, ok bool, err error) {
	off, skip := w.produced%messageBytes, uint64(0)
	if off+size > messageBytes {
		skip = messageBytes - off
	}
	if w.produced-w.consumed+skip+size > messageBytes {
		consumed := sys.Load64(w.mem + ringConsumed + counterAt(messageRing))
		used := w.produced - consumed
		if used > messageBytes {
			return 0, false, fmt.Errorf("peer consumed messages that were never produced: %w", fabric.ErrProtocol)
		}
		w.consumed = consumed
		if used+skip+size > messageBytes {
			return 0, false, nil
		}
	}
	ring := w.mem + ringMessages
	if skip != 0 {
		(&messageEntry{size: uint32(skip), kind: messageSkip}).put(ring + off)
		w.produced += skip
		off = 0
	}
	return ring + off, true, nil
}

// commit makes the next size bytes of the reserved entry known: all of it at once, or chunks.
func (w *messageWriter) commit(size uint64) {
	w.produced += size
	published()
	sys.Store64(w.mem+ringProduced+counterAt(messageRing), w.produced)
}

// consumerWaits reports, once for each time it was asked, that the consumer wants to be woken.
func (w *messageWriter) consumerWaits() bool {
	return takeFlag(w.mem + ringConsumerWaits + flagAt(messageRing))
}

// wait asks for frameSpace. The caller calls reserve once more before it relies on that.
func (w *messageWriter) wait() { sys.Store32(w.mem+ringProducerWaits+flagAt(messageRing), 1) }

// A messageReader is the consumer's end. Not for concurrent use.
type messageReader struct {
	mem      uint64 // address of the mapping
	produced uint64 // as last seen
	consumed uint64
}

// next finds the oldest message without taking it out; take does that.
func (r *messageReader) next(e *messageEntry) (ok bool, err error) {
	for {
		if r.produced == r.consumed {
			produced := sys.Load64(r.mem + ringProduced + counterAt(messageRing))
			if used := produced - r.consumed; used > messageBytes || used%messageUnit != 0 {
				return false, fmt.Errorf("peer produced %d bytes in a ring of %d: %w", used, messageBytes, fabric.ErrProtocol)
			}
			if r.produced = produced; produced == r.consumed {
				return false, nil
			}
		}
		observed()
		off := r.consumed % messageBytes
		e.read(r.mem + ringMessages + off)
		if err := e.check(off, r.produced-r.consumed); err != nil {
			return false, err
		}
		if e.kind != messageSkip {
			return true, nil
		}
		r.take(e)
	}
}

// arrived is how much of an inline message is there, and whether that is all of its entry.
func (r *messageReader) arrived(e *messageEntry) (n uint64, all bool, err error) {
	used := r.produced - r.consumed
	if used < uint64(e.size) {
		produced := sys.Load64(r.mem + ringProduced + counterAt(messageRing))
		now := produced - r.consumed
		if now < used || now > messageBytes || now%messageUnit != 0 {
			return 0, false, fmt.Errorf("peer produced %d bytes after %d in a ring of %d: %w", now, used, messageBytes, fabric.ErrProtocol)
		}
		observed()
		r.produced, used = produced, now
	}
	return min(e.length, used-messageHeader), used >= uint64(e.size), nil
}

// take removes the entry that next found: its memory is the producer's again.
func (r *messageReader) take(e *messageEntry) {
	r.consumed += uint64(e.size)
	sys.Store64(r.mem+ringConsumed+counterAt(messageRing), r.consumed)
}

// producerWaits reports, once for each time it was asked, that the producer wants to hear of room.
// It does not before half of the ring is free, so that a frame stands for more than one entry.
func (r *messageReader) producerWaits() bool {
	return r.produced-r.consumed <= messageBytes/2 && takeFlag(r.mem+ringProducerWaits+flagAt(messageRing))
}
