// SPDX-License-Identifier: MIT

package receive

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A Feed is how the messages of one connection come into a Queue. A message takes part in two
// ways:
//
//   - Take gives the oldest receive to a message whose bytes are about to arrive, to be filled in
//     place; Filled or Failed ends it.
//   - Otherwise Hold asks for room, the message is read into a buffer, and Deliver hands that over.
//     If Hold says no, take nothing more from this peer until FeedConfig.Changed is called.
//
// The messages of a feed pass through one at a time: each Take or Hold is followed by its Filled,
// Failed, Deliver or Unhold before the next.
type Feed struct {
	r     *Queue
	cfg   FeedConfig
	held  uint64 // bytes of early messages and of what Hold promised
	waits bool   // in r.waiting
	ended bool
}

// A FeedConfig is the connection's side of a Feed. The functions are called without locks of the
// queue.
type FeedConfig struct {
	// Room bounds the bytes of messages that wait for their receives.
	Room uint64

	// Source is the peer's number for Completion.Src. It is called with the queue's lock held. nil: 0.
	Source func() fabric.AVAddr

	// Changed is called, by the goroutine that posts a receive, after Take or Hold said no and now may
	// say yes, when waiting messages of this feed were consumed, and when the queue ended. nil: nobody
	// wants to know.
	Changed func()

	// Placed is called when a message of Deliver with a token other than 0 is in the memory of a
	// receive.
	Placed func(token uint64)
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

// Take pops the oldest posted receive. Without one, Changed will be called when there may be.
func (f *Feed) Take() (op fabric.Op, ok bool) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if f.r.posted.len() == 0 {
		f.wait()
		return op, false
	}
	return f.r.posted.pop(), true
}

// Filled ends a receive of Take by a message of n bytes, of which as many as fit are in its memory:
// ErrTruncated if that is not all.
func (f *Feed) Filled(op *fabric.Op, n, data uint64, flags fabric.OpFlags) {
	c := fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv, Flags: flags & fabric.OpRemoteData, Len: n}
	if c.Flags != 0 {
		c.Data = data
	}
	if f.cfg.Source != nil {
		c.Src = f.cfg.Source()
	}
	if space := op.Len(); n > space {
		c.Len = space
		f.r.q.NotReceived(fabric.ErrEntry{Completion: c, Err: fabric.ErrTruncated,
			Detail: fmt.Sprintf("message of %d bytes into a receive of %d", n, space)})
		return
	}
	f.r.q.Received(op, c)
}

// Failed ends a receive of Take with an error entry.
func (f *Feed) Failed(op *fabric.Op, cause fabric.Errno, detail string) { f.r.fail(op, cause, detail) }

// Hold promises room for an early message of n bytes, or says no; then Changed will be called when
// it may say yes.
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

// Deliver hands over a message of Hold(len(bytes)). The bytes are the queue's from now on. With a
// token other than 0, Placed will be called, perhaps before Deliver returns.
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

// End is the end of the connection. Messages that wait here whole stay; nothing of a message may be
// under way. The functions of the FeedConfig may still be called.
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
	err := sys.Guard(func() {
		rest := m.bytes[copy(sys.Bytes(op.Seg.Addr, int(op.Seg.Len)), m.bytes):]
		for i := 0; i < len(op.More) && len(rest) > 0; i++ {
			rest = rest[copy(sys.Bytes(op.More[i].Addr, int(op.More[i].Len)), rest):]
		}
	})
	if err != nil {
		f.Failed(op, fabric.ErrnoOf(err), "the buffer of the receive cannot be written: was it freed before a message arrived?")
		return
	}
	f.Filled(op, uint64(len(m.bytes)), m.data, m.flags)
}
