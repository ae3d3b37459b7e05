// SPDX-License-Identifier: MIT

package conn

import (
	"log/slog"

	"mori/core/fabric"
	"mori/core/provider/internal/staging"
)

// A stagingPort is the Endpoint as its Stager sees it. Frames of the peer that reach device memory
// are in writes.go, replies.go and answers.go.
type stagingPort struct{ ep *Endpoint }

var _ staging.Port = stagingPort{}

// Reserve takes an entry of the pending ops for p.
func (o stagingPort) Reserve(p *staging.Piece) bool {
	ep := o.ep
	ep.out.mu.Lock()
	defer ep.out.mu.Unlock()
	s := ep.out.pending.takePiece()
	if s == nil {
		return false
	}
	p.ID, s.piece = int(s.index), p
	return true
}

// Send issues the operation of p.
func (o stagingPort) Send(p *staging.Piece) {
	out := &o.ep.out
	var t todo
	out.mu.Lock()
	s, parent := out.pending.at(p.ID), out.pending.at(p.Transfer().ID)
	s.op, s.key, s.n = p.Op, parent.key, p.Len()
	s.errno, s.detail, s.notice, s.entries = 0, "", false, 0
	out.issueStream(s, &t)
	out.mu.Unlock()
	out.run(&t)
}

// Cancel releases the entry of p.
func (o stagingPort) Cancel(p *staging.Piece) {
	out := &o.ep.out
	out.mu.Lock()
	out.pending.release(out.pending.at(p.ID))
	out.mu.Unlock()
}

// Ended ends the op of t. Remote data that did not go with its only piece is sent now.
func (o stagingPort) Ended(x *staging.Transfer) {
	out := &o.ep.out
	s := out.pending.at(x.ID)
	if x.Errno == 0 && s.op.Flags&fabric.OpRemoteData != 0 && s.n > staging.PieceLen {
		out.stream(s, true)
		return
	}
	s.errno, s.detail = x.Errno, x.Detail
	s.mark(opWritten)
	if s.mark(opAnswered) {
		out.complete(s)
	}
}

// Log logs what a device did wrong: peers get no more than an errno.
func (o stagingPort) Log(what string, err error) {
	ep := o.ep
	ep.cfg.log(slog.LevelWarn, what, "provider", ep.cfg.Info.Provider, "peer", ep.peer, "err", err)
}
