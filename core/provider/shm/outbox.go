// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/local"
	"mori/core/provider/shm/internal/ring"
)

// An outbox puts messages into the peer's ring, in order. A small message ends as soon as it is in
// the ring, because the ring outlives this process. These end when the peer answers: large
// messages, messages that must be in the memory of a receive, and small messages behind a large
// one. So the messages that arrive before a connection ends have no gaps. When the ring is full,
// messages stay pending.
type outbox struct {
	path *dataPath

	mu      sync.Mutex
	ring    ring.MessageWriter
	pending []sending // messages that wait for room: from next on, oldest first
	next    int
	sent    []sending // messages that wait for the answer, by number
	free    []uint32  // unused numbers
	large   int       // how many of sent are not inline
	stopped bool

	src [64]sys.Iovec // scratch of gather
	dst [1]sys.Iovec

	waits atomic.Bool // pending is not empty
}

// A sending is a message of ours that has not ended.
type sending struct {
	ticket conn.Ticket
	op     *fabric.Op // nil: the number is unused
	list   []byte     // the message's segments, if the ring entry has only their address
	large  bool       // not inline
}

// A putResult is what put did with a message.
type putResult struct {
	over bool // the op has ended, with err
	wake bool // the consumer must be woken
	err  error
}

// Messages reports whether messages go through the rings; see conn.MessagePath.
func (dp *dataPath) Messages() bool { return dp.greet.messages }

// Send takes over a message; see conn.MessagePath.
func (dp *dataPath) Send(t conn.Ticket, op *fabric.Op) { dp.outbox.send(t, op) }

// send puts a message into the ring, or queues it if others already wait for room.
func (o *outbox) send(t conn.Ticket, op *fabric.Op) {
	if !o.path.ops.Enter() {
		o.path.ep.Finish(t, o.path.stopCause())
		return
	}
	o.mu.Lock()
	if o.stopped {
		o.mu.Unlock()
		o.path.finish(t, o.path.stopCause())
		return
	}
	ok, res, err := false, putResult{}, error(nil)
	if o.next == len(o.pending) {
		ok, res, err = o.put(t, op)
	}
	if !ok {
		o.push(sending{ticket: t, op: op})
	}
	o.mu.Unlock()
	o.wasPut(t, ok, res, err)
}

// flush moves pending messages into the ring while there is room.
func (o *outbox) flush() {
	for {
		o.mu.Lock()
		if o.stopped || o.next == len(o.pending) {
			o.mu.Unlock()
			return
		}
		s := o.pending[o.next]
		ok, res, err := o.put(s.ticket, s.op)
		if ok {
			o.pop()
		}
		o.mu.Unlock()
		o.wasPut(s.ticket, ok, res, err)
		if !ok {
			return
		}
	}
}

// wasPut does the work after a put that must not hold locks.
func (o *outbox) wasPut(t conn.Ticket, ok bool, res putResult, err error) {
	if err != nil {
		o.path.ep.Fail(fmt.Errorf("ring of %s: %w", o.path.ep.Peer(), err))
	}
	if res.wake {
		o.path.send(frameWake, nil)
	}
	if ok && res.over {
		o.path.finish(t, res.err)
	}
}

func (o *outbox) push(s sending) {
	if o.next > 0 && len(o.pending) == cap(o.pending) {
		n := copy(o.pending, o.pending[o.next:])
		o.pending, o.next = o.pending[:n], 0
	}
	o.pending = append(o.pending, s)
	o.waits.Store(true)
}

func (o *outbox) pop() {
	o.pending[o.next] = sending{}
	if o.next++; o.next == len(o.pending) {
		o.pending, o.next = o.pending[:0], 0
		o.waits.Store(false)
	}
}

