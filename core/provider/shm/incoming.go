// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// pullNow is the largest message that is pulled by whoever finds it in the ring; larger ones are the workers'.
const pullNow = 8 << 20

// incoming is the message that is being received. Messages that have no receive yet stay in the ring, and what is behind them, too, until
// receives are posted: then the ring is full and the peer's messages stay with the peer. Guarded by inbox.mu.
type incoming struct {
	head    messageEntry
	receive fabric.Op
	pulling bool // head is being pulled into receive
	filling bool // head is being copied into receive: done bytes, up to place
	place   place
	done    uint64
	fault   error     // receive's memory is gone
	pull    fabric.Op // as a read: receive's segments and the sender's
	list    []byte    // the sender's segments, as they came
	segs    []fabric.RSeg
	dst     [64]sys.Iovec
	src     [1]sys.Iovec
}

// takeMessages receives messages while there are receives.
func (b *inbox) takeMessages() (took bool, err error) {
	in := &b.incoming
	for !in.pulling {
		if !in.filling {
			ok, err := b.messages.next(&in.head)
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
		if in.head.kind == messageInline {
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
	if took && b.messages.producerWaits() {
		b.mover.send(frameSpace, nil)
	}
	return took, nil
}

// flags are the completion flags of a message.
func (e *messageEntry) remoteFlags() fabric.OpFlags {
	if e.flags&messageData != 0 {
		return fabric.OpRemoteData
	}
	return 0
}

// chunkPolls is how often the next chunk of a message is looked for, before the sender is thought to have lost its processor: then
// whoever looks next goes on.
const chunkPolls = 200

// receiveInline copies a message out of the ring, or as much of it as is there.
func (b *inbox) receiveInline(in *incoming) error {
	if !in.filling {
		in.filling, in.place, in.done = true, place{}, 0
	}
	e, space := &in.head, in.receive.Len()
	for polls := 0; polls < chunkPolls; polls++ {
		n, all, err := b.messages.arrived(e)
		if err != nil {
			return err
		}
		if n = min(n, space); n > in.done {
			polls = 0
			if fault := in.scatter(n); fault != nil {
				space = in.done // the rest is dropped
				in.fault = fault
			}
		}
		if all {
			return b.filled(in)
		}
	}
	return nil
}

// scatter copies what of the message is there up to byte n.
func (in *incoming) scatter(n uint64) error {
	for in.done < n {
		dst, k := fill(localSegs{&in.receive}, &in.place, in.dst[:0], n-in.done)
		in.src[0] = sys.Iovec{Addr: in.head.at + in.done, Len: k}
		if _, err := sys.Copy(dst, in.src[:]); err != nil {
			return opFault(fabric.ErrnoOf(err), "the receive's memory is not mapped: was it freed before the receive ended?")
		}
		in.done += k
	}
	return nil
}

// filled ends a message that was copied out of the ring.
func (b *inbox) filled(in *incoming) error {
	e, err := &in.head, in.fault
	in.filling, in.fault = false, nil
	if e.flags&messageChunked != 0 {
		if cause := sys.Load64(e.verdict()); cause != 0 {
			e.flags &^= messageAnswer
			err = opFault(ringErrno(cause), "message of %s, which could not read it", b.mover.ep.Peer())
		}
	}
	b.messages.take(e)
	return b.received(in, err)
}

// ringErrno is the Errno that a peer put into a ring; whatever is none is ErrOther.
func ringErrno(v uint64) fabric.Errno {
	if v == 0 || v > 4095 {
		return fabric.ErrOther
	}
	return fabric.Errno(v)
}

// received ends the receive, and answers the sender if it waits for that.
func (b *inbox) received(in *incoming, err error) error {
	op := in.receive
	in.receive = fabric.Op{}
	if err != nil {
		b.feed.Failed(&op, fabric.ErrnoOf(err), err.Error())
	} else {
		b.feed.Filled(&op, in.head.length, in.head.data, in.head.remoteFlags())
	}
	if in.head.flags&messageAnswer == 0 {
		return nil
	}
	ok, putErr := b.replies.put(uint64(in.head.number), uint64(fabric.ErrnoOf(err)))
	if putErr == nil && !ok {
		putErr = fmt.Errorf("no room to answer a message: %w", fabric.ErrProtocol)
	}
	if putErr == nil && b.replies.consumerWaits() {
		b.mover.send(frameWake, nil)
	}
	return putErr
}

// startPull begins to get a message from the sender's memory. Only the peer's nonsense is an error.
func (b *inbox) startPull(in *incoming) error {
	m := b.mover
	in.pulling = true
	err := b.readSegments(in)
	b.messages.take(&in.head)
	if errors.Is(err, fabric.ErrProtocol) {
		return err
	}
	if err == nil {
		n := min(in.head.length, in.receive.Len())
		in.pull = fabric.Op{Kind: fabric.OpRead, Seg: in.receive.Seg, More: in.receive.More, RSeg: in.segs[0], RMore: in.segs[1:]}
		if n > pullNow {
			if m.ops.enter() {
				j := m.newJob()
				j.op, j.walk = &in.pull, newWalk(&in.pull, n, 0)
				m.queued.Add(1)
				m.domain.pool.add(j)
			}
			return nil // if not, the connection has ended, and its end belongs to stop
		}
		err = m.pullHere(&in.pull, n)
	}
	return b.pulled(in, err)
}

// readSegments makes segs of what the entry tells about the sender's memory.
func (b *inbox) readSegments(in *incoming) error {
	e := &in.head
	n := int(e.count) * segmentLen
	if cap(in.list) < n {
		in.list = make([]byte, n)
	}
	in.list = in.list[:n]
	if e.kind == messageListed {
		copy(in.list, sys.Bytes(e.at, n))
	} else {
		local := []sys.Iovec{{Addr: sys.AddrOf(in.list), Len: uint64(n)}}
		remote := []sys.Iovec{{Addr: sys.Load64(e.at), Len: uint64(n)}}
		if err := b.mover.pullSlice(&slice{local: local, remote: remote, n: uint64(n)}); err != nil {
			return err
		}
	}
	return in.parseSegments()
}

// parseSegments answers any list.
func (in *incoming) parseSegments() error {
	in.segs = in.segs[:0]
	total, over := uint64(0), uint64(0)
	for b := in.list; len(b) > 0; b = b[segmentLen:] {
		s := fabric.RSeg{Addr: binary.NativeEndian.Uint64(b), Len: binary.NativeEndian.Uint64(b[8:])}
		var carry, wrap uint64
		total, carry = bits.Add64(total, s.Len, 0)
		_, wrap = bits.Add64(s.Addr, s.Len, 0)
		over |= carry | wrap
		in.segs = append(in.segs, s)
	}
	if len(in.segs) == 0 || over != 0 || total != in.head.length {
		return fmt.Errorf("message of %d bytes in %d segments of %d: %w", in.head.length, len(in.segs), total, fabric.ErrProtocol)
	}
	return nil
}

// pullHere pulls on this thread.
func (m *mover) pullHere(op *fabric.Op, n uint64) error {
	s := sliceLists.Get().(*slice)
	defer sliceLists.Put(s)
	w := newWalk(op, n, 0)
	for w.left > 0 {
		w.next(s, sliceBytes)
		if err := m.pullSlice(s); err != nil {
			return err
		}
	}
	return nil
}

// errPeerEnded is why a message that was not pulled to its end is left to stop, which knows the cause.
var errPeerEnded = errors.New("the peer has ended the connection")

// pullSlice gets one slice of a message.
func (m *mover) pullSlice(s *slice) error {
	if m.stopping.Load() || !fenceEnter(m.notifier.ring.mem) {
		return errPeerEnded
	}
	defer fenceLeave(m.notifier.ring.mem)
	moved, err := 0, error(nil)
	if m.greet.reach.way == wayMemmove {
		moved, err = sys.Copy(s.local, s.remote)
	} else {
		moved, err = m.vm.read(m.greet.reach.pid, s.local, s.remote)
	}
	switch cause := fabric.ErrnoOf(err); {
	case err == nil && uint64(moved) == s.n:
		return nil
	case cause == fabric.Errno(syscall.ESRCH):
		return errPeerEnded
	case cause == fabric.Errno(syscall.EFAULT) && !mapped(s.local):
		return opFault(cause, "the receive's memory is not mapped: was it freed before the receive ended?")
	case cause == 0:
		return opFault(fabric.ErrOther, "message of %s: the copy ended early", m.ep.Peer())
	default:
		return opFault(cause, "message of %s from its process %d", m.ep.Peer(), m.greet.reach.pid)
	}
}

// pulled ends a pull.
func (b *inbox) pulled(in *incoming, err error) error {
	if err != nil && (errors.Is(err, errPeerEnded) || b.mover.stopping.Load()) {
		return nil
	}
	in.pulling, in.pull = false, fabric.Op{}
	return b.received(in, err)
}

// finishPull is the pool's report.
func (m *mover) finishPull(j *job, err error) {
	m.freeJob(j)
	m.queued.Add(-1)
	b := &m.inbox
	b.mu.Lock()
	if err = b.pulled(&b.incoming, err); err != nil {
		b.broken = true
	}
	b.mu.Unlock()
	m.ops.leave()
	if err != nil {
		m.ep.Fail(fmt.Errorf("ring from %s: %w", m.ep.Peer(), err))
		return
	}
	b.serve()
}

// stopMessages ends the receive that was being filled, or hands over what the ring holds up to the first message that is not here: their
// sender was told that we have them. With mu held.
func (b *inbox) stopMessages(cause error) {
	in := &b.incoming
	if in.pulling || in.filling {
		in.pulling, in.filling = false, false
		b.feed.Failed(&in.receive, fabric.ErrnoOf(cause), cause.Error())
		return
	}
	for range messageBytes / messageUnit {
		ok, err := b.messages.next(&in.head)
		if !ok || err != nil || b.broken {
			return
		}
		e := &in.head
		if e.kind != messageInline {
			return
		}
		if _, all, err := b.messages.arrived(e); !all || err != nil {
			return // its sender did not get to the end
		}
		b.keep(e)
		b.messages.take(e)
	}
}

// keep hands a whole message over without its receive.
func (b *inbox) keep(e *messageEntry) {
	if e.flags&messageChunked != 0 && sys.Load64(e.verdict()) != 0 || !b.feed.Hold(e.length) {
		return
	}
	bytes := append([]byte(nil), sys.Bytes(e.at, int(e.length))...)
	b.feed.Deliver(bytes, e.data, e.remoteFlags(), 0)
}
