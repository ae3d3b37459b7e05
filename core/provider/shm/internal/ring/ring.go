// SPDX-License-Identifier: MIT

package ring

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
)

// The rings of one direction lie in memory that both processes map. Each has one producer and one
// consumer, and needs no system calls. The consumer allocates the memory. Its header also holds the
// fence of the consumer's regions.
//
//	offset 0    produced: entries put in since the start of rings 0 and 1, and bytes of ring 2
//	offset 64   consumed: entries and bytes taken out since the start
//	offset 128  consumer waits: 1 asks the producer for a frameWake after its next entry, of ring 0,
//	            and of rings 1 and 2
//	offset 192  producer waits: 1 asks the consumer for a frameSpace, of ring 0, and of ring 2
//	offset 256  proof and trial of the handshake, 16 bytes each
//	offset 320  closed: 1 once the consumer refuses copies of its memory
//	offset 384  copying: slices that the producer is copying from or to the consumer's memory
//	offset 4096 ring 0, remote data of writes: ringEntries entries of four words: data,
//	            length of the write, ticket of the grant of its region, 0
//	then        ring 1, answers to messages: ringEntries entries of two words: number of the message,
//	            errno
//	then        ring 2, messages: see message.go
//
// Each word has one writer, except for the flags, which the other side resets with a swap. The peer
// may write anything anywhere at any time. So counters are checked against our own private ones,
// and entries contain only numbers. One side sets a flag and then rereads the other side's counter.
// The other side stores the counter and then reads the flag. Both pairs are sequentially
// consistent, so no wakeup is lost. The counters that a consumer polls share a cache line.
const (
	ringProduced      = 0
	ringConsumed      = 64
	ringConsumerWaits = 128
	ringProducerWaits = 192
	Proof             = 256
	Trial             = 272
	ringClosed        = 320
	ringCopying       = 384
	ringHeader        = 4096

	Entries      = 1 << 14
	noticeBytes  = 32
	answerBytes  = 16
	ringAnswers  = ringHeader + Entries*noticeBytes
	ringMessages = ringAnswers + Entries*answerBytes
	Bytes        = ringMessages + MessageBytes
)

// The rings of entries.
const (
	Notices = iota
	Answers
	messageRing
)

// fenceOf returns the fence of the ring's maker. If a sender puts a message into the ring and then
// finds the fence open, a consumer that reads the ring after closing the fence sees that message.
func fenceOf(mem uint64) local.Fence {
	return local.Fence{Closed: mem + ringClosed, Copying: mem + ringCopying}
}

// counterAt returns the offset of a ring's counter in a line of counters, flagAt that of its flag
// in a line of flags.
func counterAt(ring uint64) uint64 { return 8 * ring }
func flagAt(ring uint64) uint64    { return 4 * min(ring, 1) }

// An Entry holds the words of one entry. Answers use the first two.
type Entry [3]uint64

func ringEntry(mem, ring, i uint64) uint64 {
	if ring == Notices {
		return mem + ringHeader + i%Entries*noticeBytes
	}
	return mem + ringAnswers + i%Entries*answerBytes
}

// A Writer is the producer's end. It is not safe for concurrent use.
type Writer struct {
	mem      uint64 // address of the mapping
	ring     uint64
	produced uint64
}

// NewWriter makes the producer's end of a ring in the memory at mem.
func NewWriter(mem, ring uint64) Writer { return Writer{mem: mem, ring: ring} }

// Fence returns the fence of the consumer's memory.
func (w *Writer) Fence() local.Fence { return fenceOf(w.mem) }

// Put adds an entry. It returns false if there is no room.
func (w *Writer) Put(e Entry) (bool, error) {
	used := w.produced - sys.Load64(w.mem+ringConsumed+counterAt(w.ring))
	if used > Entries {
		return false, fmt.Errorf("peer consumed entries that were never produced: %w", fabric.ErrProtocol)
	}
	if used == Entries {
		return false, nil
	}
	at := ringEntry(w.mem, w.ring, w.produced)
	sys.Store64(at, e[0])
	sys.Store64(at+8, e[1])
	if w.ring == Notices {
		sys.Store64(at+16, e[2])
	}
	w.produced++
	published()
	sys.Store64(w.mem+ringProduced+counterAt(w.ring), w.produced)
	return true, nil
}

// ConsumerWaits reports, once per request, that the consumer asked to be woken.
func (w *Writer) ConsumerWaits() bool {
	return takeFlag(w.mem + ringConsumerWaits + flagAt(w.ring))
}

// AskForSpace asks the consumer for a frameSpace. The caller must call Put once more before it
// relies on that.
func (w *Writer) AskForSpace() { sys.Store32(w.mem+ringProducerWaits+flagAt(w.ring), 1) }

// A Reader is the consumer's end. It is not safe for concurrent use.
type Reader struct {
	mem      uint64 // address of the mapping
	ring     uint64
	consumed uint64
}

// NewReader makes the consumer's end of a ring in the memory at mem.
func NewReader(mem, ring uint64) Reader { return Reader{mem: mem, ring: ring} }

// Fence returns the fence of this side's memory.
func (r *Reader) Fence() local.Fence { return fenceOf(r.mem) }

// Next returns the oldest entry without removing it; Take removes it.
func (r *Reader) Next() (e Entry, ok bool, err error) {
	used := sys.Load64(r.mem+ringProduced+counterAt(r.ring)) - r.consumed
	if used > Entries {
		return e, false, fmt.Errorf("peer produced %d entries in a ring of %d: %w", used, Entries, fabric.ErrProtocol)
	}
	if used == 0 {
		return e, false, nil
	}
	observed()
	at := ringEntry(r.mem, r.ring, r.consumed)
	e[0], e[1] = sys.Load64(at), sys.Load64(at+8)
	if r.ring == Notices {
		e[2] = sys.Load64(at + 16)
	}
	return e, true, nil
}

// Take removes the entry that Next returned.
func (r *Reader) Take() {
	r.consumed++
	sys.Store64(r.mem+ringConsumed+counterAt(r.ring), r.consumed)
}

// ProducerWaits reports, once per request, that the producer asked for a frameSpace.
func (r *Reader) ProducerWaits() bool {
	return takeFlag(r.mem + ringProducerWaits + flagAt(r.ring))
}

// AskForWake asks the producer for a frameWake. It returns false if an earlier request is still
// pending. The caller must check the ring once more before it relies on that.
func (r *Reader) AskForWake() bool {
	flag := r.mem + ringConsumerWaits + flagAt(r.ring)
	if sys.Load32(flag) != 0 {
		return false
	}
	sys.Store32(flag, 1)
	return true
}

// takeFlag loads before it swaps, because a swap takes the cache line from the other side each
// time.
func takeFlag(addr uint64) bool { return sys.Load32(addr) != 0 && sys.Swap32(addr, 0) != 0 }
