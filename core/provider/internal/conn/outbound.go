// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/provider/internal/queue"
)

// An outbound has the ops of this side from Submit to their completion:
//
//	add -> admit -> [fences] -> issue -> DataPath (submit.go), or a frame on a channel (frames.go)
//	answer -> complete -> resume, which issues what waited
//
// Take its lock before the locks of package socket. Never hold it while kicking a channel, calling
// the DataPath or reporting a completion. A todo records such work, and run does it after the
// unlock.
type outbound struct {
	ep *Endpoint

	mu       sync.Mutex // protects what follows, and readCredit of all channels
	launched bool       // the connection is made; until then the fences hold all ops
	pending  pendingOps
	fences   fences
	reads    queue.FIFO[*pendingOp] // issued, waiting for read credit
	sends    sends
	handoff  handoff
}

// A fences holds back ops behind an OpFence, and all ops until the connection is made. Guarded by
// outbound.mu.
type fences struct {
	held     queue.FIFO[*pendingOp] // not issued
	inFlight int                    // issued and not ended
}

// blocks reports whether s must wait for pending ops.
func (f *fences) blocks(s *pendingOp) bool { return s.op.Flags&fabric.OpFence != 0 && f.inFlight > 0 }

// next removes and returns the first held op that need not wait, or nil.
func (f *fences) next() *pendingOp {
	if f.held.Len() == 0 || f.blocks(*f.held.Peek()) {
		return nil
	}
	return f.held.Pop()
}

// A handoff passes messages to a MessagePath one at a time, in the order of submission. Guarded by
// outbound.mu.
type handoff struct {
	waiting queue.FIFO[*pendingOp] // issued, not yet passed to the DataPath
	busy    bool                   // a goroutine is passing them on
}

// A todo lists the work to do after the unlock of outbound.mu: channels to kick, ops to offer to
// the DataPath, messages to pass to it.
type todo struct {
	channels uint32 // bitmask of indices
	offered  []*pendingOp
	messages bool
}

func (t *todo) kick(c *channel) { t.channels |= 1 << c.index }

// run does the work of t. The caller does not hold outbound.mu.
func (o *outbound) run(t *todo) {
	for _, s := range t.offered {
		o.offer(s)
	}
	if t.messages {
		o.handOff()
	}
	for i := 0; t.channels != 0; i++ {
		if t.channels&(1<<i) != 0 {
			t.channels &^= 1 << i
			o.ep.channels.at(i).Kick()
		}
	}
}

// find returns our op that the peer answers on channel c with a reply or an ack, or nil if there is
// none.
func (o *outbound) find(c *channel, ticket uint32, reply bool) *pendingOp {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.pending.lookup(Ticket(ticket))
	if s == nil || s.channel != c || s.replied() != reply {
		return nil
	}
	return s
}

// complete ends an op: it releases the pendingOp, reports the completion, and then issues the ops
// that waited for it. In any other order, an op behind a fence could be reported first.
func (o *outbound) complete(s *pendingOp) {
	if s.piece != nil {
		o.completePiece(s)
		return
	}
	var t todo
	o.mu.Lock()
	op, n := s.op, s.n
	errno, detail := s.outcome()
	s.releaseCredit()
	if o.sends.offer == s {
		o.sends.offer = nil
		o.turnToWire(&t)
	}
	o.pending.release(s)
	o.mu.Unlock()
	if errno == 0 {
		o.ep.Queues.Done(&op, n)
	} else {
		o.ep.Queues.Failed(&op, errno, failure(o.ep.peer, n, errno, detail))
	}
	o.mu.Lock()
	o.fences.inFlight--
	if !o.ep.shutdown.isEnded() {
		o.resume(&t)
	}
	o.mu.Unlock()
	o.run(&t)
}

// completePiece continues the transfer of a piece that the peer answered.
func (o *outbound) completePiece(s *pendingOp) {
	p := s.piece
	errno, detail := s.outcome()
	var t todo
	o.mu.Lock()
	s.releaseCredit()
	o.pending.release(s)
	if !o.ep.shutdown.isEnded() {
		o.resume(&t)
	}
	o.mu.Unlock()
	o.ep.stage.Answered(p, errno, detail)
	o.run(&t)
}

// resume issues the waiting ops that may now proceed. The caller holds o.mu.
func (o *outbound) resume(t *todo) {
	for o.reads.Len() > 0 && o.issueReplied(*o.reads.Peek(), t) {
		o.reads.Pop()
	}
	for o.sends.waiting.Len() > 0 && o.issueSend(*o.sends.waiting.Peek(), t) {
		o.sends.waiting.Pop()
	}
	for s := o.fences.next(); s != nil; s = o.fences.next() {
		if o.issue(s, t) {
			t.offered = append(t.offered, s)
		}
	}
}

// flush ends every op with errno. It runs at the end of the connection, when no other goroutine
// uses the ops.
func (o *outbound) flush(errno fabric.Errno, detail string) {
	for i := range o.pending.pieces {
		if s := &o.pending.pieces[i]; s.used() {
			s.piece.End()
			s.end()
		}
	}
	for i := range o.pending.all {
		if s := &o.pending.all[i]; s.used() {
			op, why, text := s.op, errno, detail
			if s.unread.Load() {
				why, text = s.outcome()
			}
			s.end()
			o.ep.Queues.Failed(&op, why, text)
		}
	}
}

// failure returns the detail text of an error entry.
func failure(peer fabric.Addr, n uint64, errno fabric.Errno, detail string) string {
	switch {
	case detail != "":
		return detail
	case errno == fabric.ErrFault:
		return fmt.Sprintf("%d bytes, reply of %s: the region is not mapped: did it free that memory?", n, peer)
	}
	return fmt.Sprintf("%d bytes, reply of %s", n, peer)
}
