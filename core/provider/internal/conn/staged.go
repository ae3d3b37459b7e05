// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"log/slog"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// Device memory: what an Endpoint does for its Stager, and the frames of peers that reach device
// memory.

// A stagingPort is the Endpoint as its Stager sees it.
type stagingPort struct{ ep *Endpoint }

var _ staging.Port = stagingPort{}

// Reserve takes an entry of the pending ops for p.
func (o stagingPort) Reserve(p *staging.Piece) bool {
	ep := o.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	s := ep.pending.takePiece()
	if s == nil {
		return false
	}
	p.ID, s.piece = int(s.index), p
	return true
}

// Send issues the operation of p.
func (o stagingPort) Send(p *staging.Piece) {
	ep := o.ep
	var t todo
	ep.mu.Lock()
	s, parent := ep.pending.at(p.ID), ep.pending.at(p.Transfer().ID)
	s.op, s.key, s.n = p.Op, parent.key, p.Len()
	s.errno, s.detail, s.notice, s.entries = 0, "", false, 0
	ep.issueStream(s, &t)
	ep.mu.Unlock()
	ep.run(&t)
}

// Cancel releases the entry of p.
func (o stagingPort) Cancel(p *staging.Piece) {
	o.ep.mu.Lock()
	o.ep.pending.release(o.ep.pending.at(p.ID))
	o.ep.mu.Unlock()
}

// Ended ends the op of t. Remote data that did not go with its only piece is sent now.
func (o stagingPort) Ended(x *staging.Transfer) {
	ep := o.ep
	s := ep.pending.at(x.ID)
	if x.Errno == 0 && s.op.Flags&fabric.OpRemoteData != 0 && s.n > staging.PieceLen {
		var t todo
		ep.mu.Lock()
		s.notice = true
		ep.issueStream(s, &t)
		ep.mu.Unlock()
		ep.run(&t)
		return
	}
	s.errno, s.detail = x.Errno, x.Detail
	s.mark(opWritten)
	if s.mark(opAnswered) {
		ep.complete(s)
	}
}

// Log logs what a device did wrong: peers get no more than an errno.
func (o stagingPort) Log(what string, err error) {
	ep := o.ep
	ep.cfg.log(slog.LevelWarn, what, "provider", ep.cfg.Info.Provider, "peer", ep.peer, "err", err)
}

// inPieces reports whether an op that is issued goes in pieces.
func (ep *Endpoint) inPieces(s *pendingOp) bool {
	if s.piece != nil || s.notice || s.n == 0 || s.op.Kind != fabric.OpRead && s.op.Kind != fabric.OpWrite {
		return false
	}
	return s.staged.Device != nil || ep.peerDevice && s.n > staging.PieceLen
}

// stageOp leaves an op to the Stager. With ep.mu held.
func (ep *Endpoint) stageOp(s *pendingOp) {
	s.staged.ID, s.staged.Op, s.staged.Len = int(s.index), &s.op, s.n
	ep.stage.Start(&s.staged, ep.peer)
}

// pieceAnswered goes on with a piece that the peer answered.
func (ep *Endpoint) pieceAnswered(s *pendingOp) {
	p := s.piece
	errno, detail := s.outcome()
	var t todo
	ep.mu.Lock()
	ep.giveBackCredit(s)
	ep.pending.release(s)
	if !ep.shutdown.isEnded() {
		ep.resume(&t)
	}
	ep.mu.Unlock()
	ep.stage.Answered(p, errno, detail)
	ep.run(&t)
}

// Reply sends the bytes of b, or errno, to the peer that reads.
func (r *reply) Reply(b staging.Buffer, errno fabric.Errno) {
	c := r.from
	j := socket.Job{H: frame.Header{Kind: frame.KindReply, Ticket: r.ticket, Flags: r.flags}}
	if errno != 0 {
		c.replies.end(r)
		j.H.Data = uint64(errno)
	} else {
		at := b.Iovec()
		r.iov, r.buf = append(r.iov[:0], at), b
		j.Reply, j.H.Length = r, at.Len
	}
	c.Post(&j, j.H.Length)
	c.Kick()
}

// Drop ends the reply with its connection.
func (r *reply) Drop() { r.from.replies.end(r) }

// logDevice logs why a peer's op failed, of which the peer gets the number only.
func (c *channel) logDevice(err error) {
	var errno fabric.Errno
	if !errors.As(err, &errno) {
		stagingPort{c.ep}.Log("a peer's op on GPU memory failed", err)
	}
}
