// SPDX-License-Identifier: MIT

package receive

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A Feed brings the messages of one connection into a Queue. There are two ways:
//
//   - Take returns the oldest receive for a message whose bytes are about to arrive. The connection
//     fills it in place, then calls Filled or Failed.
//   - Otherwise Hold requests room. The connection reads the message into a buffer and passes it to
//     Deliver. If Hold returns false, read nothing more from this peer until FeedConfig.Changed.
//
// A feed handles one message at a time: Filled, Failed, Deliver or Unhold must follow each Take or
// Hold before the next one.
type Feed struct {
	r     *Queue
	cfg   FeedConfig
	held  uint64 // bytes of early messages and of successful calls of Hold
	waits bool   // in r.waiting
	ended bool
}

// A FeedConfig configures a Feed. Its functions are called without locks of the queue, unless they
// say otherwise.
type FeedConfig struct {
	// Room bounds the bytes of messages that wait for receives.
	Room uint64

	// Source returns the peer's number for Completion.Src. It is called with the queue's lock held.
	// nil: 0.
	Source func() fabric.AVAddr

	// Changed is called after Take or Hold failed and may succeed now, after waiting messages of this
	// feed were consumed, and after the queue ended. The goroutine that posts a receive calls it. nil:
	// no call.
	Changed func()

	// Placed is called when a message that Deliver got with a nonzero token is in the memory of a
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

// wait requests a call of Changed at the next change. The caller holds mu.
func (f *Feed) wait() {
	if !f.waits {
		f.waits = true
		f.r.waiting = append(f.r.waiting, f)
	}
}

// drop returns room. The caller holds mu.
func (f *Feed) drop(n uint64) {
	f.held -= n + messageCost
	if f.ended && f.r.ended == 0 {
		f.r.orphaned -= n + messageCost
	}
}

// Take pops the oldest posted receive. If there is none, Changed is called once there may be one.
func (f *Feed) Take() (op fabric.Op, ok bool) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if f.r.posted.len() == 0 {
		f.wait()
		return op, false
	}
	return f.r.posted.pop(), true
}

// Filled ends a receive that Take returned. The message had n bytes, and as many as fit are in the
// receive's memory: ErrTruncated if that is not all of them.
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

// Failed ends a receive that Take returned with an error entry.
func (f *Feed) Failed(op *fabric.Op, cause fabric.Errno, detail string) { f.r.fail(op, cause, detail) }

// Hold reserves room for an early message of n bytes. If it returns false, Changed is called when
// it may succeed.
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

// Unhold releases the room of Hold(n) if the message did not arrive.
func (f *Feed) Unhold(n uint64) {
	f.r.mu.Lock()
	f.drop(n)
	f.r.mu.Unlock()
}

// Held returns the room in use: the bytes of waiting messages and the fixed cost of each.
func (f *Feed) Held() uint64 {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	return f.held
}

// Deliver adds a message after Hold(len(bytes)). The queue owns the bytes from now on. If token is
// not 0, Placed is called, perhaps before Deliver returns.
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

// End ends the connection's feed. Complete messages that wait here stay. No message may be partly
// received. The functions of the FeedConfig may still be called.
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

// fill copies m into the memory of op and ends op. The caller holds mu.
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
