// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// admit takes a new op: it is issued, or waits behind a fence or for the connection. It reports
// whether the op is to be offered to the DataPath. With ep.mu held.
func (ep *Endpoint) admit(s *pendingOp, t *todo) (direct bool) {
	if !ep.launched || ep.fenced.Len() > 0 || s.op.Flags&fabric.OpFence != 0 && ep.inFlight > 0 {
		ep.fenced.Push(s)
		return false
	}
	return ep.issue(s, t)
}

// issue begins an op. With ep.mu held.
func (ep *Endpoint) issue(s *pendingOp, t *todo) (direct bool) {
	ep.inFlight++
	switch {
	case ep.path == nil:
	case s.op.Kind == fabric.OpRead, s.op.Kind == fabric.OpWrite:
		return true
	case s.op.Kind == fabric.OpSend && ep.messages != nil && ep.messages.Messages():
		ep.handing.Push(s)
		t.messages = true
		return false
	}
	ep.issueStream(s, t)
	return false
}

// issueStream queues an op's frame, or the op where it waits for credit. With ep.mu held.
func (ep *Endpoint) issueStream(s *pendingOp, t *todo) {
	if !s.notice {
		s.op.Spread() // frames have segments
	}
	if ep.inPieces(s) {
		ep.stageOp(s)
		return
	}
	switch s.op.Kind {
	case fabric.OpWrite:
		ep.issueWrite(s, t)
	case fabric.OpAtomic:
		ep.issueAtomic(s, t)
	case fabric.OpRead, fabric.OpFetchAtomic, fabric.OpCompareAtomic:
		if ep.reads.Len() > 0 || !ep.issueReplied(s, t) {
			ep.reads.Push(s)
		}
	case fabric.OpSend:
		if ep.sends.Len() > 0 || !ep.issueSend(s, t) {
			ep.sends.Push(s)
		}
	}
}

// sums is flagSum if this side wants payload checked.
func (ep *Endpoint) checksumFlag() uint16 {
	if ep.cfg.Checksum {
		return frame.FlagChecksum
	}
	return 0
}

// lightest is the socket with the fewest bytes queued.
func (ep *Endpoint) lightest() *channel {
	best := ep.channels[0]
	least := best.Queued()
	for _, l := range ep.channels[1:] {
		if n := l.Queued(); n < least {
			best, least = l, n
		}
	}
	return best
}

func (ep *Endpoint) post(l *channel, s *pendingOp, j *socket.Job, payload uint64, t *todo) {
	s.channel = l
	j.ID, j.Op = int(s.index), &s.op
	if s.op.Flags&fabric.OpInject != 0 {
		j.Inject = s.inject
	}
	j.H.Ticket = uint32(s.ticket())
	if s.op.Flags&fabric.OpRemoteData != 0 {
		j.H.Flags |= frame.FlagRemoteData
		j.H.Data = s.op.Data
	}
	l.Post(j, payload)
	t.kick(l)
}

func (ep *Endpoint) issueWrite(s *pendingOp, t *todo) {
	j := socket.Job{H: frame.Header{Kind: frame.KindWrite, Flags: ep.checksumFlag(), Length: s.n}}
	j.H.Region, j.H.Secret = s.key.ID, s.key.Secret
	if s.notice {
		j.H.Flags = frame.FlagNotice
		ep.post(ep.shortChannel(), s, &j, 0, t)
		return
	}
	j.H.Count = uint32(1 + len(s.op.RMore))
	ep.post(ep.lightest(), s, &j, s.n, t)
}

// issueReplied reports false if no socket has credit for it.
func (ep *Endpoint) issueReplied(s *pendingOp, t *todo) bool {
	if s.op.Kind == fabric.OpRead {
		return ep.issueRead(s, t)
	}
	return ep.issueAtomic(s, t)
}

func (ep *Endpoint) issueRead(s *pendingOp, t *todo) bool {
	n := 1 + len(s.op.RMore)
	l := ep.creditRead(s, n)
	if l == nil {
		return false
	}
	j := socket.Job{H: frame.Header{Kind: frame.KindRead, Flags: ep.checksumFlag(), Length: s.n, Count: uint32(n), Region: s.key.ID, Secret: s.key.Secret}}
	ep.post(l, s, &j, 0, t)
	return true
}

