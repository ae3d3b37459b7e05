// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A RecvQueue matches arriving messages with posted receives, both in order. Messages come through Feeds, one for each connection; those
// of one feed keep their order. A message that comes before its receive waits in memory of bounded size.
type RecvQueue struct {
	mu       sync.Mutex
	posted   ring[fabric.Op]
	early    ring[message]
	waiting  []*Feed // were refused, and want to hear of change
	orphaned uint64  // what feeds that ended still hold
	ended    fabric.Errno

	q     *Queues
	limit int
}

// A Feed is how the messages of one connection come into a RecvQueue. A message takes part in two ways:
//
//   - Take gives the oldest receive to a message whose bytes are about to arrive, to be filled in place; Filled or Failed ends it.
//   - Otherwise Hold asks for room, the message is read into a buffer, and Deliver hands that over. If Hold says no, take nothing more
//     from this peer until FeedConfig.Changed is called.
//
// The messages of a feed pass through one at a time: each Take or Hold is followed by its Filled, Failed, Deliver or Unhold
// before the next.
type Feed struct {
	r     *RecvQueue
	cfg   FeedConfig
	held  uint64 // bytes of early messages and of what Hold promised
	waits bool   // in r.waiting
	ended bool
}

// A FeedConfig is the connection's side of a Feed. The functions are called without locks of the queue.
type FeedConfig struct {
	// Room bounds the bytes of messages that wait for their receives.
	Room uint64

	// Source is the peer's number for Completion.Src. It is called with the queue's lock held. nil: 0.
	Source func() fabric.AVAddr

	// Changed is called, by whoever posts a receive, after Take or Hold said no and now may say yes, when
	// waiting messages of this feed were consumed, and when the queue ended. nil: nobody wants to know.
	Changed func()

	// Placed is called when a message of Deliver with a token other than 0 is in the memory of a receive.
	Placed func(token uint64)
}

// A message waits for its receive.
type message struct {
	feed  *Feed
	bytes []byte
	data  uint64
	flags fabric.OpFlags
	token uint64
}

// messageCost is what each waiting message counts beside its bytes, so that empty ones are bounded too.
const messageCost = 64

// NewRecvQueue makes a queue for up to limit posted receives. Completions go to q.Rx, which must be bound before the first Post.
func NewRecvQueue(q *Queues, limit int) *RecvQueue {
	return &RecvQueue{q: q, limit: limit}
}

// Feed adds a connection.
func (r *RecvQueue) Feed(cfg FeedConfig) *Feed { return &Feed{r: r, cfg: cfg} }

// Post adds a receive that CheckOp found good, or completes it at once with the oldest early message. ErrAgain if the queue
// or the CQ is full; after End its cause.
func (r *RecvQueue) Post(op *fabric.Op) error {
	r.mu.Lock()
	if r.ended != 0 || r.posted.len() >= r.limit {
		defer r.mu.Unlock()
		if r.ended != 0 {
			return r.ended
		}
		return fabric.ErrAgain
	}
	if err := r.q.Rx.Reserve(1); err != nil {
		r.mu.Unlock()
		return err
	}
	if r.early.len() > 0 {
		m := r.early.pop()
		m.feed.drop(uint64(len(m.bytes)))
		m.feed.fill(op, &m)
		r.mu.Unlock()
		m.feed.placed(m.token)
		m.feed.changed()
		return nil
	}
	r.posted.push(*op)
	r.unlockAndTell()
	return nil
}

// unlockAndTell releases mu and tells the feeds that wait.
func (r *RecvQueue) unlockAndTell() {
	var some [8]*Feed
	told := append(some[:0], r.waiting...)
	for i, f := range r.waiting {
		f.waits, r.waiting[i] = false, nil
	}
	r.waiting = r.waiting[:0]
	r.mu.Unlock()
	for _, f := range told {
		f.changed()
	}
}

// Cancel ends the posted receives with this Ctx by ErrCanceled entries. One that a message is filling is let alone.
func (r *RecvQueue) Cancel(ctx uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.posted.len(); i > 0; i-- {
		if op := r.posted.pop(); op.Ctx == ctx {
			r.fail(&op, fabric.ErrCanceled, "")
		} else {
			r.posted.push(op)
		}
	}
}

// End ends all posted receives with cause and drops the messages that wait; every later Post answers cause.
func (r *RecvQueue) End(cause fabric.Errno, detail string) {
	r.mu.Lock()
	if r.ended != 0 {
		r.mu.Unlock()
		return
	}
	r.ended = cause
	for r.posted.len() > 0 {
		op := r.posted.pop()
		r.fail(&op, cause, detail)
	}
	r.early, r.orphaned = ring[message]{}, 0
	r.unlockAndTell()
}

