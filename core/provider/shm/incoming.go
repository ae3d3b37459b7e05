// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util/receive"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
	"mori/core/provider/shm/internal/ring"
)

// incoming is the message that is being received. A message without a posted receive stays in the
// ring, and so do the messages after it, until a receive is posted. Meanwhile the ring fills up,
// and further messages stay with the peer. Guarded by inbox.mu.
type incoming struct {
	head    ring.Message
	receive fabric.Op
	pulling bool // head is being pulled into receive
	filling bool // head is being copied into receive: done bytes, up to place
	place   place
	done    uint64
	fault   error     // receive's memory is not mapped
	pull    fabric.Op // the pull as a read op, with receive's segments and the sender's
	list    []byte    // the sender's segments, as received
	segs    []fabric.RSeg
	dst     [64]sys.Iovec
	src     [1]sys.Iovec
}

// takeMessages receives messages while there are receives.
func (b *inbox) takeMessages() (took bool, err error) {
	in := &b.incoming
	for !in.pulling {
		if !in.filling {
			ok, err := b.messages.Next(&in.head)
			if err != nil {
				return took, err
			}
			if ok {
				in.receive, ok = b.feed.Take()
			}
			if !ok {
				break
			}
		}
		if in.head.Kind == ring.MessageInline {
			err = b.receiveInline(in)
		} else {
			err = b.startPull(in)
		}
		if took = true; err != nil {
			return took, err
		}
		if in.filling {
			break
		}
	}
	if took && b.messages.ProducerWaits() {
		b.path.send(frameSpace, nil)
	}
	return took, nil
}

// remoteFlags returns the completion flags of a message.
func remoteFlags(e *ring.Message) fabric.OpFlags {
	if e.Flags&ring.MessageData != 0 {
		return fabric.OpRemoteData
	}
	return 0
}

// chunkPolls is how often a reader polls for the next chunk of a message before it assumes that the
// sender was descheduled. The next poller then continues.
const chunkPolls = 200

// receiveInline copies as much of a message as has arrived out of the ring.
func (b *inbox) receiveInline(in *incoming) error {
	if !in.filling {
		in.filling, in.place, in.done = true, place{}, 0
	}
	e, space := &in.head, in.receive.Len()
	for polls := 0; polls < chunkPolls; polls++ {
		n, all, err := b.messages.Arrived(e)
		if err != nil {
			return err
		}
		if n = min(n, space); n > in.done {
			polls = 0
			if fault := in.scatter(n); fault != nil {
				space = in.done // drop the rest
				in.fault = fault
			}
		}
		if all {
			return b.filled(in)
		}
	}
	return nil
}

// scatter copies the part of the message that has arrived, up to byte n.
func (in *incoming) scatter(n uint64) error {
	for in.done < n {
		dst, k := fill(localSegs{&in.receive}, &in.place, in.dst[:0], n-in.done)
		in.src[0] = sys.Iovec{Addr: in.head.At + in.done, Len: k}
		if _, err := sys.Copy(dst, in.src[:]); err != nil {
			return local.OpFault(fabric.ErrnoOf(err), "the receive's memory is not mapped: was it freed before the receive ended?")
		}
		in.done += k
	}
	return nil
}

// filled ends a message that was copied out of the ring.
func (b *inbox) filled(in *incoming) error {
	e, err := &in.head, in.fault
	in.filling, in.fault = false, nil
	if e.Flags&ring.MessageChunked != 0 {
		if cause := sys.Load64(e.Verdict()); cause != 0 {
			e.Flags &^= ring.MessageAnswer
			err = local.OpFault(ringErrno(cause), "message of %s, which could not read it", b.path.ep.Peer())
		}
	}
	b.messages.Take(e)
	return b.received(in, err)
}

// ringErrno returns the Errno that a peer put into a ring, or ErrOther if the value is not an
// Errno.
func ringErrno(v uint64) fabric.Errno {
	if v == 0 || v > 4095 {
		return fabric.ErrOther
	}
	return fabric.Errno(v)
}

// received ends the receive, and answers the sender if the sender asked for that.
func (b *inbox) received(in *incoming, err error) error {
	op := in.receive
	in.receive = fabric.Op{}
	if err != nil {
		b.feed.Failed(&op, fabric.ErrnoOf(err), err.Error())
	} else {
		b.feed.Filled(&op, in.head.Length, in.head.Data, remoteFlags(&in.head))
	}
	if in.head.Flags&ring.MessageAnswer == 0 {
		return nil
	}
	ok, putErr := b.replies.Put(ring.Entry{uint64(in.head.Number), uint64(fabric.ErrnoOf(err))})
	if putErr == nil && !ok {
		putErr = fmt.Errorf("no room to reply to a message: %w", fabric.ErrProtocol)
	}
	if putErr == nil && b.replies.ConsumerWaits() {
		b.path.send(frameWake, nil)
	}
	return putErr
}

// stopMessages fails the receive that was being filled. If no receive was being filled, it delivers
// the complete messages at the head of the ring: their senders count them as received. The caller
// holds mu.
func (b *inbox) stopMessages(cause error) {
	in := &b.incoming
	if in.pulling || in.filling {
		in.pulling, in.filling = false, false
		b.feed.Failed(&in.receive, fabric.ErrnoOf(cause), cause.Error())
		return
	}
	for range ring.MessageBytes / ring.MessageUnit {
		ok, err := b.messages.Next(&in.head)
		if !ok || err != nil || b.broken {
			return
		}
		e := &in.head
		if e.Kind != ring.MessageInline {
			return
		}
		if _, all, err := b.messages.Arrived(e); !all || err != nil {
			return // the sender stopped before the end of the message
		}
		deliver(e, b.feed)
		b.messages.Take(e)
	}
}

// deliver passes a complete message to the feed without a receive.
func deliver(e *ring.Message, feed *receive.Feed) {
	if e.Flags&ring.MessageChunked != 0 && sys.Load64(e.Verdict()) != 0 || !feed.Hold(e.Length) {
		return
	}
	bytes := append([]byte(nil), sys.Bytes(e.At, int(e.Length))...)
	feed.Deliver(bytes, e.Data, remoteFlags(e), 0)
}