// creditRead takes the credit for a reply to an op with n remote segments on the socket with the
// fewest bytes asked for, or returns nil. With ep.mu held.
func (ep *Endpoint) creditRead(s *pendingOp, n int) *channel {
	var best *channel
	for _, l := range ep.channels {
		if l.readsOut < frame.MaxReads && l.entriesOut+n <= frame.MaxReadSegments && (best == nil || l.bytesOut < best.bytesOut) {
			best = l
		}
	}
	if best != nil {
		best.charge(s, n)
	}
	return best
}

// charge takes the credit for a reply to s. With ep.mu held.
func (c *channel) charge(s *pendingOp, n int) {
	c.readsOut++
	c.entriesOut += n
	c.bytesOut += s.n
	s.entries = n
}

// issueSend reports false if the message must wait: behind an offer, or for credit. Messages stay
// in order since only one large one is on its way, and nothing overtakes it.
func (ep *Endpoint) issueSend(s *pendingOp, t *todo) bool {
	if ep.offer != nil {
		return false
	}
	if s.n > frame.MaxEager {
		ep.offer = s
		j := socket.Job{H: frame.Header{Kind: frame.KindOffer, Length: s.n}}
		ep.post(ep.messageChannel(), s, &j, 0, t)
		return true
	}
	if cost := s.n + eagerCost; ep.sent+cost-ep.consumed <= eagerRoom {
		ep.sent += cost
		j := socket.Job{H: frame.Header{Kind: frame.KindSend, Flags: ep.checksumFlag(), Length: s.n}}
		if s.op.Flags&fabric.OpDeliveryComplete != 0 {
			j.H.Flags |= frame.FlagPlaced
		}
		ep.post(ep.messageChannel(), s, &j, s.n, t)
		return true
	}
	return false
}

// complete ends an op: it releases the pendingOp, reports the completion, and then issues what
// waited for it. In another order an op behind a fence could be reported first.
func (ep *Endpoint) complete(s *pendingOp) {
	if s.piece != nil {
		ep.pieceAnswered(s)
		return
	}
	var t todo
	ep.mu.Lock()
	op, n := s.op, s.n
	errno, detail := s.outcome()
	ep.giveBackCredit(s)
	if ep.offer == s {
		ep.offer = nil
		ep.turnToWire(&t)
	}
	ep.pending.release(s)
	ep.mu.Unlock()
	if errno == 0 {
		ep.queues.Done(&op, n)
	} else {
		ep.queues.Failed(&op, errno, ep.failure(&op, n, errno, detail))
	}
	ep.mu.Lock()
	ep.inFlight--
	if !ep.shutdown.isEnded() {
		ep.resume(&t)
	}
	ep.mu.Unlock()
	ep.run(&t)
}

// giveBackCredit gives back what creditRead took. With ep.mu held.
func (ep *Endpoint) giveBackCredit(s *pendingOp) {
	if s.entries > 0 {
		s.channel.readsOut--
		s.channel.entriesOut -= s.entries
		s.channel.bytesOut -= s.n
	}
}

// failure is the detail of an error entry.
func (ep *Endpoint) failure(op *fabric.Op, n uint64, errno fabric.Errno, detail string) string {
	switch {
	case detail != "":
		return detail
	case errno == fabric.ErrFault:
		return fmt.Sprintf("%d bytes, answer of %s: the region is not mapped: did it free that memory?", n, ep.peer)
	}
	return fmt.Sprintf("%d bytes, answer of %s", n, ep.peer)
}

// resume issues what waits and may go on. With ep.mu held.
func (ep *Endpoint) resume(t *todo) {
	for ep.reads.Len() > 0 && ep.issueReplied(*ep.reads.Peek(), t) {
		ep.reads.Pop()
	}
	for ep.sends.Len() > 0 && ep.issueSend(*ep.sends.Peek(), t) {
		ep.sends.Pop()
	}
	for ep.fenced.Len() > 0 {
		s := *ep.fenced.Peek()
		if s.op.Flags&fabric.OpFence != 0 && ep.inFlight > 0 {
			return
		}
		ep.fenced.Pop()
		if ep.issue(s, t) {
			t.offered = append(t.offered, s)
		}
	}
}
