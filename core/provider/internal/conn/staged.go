// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"log/slog"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
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

// beginLanding makes the payload of a write, whose memory is in dst, arrive in a buffer.
func (c *channel) beginLanding(in *socket.Incoming) error {
	h := &in.H
	mr := c.rx.mr
	p, err := c.ep.stage.BeginWrite(mr, in.Dst, h.Length, &c.ep.domain.devices)
	if err == nil {
		c.rx.landing, c.rx.mr = p, nil
		in.Want, in.Own = h.Length, true
		c.rx.holds.Store(mr)
		in.Dst = append(in.Scratch(1), sys.Iovec{Addr: p.Addr(), Len: h.Length})
		return nil
	}
	mr.Release()
	c.rx.mr, in.Dst = nil, nil
	if errors.Is(err, device.ErrBusy) {
		return socket.ErrNoBuffer // and the claim is checked again
	}
	c.logDevice(err)
	c.rx.errno, in.Drop = staging.Errno(err), h.WireLen()
	return nil
}

// endLanding leaves a write whose payload arrived to the Stager.
func (c *channel) endLanding(in *socket.Incoming) error {
	h := &in.H
	if in.Compressed() {
		if err := in.Decompress(append(in.Scratch(1), sys.Iovec{Addr: c.rx.landing.Addr(), Len: h.Length})); err != nil {
			return err
		}
	}
	p := c.rx.landing
	c.rx.landing = nil
	c.rx.holds.Store(nil)
	if in.Differs() {
		c.ep.stage.Discard(p)
		return c.Ack(h.Ticket, fabric.ErrCRC)
	}
	c.ep.stage.EndWrite(p, c, h)
	return nil
}

// Landed pushes the completion that a peer's write asked for, and answers it; see staging.Writer.
func (c *channel) Landed(h *frame.Header, errno fabric.Errno) bool {
	if errno == 0 && h.Flags&frame.FlagRemoteData != 0 {
		done := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: c.ep.from(), Len: h.Length, Data: h.Data}
		if !c.ep.queues.Rx.TryPush(done) {
			return false
		}
	}
	if err := c.Ack(h.Ticket, errno); err != nil {
		c.ep.Fail(err)
	}
	c.Kick()
	return true
}

// openStaged leaves a read of device memory, in r.iov, to the Stager.
func (c *channel) openStaged(h *frame.Header, r *reply, mr *util.MR) fabric.Errno {
	r.from, r.ticket, r.flags = c, h.Ticket, h.Flags&frame.FlagChecksum|c.ep.checksumFlag()
	iov := r.iov
	r.iov = r.iov[:0]
	if err := c.ep.stage.Read(r, mr, iov, h.Length, &c.ep.domain.devices); err != nil {
		c.logDevice(err)
		return staging.Errno(err)
	}
	return 0
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

// stageReply gives the reply to one of our reads a buffer.
func (c *channel) stageReply(s *pendingOp, n uint64) error {
	if s.piece == nil {
		return nil
	}
	took, err := s.piece.Receive(n)
	switch {
	case errors.Is(err, device.ErrBusy):
		return socket.ErrNoBuffer
	case err != nil:
		s.errno, s.detail = staging.Errno(err), err.Error()
	case took:
		s.op.Seg = fabric.Seg{Addr: s.piece.Addr(), Len: n}
	}
	return nil
}

// logDevice logs why a peer's op failed, of which the peer gets the number only.
func (c *channel) logDevice(err error) {
	var errno fabric.Errno
	if !errors.As(err, &errno) {
		stagingPort{c.ep}.Log("a peer's op on GPU memory failed", err)
	}
}
