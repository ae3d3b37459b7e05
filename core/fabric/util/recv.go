// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A RecvQueue matches arriving messages with posted receives, both in order. A message that comes before its receive waits in memory of
// bounded size. It takes part in two ways:
//
//   - Take gives the oldest receive to a message whose bytes are about to arrive, to be filled in place; Filled ends it.
//   - Otherwise Hold asks for room, the message is read into a buffer, and Deliver hands that over. If Hold says no, take nothing more
//     from this peer until Posted says that something changed.
//
// Messages of one peer pass through one at a time: each Take or Hold is followed by its Filled, Deliver or Unhold
// before the next.
type RecvQueue struct {
	mu     sync.Mutex
	posted ring[fabric.Op]
	early  ring[message]
	held   uint64 // bytes of early and of what Hold promised
	ended  fabric.Errno

	q      *Queues
	limit  int
	room   uint64
	notify chan struct{}
}

// A message waits for its receive.
type message struct {
	bytes []byte
	data  uint64
	flags fabric.OpFlags
}

// messageCost is what each waiting message counts beside its bytes, so that empty ones are bounded too.
const messageCost = 64

// NewRecvQueue makes a queue for up to limit posted receives and room bytes of early messages. Completions go to q.Rx, which
// must be bound before the first Post.
func NewRecvQueue(q *Queues, limit int, room uint64) *RecvQueue {
	return &RecvQueue{q: q, limit: limit, room: room, notify: make(chan struct{}, 1)}
}

// Post adds a receive that CheckOp found good, or completes it at once with the oldest early message. ErrAgain if the queue
// or the CQ is full; after End its cause.
func (r *RecvQueue) Post(op *fabric.Op) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != 0 {
		return r.ended
	}
	if r.posted.len() >= r.limit {
		return fabric.ErrAgain
	}
	if err := r.q.Rx.Reserve(1); err != nil {
		return err
	}
	if r.early.len() == 0 {
		r.posted.push(*op)
	} else {
		m := r.early.pop()
		r.held -= uint64(len(m.bytes)) + messageCost
		r.fill(op, &m)
	}
	select {
	case r.notify <- struct{}{}:
	default:
	}
	return nil
}

// Posted tells, one reader, that a receive was posted, room became free, or the queue ended.
func (r *RecvQueue) Posted() <-chan struct{} { return r.notify }

// Take pops the oldest posted receive.
func (r *RecvQueue) Take() (op fabric.Op, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.posted.len() == 0 {
		return op, false
	}
	return r.posted.pop(), true
}

// Filled ends a receive of Take by a message of n bytes, of which as many as fit are in its memory: ErrTruncated if that
// is not all.
func (r *RecvQueue) Filled(op *fabric.Op, n, data uint64, flags fabric.OpFlags) {
	c := fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv, Flags: flags & fabric.OpRemoteData, Len: n}
	if c.Flags != 0 {
		c.Data = data
	}
	if space := op.Len(); n > space {
		c.Len = space
		r.q.Rx.PushErr(fabric.ErrEntry{Completion: c, Err: fabric.ErrTruncated,
			Detail: fmt.Sprintf("message of %d bytes into a receive of %d", n, space)})
		return
	}
	if r.q.RxSelective && op.Flags&fabric.OpWantCQE == 0 {
		r.q.Rx.Unreserve(1)
		return
	}
	r.q.Rx.Push(c)
}

// Failed ends a receive of Take with an error entry.
func (r *RecvQueue) Failed(op *fabric.Op, cause fabric.Errno, detail string) {
	r.q.Rx.PushErr(fabric.ErrEntry{Completion: fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv}, Err: cause, Detail: detail})
}

// Hold promises room for an early message of n bytes, or says no.
func (r *RecvQueue) Hold(n uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != 0 || n > r.room || r.held+n+messageCost > r.room {
		return false
	}
	r.held += n + messageCost
	return true
}

// Unhold gives up the promise of Hold(n): the message did not come.
func (r *RecvQueue) Unhold(n uint64) {
	r.mu.Lock()
	r.held -= n + messageCost
	r.mu.Unlock()
}

// Deliver hands over a message of Hold(len(bytes)). The bytes are the queue's from now on.
func (r *RecvQueue) Deliver(bytes []byte, data uint64, flags fabric.OpFlags) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := message{bytes, data, flags}
	if r.posted.len() == 0 {
		r.early.push(m)
		return
	}
	r.held -= uint64(len(bytes)) + messageCost
	op := r.posted.pop()
	r.fill(&op, &m)
}

// fill copies m into the memory of op and ends op.
func (r *RecvQueue) fill(op *fabric.Op, m *message) {
	rest := m.bytes[copy(sys.Bytes(op.Seg.Addr, int(op.Seg.Len)), m.bytes):]
	for i := 0; i < len(op.More) && len(rest) > 0; i++ {
		rest = rest[copy(sys.Bytes(op.More[i].Addr, int(op.More[i].Len)), rest):]
	}
	r.Filled(op, uint64(len(m.bytes)), m.data, m.flags)
}

// Cancel ends the posted receives with this Ctx by ErrCanceled entries. One that a message is filling is let alone.
func (r *RecvQueue) Cancel(ctx uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.posted.len(); i > 0; i-- {
		if op := r.posted.pop(); op.Ctx == ctx {
			r.Failed(&op, fabric.ErrCanceled, "")
		} else {
			r.posted.push(op)
		}
	}
}

// End ends all posted receives with cause and drops the messages that wait; every later Post answers cause.
func (r *RecvQueue) End(cause fabric.Errno, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != 0 {
		return
	}
	r.ended = cause
	for r.posted.len() > 0 {
		op := r.posted.pop()
		r.Failed(&op, cause, detail)
	}
	r.early = ring[message]{}
	select {
	case r.notify <- struct{}{}:
	default:
	}
}