// put moves one message into the ring. It returns false if there is no room. flush is then called
// when there is room, by the spinning reader or on the peer's frameSpace. The caller holds o.mu.
func (o *outbox) put(t conn.Ticket, op *fabric.Op) (ok bool, res putResult, err error) {
	e := entryOf(op)
	size := uint64(e.Size)
	at, ok, err := o.ring.Reserve(size)
	if !ok && err == nil && !o.path.inbox.spins.Load() {
		o.ring.AskForSpace()
		at, ok, err = o.ring.Reserve(size)
	}
	if !ok {
		return false, res, err
	}
	e.At = at + ring.MessageHeader
	s := sending{ticket: t, op: op, large: e.Kind != ring.MessageInline}
	if e.Kind == ring.MessageFar {
		s.list = make([]byte, e.Count*ring.SegmentLen)
		putSegments(s.list, op)
		sys.Store64(e.At, sys.AddrOf(s.list))
	}
	if res.over = !s.large && o.large == 0 && op.Flags&fabric.OpDeliveryComplete == 0; !res.over {
		e.Flags |= ring.MessageAnswer
		e.Number = o.number(s)
	}
	e.Put(at)
	switch e.Kind {
	case ring.MessageInline:
		if res.err = o.gather(&e, op); res.err != nil {
			res.over = true
			o.forget(&e)
		}
	case ring.MessageListed:
		putSegments(sys.Bytes(e.At, int(e.Count)*ring.SegmentLen), op)
		o.ring.Commit(size)
	case ring.MessageFar:
		o.ring.Commit(size)
	}
	if res.over && res.err == nil && o.ring.Fence().IsClosed() {
		res.over = false // the peer has ended, perhaps without reading this entry
		o.number(s)
	}
	res.wake = o.ring.ConsumerWaits()
	return true, res, nil
}

// entryOf returns the header of a message, without its number.
func entryOf(op *fabric.Op) ring.Message {
	e := ring.Message{Kind: ring.MessageInline, Length: op.Len()}
	switch segments := 1 + len(op.More); {
	case e.Length <= ring.InlineChunk:
	case e.Length <= ring.InlineMessage:
		e.Flags = ring.MessageChunked
	case segments <= ring.ListedSegments:
		e.Kind, e.Count = ring.MessageListed, uint32(segments)
	default:
		e.Kind, e.Count = ring.MessageFar, uint32(segments)
	}
	if op.Flags&fabric.OpRemoteData != 0 {
		e.Flags, e.Data = e.Flags|ring.MessageData, op.Data
	}
	e.Size = uint32(ring.EntrySize(e.Body()))
	return e
}

// putSegments writes the segments of op to b.
func putSegments(b []byte, op *fabric.Op) {
	for i := range 1 + len(op.More) {
		addr, n := localSegs{op}.at(i)
		binary.NativeEndian.PutUint64(b[i*ring.SegmentLen:], addr)
		binary.NativeEndian.PutUint64(b[i*ring.SegmentLen+8:], n)
	}
}

// gather copies the op's bytes into the ring and commits the entry. If a part of the entry is
// already committed when the copy fails, gather commits the rest with a verdict.
func (o *outbox) gather(e *ring.Message, op *fabric.Op) error {
	var p place
	var fault error
	known := uint64(0)
	for done := uint64(0); done < e.Length; {
		src, k := fill(localSegs{op}, &p, o.src[:0], min(e.Length-done, ring.InlineChunk))
		o.dst[0] = sys.Iovec{Addr: e.At + done, Len: k}
		if _, err := sys.Copy(o.dst[:], src); err != nil {
			fault = local.OpFault(fabric.ErrnoOf(err), "the local buffer is not mapped: was it freed before the op ended?")
			break
		}
		done += k
		if now := (ring.MessageHeader + done) &^ (ring.MessageUnit - 1); done < e.Length && e.Flags&ring.MessageChunked != 0 {
			o.ring.Commit(now - known)
			known = now
		}
	}
	if fault != nil && known == 0 {
		return fault
	}
	if e.Flags&ring.MessageChunked != 0 {
		sys.Store64(e.Verdict(), uint64(fabric.ErrnoOf(fault)))
	}
	o.ring.Commit(uint64(e.Size) - known)
	return fault
}

// forget frees the number of a message that ended before its answer. If the peer saw the entry, it
// does not answer it.
func (o *outbox) forget(e *ring.Message) {
	if e.Flags&ring.MessageAnswer != 0 {
		o.sent[e.Number] = sending{}
		o.free = append(o.free, e.Number)
	}
}

// stop stops putting messages into the ring and returns the messages that have not ended. The peer
// does not read their memory any more.
func (o *outbox) stop() (rest []sending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	rest = o.pending[o.next:]
	for _, s := range o.sent {
		if s.op != nil {
			rest = append(rest, s)
		}
	}
	o.pending, o.next, o.sent, o.free = nil, 0, nil, nil
	o.waits.Store(false)
	return rest
}
