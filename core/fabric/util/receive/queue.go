// SPDX-License-Identifier: MIT

package receive

import (
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// A Queue matches arriving messages with posted receives, both in order. Each connection brings its
// messages through a Feed, which keeps their order. A message that arrives before its receive waits
// in memory of bounded size.
type Queue struct {
	mu       sync.Mutex
	posted   ring[fabric.Op]
	early    ring[message]
	waiting  []*Feed // feeds to notify of the next change
	orphaned uint64  // bytes in use by feeds that have ended
	ended    fabric.Errno

	q     *util.Queues
	limit int
}

// A message is a message that waits for its receive.
type message struct {
	feed  *Feed
	bytes []byte
	data  uint64
	flags fabric.OpFlags
	token uint64
}

// messageCost is added to the bytes of each waiting message, so that the number of empty messages
// is bounded, too.
const messageCost = 64

// NewQueue makes a queue for up to limit posted receives. Completions go to q.Rx, which must be
// bound before the first Post.
func NewQueue(q *util.Queues, limit int) *Queue {
	return &Queue{q: q, limit: limit}
}

// Feed adds a connection to the queue.
func (r *Queue) Feed(cfg FeedConfig) *Feed { return &Feed{r: r, cfg: cfg} }

// Post adds a receive that CheckOp has accepted, or completes it immediately with the oldest early
// message. It returns ErrAgain if the queue or the CQ is full, and End's cause after End.
func (r *Queue) Post(op *fabric.Op) error {
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
	r.unlockAndNotify()
	return nil
}

// unlockAndNotify releases mu and notifies the waiting feeds.
func (r *Queue) unlockAndNotify() {
	var some [8]*Feed
	notified := append(some[:0], r.waiting...)
	for i, f := range r.waiting {
		f.waits, r.waiting[i] = false, nil
	}
	r.waiting = r.waiting[:0]
	r.mu.Unlock()
	for _, f := range notified {
		f.changed()
	}
}

// Cancel ends the posted receives with this Ctx with ErrCanceled entries. It does not affect a
// receive that a message is filling.
func (r *Queue) Cancel(ctx uint64) {
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

// End ends all posted receives with cause and drops the waiting messages. Every later Post returns
// cause.
func (r *Queue) End(cause fabric.Errno, detail string) {
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
	r.unlockAndNotify()
}

// Orphaned returns the bytes of waiting messages whose feed has ended. The owner of the feeds must
// bound them.
func (r *Queue) Orphaned() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.orphaned
}

func (r *Queue) fail(op *fabric.Op, cause fabric.Errno, detail string) {
	r.q.NotReceived(fabric.ErrEntry{Completion: fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv}, Err: cause, Detail: detail})
}
