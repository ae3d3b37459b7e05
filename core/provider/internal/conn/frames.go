// SPDX-License-Identifier: MIT

package conn

import (
	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// The frames of our ops. All methods of this file run with outbound.mu held.

// issueStream queues an op's frame, or queues the op if it must wait for credit.
func (o *outbound) issueStream(s *pendingOp, t *todo) {
	if !s.notice {
		s.op.Spread() // frames carry lists of segments
	}
	if o.inPieces(s) {
		s.staged.ID, s.staged.Op, s.staged.Len = int(s.index), &s.op, s.n
		o.ep.stage.Start(&s.staged, o.ep.peer)
		return
	}
	switch s.op.Kind {
	case fabric.OpWrite:
		o.issueWrite(s, t)
	case fabric.OpAtomic:
		o.issueAtomic(s, t)
	case fabric.OpRead, fabric.OpFetchAtomic, fabric.OpCompareAtomic:
		if o.reads.Len() > 0 || !o.issueReplied(s, t) {
			o.reads.Push(s)
		}
	case fabric.OpSend:
		if o.sends.waiting.Len() > 0 || !o.issueSend(s, t) {
			o.sends.waiting.Push(s)
		}
	}
}

// inPieces reports whether the Stager moves the op in pieces.
func (o *outbound) inPieces(s *pendingOp) bool {
	if s.piece != nil || s.notice || s.n == 0 || s.op.Kind != fabric.OpRead && s.op.Kind != fabric.OpWrite {
		return false
	}
	return s.staged.Device != nil || o.ep.peerDevice && s.n > staging.PieceLen
}

// post queues the frame of s on channel c.
func (o *outbound) post(c *channel, s *pendingOp, j *socket.Job, payload uint64, t *todo) {
	s.channel = c
	j.ID, j.Op = int(s.index), &s.op
	if s.op.Flags&fabric.OpInject != 0 {
		j.Inject = s.inject
	}
	j.H.Ticket = uint32(s.ticket())
	if s.op.Flags&fabric.OpRemoteData != 0 {
		j.H.Flags |= frame.FlagRemoteData
		j.H.Data = s.op.Data
	}
	c.Post(j, payload)
	t.kick(c)
}

func (o *outbound) issueWrite(s *pendingOp, t *todo) {
	j := socket.Job{H: frame.Header{Kind: frame.KindWrite, Flags: o.ep.cfg.checksumFlag(), Length: s.n}}
	j.H.Region, j.H.Secret = s.key.ID, s.key.Secret
	if s.notice {
		j.H.Flags = frame.FlagNotice
		o.post(o.ep.channels.short(), s, &j, 0, t)
		return
	}
	j.H.Count = uint32(1 + len(s.op.RMore))
	o.post(o.ep.channels.lightest(), s, &j, s.n, t)
}

// issueReplied issues an op that the peer answers with a reply. It returns false if no channel has
// credit for it.
func (o *outbound) issueReplied(s *pendingOp, t *todo) bool {
	if s.op.Kind == fabric.OpRead {
		return o.issueRead(s, t)
	}
	return o.issueAtomic(s, t)
}

func (o *outbound) issueRead(s *pendingOp, t *todo) bool {
	n := 1 + len(s.op.RMore)
	c := o.ep.channels.forRead(n)
	if c == nil {
		return false
	}
	c.credit.charge(s, n)
	j := socket.Job{H: frame.Header{
		Kind: frame.KindRead, Flags: o.ep.cfg.checksumFlag(), Length: s.n, Count: uint32(n),
		Region: s.key.ID, Secret: s.key.Secret,
	}}
	o.post(c, s, &j, 0, t)
	return true
}

// issueAtomic issues an atomic op. It returns false if the peer answers the op with a reply and no
// channel has credit for one.
func (o *outbound) issueAtomic(s *pendingOp, t *todo) bool {
	code := frame.AtomicCodeOf(s.op.Kind, s.op.Atomic)
	j := socket.Job{H: frame.Header{
		Kind: frame.KindAtomic, Length: s.n, Count: uint32(code), Region: s.key.ID, Secret: s.key.Secret,
		Data: s.op.RSeg.Addr,
	}}
	c, wire := o.ep.channels.lightest(), o.ep.channels.wire.Load()
	switch {
	case wire != nil && s.replied():
		if !wire.credit.has(1) {
			return false
		}
		c = wire
	case wire != nil:
		c = wire
	case s.replied():
		if c = o.ep.channels.forRead(1); c == nil {
			return false
		}
	}
	if s.replied() {
		c.credit.charge(s, 1)
	}
	o.post(c, s, &j, j.H.PayloadLen(), t)
	return true
}

// A readCredit counts the replies that the peer owes on a channel. Guarded by outbound.mu.
type readCredit struct {
	ops     int
	entries int
	bytes   uint64
}

// has reports whether there is credit for a reply to an op with n remote segments.
func (r *readCredit) has(n int) bool {
	return r.ops < frame.MaxReads && r.entries+n <= frame.MaxReadSegments
}

// charge takes the credit for a reply to s, which has n remote segments.
func (r *readCredit) charge(s *pendingOp, n int) {
	r.ops++
	r.entries += n
	r.bytes += s.n
	s.entries = n
}

// releaseCredit returns the credit that charge took for s, if any.
func (s *pendingOp) releaseCredit() {
	if s.entries > 0 {
		r := &s.channel.credit
		r.ops--
		r.entries -= s.entries
		r.bytes -= s.n
	}
}