// Orphaned is how many bytes wait here whose feed has ended: to be bounded by whoever adds feeds.
func (r *RecvQueue) Orphaned() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.orphaned
}

func (r *RecvQueue) fail(op *fabric.Op, cause fabric.Errno, detail string) {
	r.q.Rx.PushErr(fabric.ErrEntry{Completion: fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv}, Err: cause, Detail: detail})
	r.q.countErr(fabric.OpRecv)
}

func (f *Feed) changed() {
	if f.cfg.Changed != nil {
		f.cfg.Changed()
	}
}

func (f *Feed) placed(token uint64) {
	if token != 0 && f.cfg.Placed != nil {
		f.cfg.Placed(token)
	}
}

// wait makes the next change known. With mu held.
func (f *Feed) wait() {
	if !f.waits {
		f.waits = true
		f.r.waiting = append(f.r.waiting, f)
	}
}

// drop gives room back. With mu held.
func (f *Feed) drop(n uint64) {
	f.held -= n + messageCost
	if f.ended && f.r.ended == 0 {
		f.r.orphaned -= n + messageCost
	}
}

// Take pops the oldest posted receive. If there is none, Changed will be called when there may be.
func (f *Feed) Take() (op fabric.Op, ok bool) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if f.r.posted.len() == 0 {
		f.wait()
		return op, false
	}
	return f.r.posted.pop(), true
}

// Filled ends a receive of Take by a message of n bytes, of which as many as fit are in its memory: ErrTruncated if that
// is not all.
func (f *Feed) Filled(op *fabric.Op, n, data uint64, flags fabric.OpFlags) {
	c := fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv, Flags: flags & fabric.OpRemoteData, Len: n}
	if c.Flags != 0 {
		c.Data = data
	}
	if f.cfg.Source != nil {
		c.Src = f.cfg.Source()
	}
	q := f.r.q
	if space := op.Len(); n > space {
		c.Len = space
		q.Rx.PushErr(fabric.ErrEntry{Completion: c, Err: fabric.ErrTruncated,
			Detail: fmt.Sprintf("message of %d bytes into a receive of %d", n, space)})
		q.countErr(fabric.OpRecv)
		return
	}
	if q.RxSelective && op.Flags&fabric.OpWantCQE == 0 {
		q.Rx.Unreserve(1)
	} else {
		q.Rx.Push(c)
	}
	q.count(fabric.OpRecv, n)
}

// Failed ends a receive of Take with an error entry.
func (f *Feed) Failed(op *fabric.Op, cause fabric.Errno, detail string) { f.r.fail(op, cause, detail) }

// Hold promises room for an early message of n bytes, or says no; then Changed will be called when it may say yes.
func (f *Feed) Hold(n uint64) bool {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if f.r.ended != 0 || n > f.cfg.Room || f.held+n+messageCost > f.cfg.Room {
		f.wait()
		return false
	}
	f.held += n + messageCost
	return true
}

// Unhold gives up the promise of Hold(n): the message did not come.
func (f *Feed) Unhold(n uint64) {
	f.r.mu.Lock()
	f.drop(n)
	f.r.mu.Unlock()
}

// Held is how much of the room is taken: the bytes of waiting messages and the fixed cost of each.
func (f *Feed) Held() uint64 {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	return f.held
}

// Deliver hands over a message of Hold(len(bytes)). The bytes are the queue's from now on. With a token other than 0, Placed will
// be called, perhaps before Deliver returns.
func (f *Feed) Deliver(bytes []byte, data uint64, flags fabric.OpFlags, token uint64) {
	r := f.r
	m := message{f, bytes, data, flags, token}
	r.mu.Lock()
	if r.ended != 0 {
		r.mu.Unlock()
		return
	}
	if r.posted.len() == 0 {
		r.early.push(m)
		r.mu.Unlock()
		return
	}
	f.drop(uint64(len(bytes)))
	op := r.posted.pop()
	f.fill(&op, &m)
	r.mu.Unlock()
	f.placed(token)
}

// End is the end of the connection. Messages that wait here whole stay; nothing of a message may be under way. The functions
// of the FeedConfig may still be called.
func (f *Feed) End() {
	r := f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.ended {
		return
	}
	f.ended = true
	if r.ended == 0 {
		r.orphaned += f.held
	}
}

// fill copies m into the memory of op and ends op. With mu held.
func (f *Feed) fill(op *fabric.Op, m *message) {
	rest := m.bytes[copy(sys.Bytes(op.Seg.Addr, int(op.Seg.Len)), m.bytes):]
	for i := 0; i < len(op.More) && len(rest) > 0; i++ {
		rest = rest[copy(sys.Bytes(op.More[i].Addr, int(op.More[i].Len)), rest):]
	}
	f.Filled(op, uint64(len(m.bytes)), m.data, m.flags)
}
