// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

const (
	// MaxExtensionQueue bounds the bytes of extension frames that wait to be sent on one endpoint.
	MaxExtensionQueue = 1 << 20
	// PathToken is set in the tokens that a DataPath passes to Feed.Deliver. The stream uses the
	// tokens without it.
	PathToken = 1 << 63
)

// A Port is the interface of an Endpoint to its DataPath. All methods may be called from any
// goroutine, from Config.Attach until DataPath.Close returns.
type Port struct{ ep *Endpoint }

// Finish ends an op that the DataPath took. err is nil or wraps the cause, a fabric.Errno.
func (p Port) Finish(k Ticket, err error) {
	s := p.taken(k, "finished")
	if p.ep.shutdown.Enter() {
		defer p.ep.shutdown.Leave() // Finish may send what the end of this op starts
	}
	if err != nil {
		s.errno, s.detail = fabric.ErrnoOf(err), err.Error()
	}
	s.mark(opWritten)
	if s.mark(opAnswered) {
		p.ep.out.complete(s)
	}
}

// Forward sends the remote data of a write whose payload the DataPath has moved. The op ends when
// the peer has received it.
func (p Port) Forward(k Ticket) { p.stream(p.taken(k, "forwarded"), true) }

// HandBack returns an op that the DataPath took to the stream, as if RMA had returned false. The
// DataPath must not have moved any byte of it.
func (p Port) HandBack(k Ticket) { p.stream(p.taken(k, "handed back"), false) }

// taken returns the op of k, which the DataPath took.
func (p Port) taken(k Ticket, act string) *pendingOp {
	s := p.ep.out.pending.lookup(k)
	if s == nil {
		panic(fmt.Sprintf("conn: op %#x %s after its end", k, act))
	}
	return s
}

// stream sends s, or only its notice. If the connection has ended, teardown ends the op instead.
func (p Port) stream(s *pendingOp, notice bool) {
	if p.ep.shutdown.Enter() {
		defer p.ep.shutdown.Leave()
		p.ep.out.stream(s, notice)
	}
}

// SendFrame sends an extension frame of a kind from 0 to 255. It copies body, which may have up to
// MaxExtension bytes, and does not block. It returns ErrAgain if MaxExtensionQueue bytes are
// already queued.
func (p Port) SendFrame(kind uint8, body []byte) error {
	if len(body) > frame.MaxExtension {
		return fmt.Errorf("send extension frame of %d bytes, limit is %d: %w", len(body), frame.MaxExtension, fabric.ErrMsgSize)
	}
	ep := p.ep
	if !ep.shutdown.Enter() {
		return fabric.ErrNotConn
	}
	defer ep.shutdown.Leave()
	if !ep.extensions.reserve(len(body)) {
		return fabric.ErrAgain
	}
	c := ep.channels.sockets[0]
	j := extension(kind, body)
	c.Post(&j, uint64(len(body)))
	c.Kick()
	return nil
}

// Fail ends the connection with err as its cause; the first cause counts. It does not block.
func (p Port) Fail(err error) { p.ep.fail(err) }

// FailWith is like Fail, but first sends an extension frame of up to MaxExtension bytes, unless the
// peer does not read for farewellWait. If the connection is still being made, it ends as soon as it
// is made.
func (p Port) FailWith(err error, kind uint8, body []byte) {
	p.ep.shutdown.beginWith(&finalFrame{cause: err, frame: extension(kind, body)})
}

// Feed returns the feed that matches this connection's messages with receives. A DataPath sets
// PathToken in its tokens.
func (p Port) Feed() *receive.Feed { return p.ep.feed }

// RecvCQ returns the queue of OpRemoteWrite completions.
func (p Port) RecvCQ() *util.CQ { return p.ep.Queues.Rx }

// SendCQ returns the queue of completions of ops other than receives.
func (p Port) SendCQ() *util.CQ { return p.ep.Queues.Tx }

// Source returns the peer's address number for completions.
func (p Port) Source() fabric.AVAddr { return p.ep.from() }

// Domain returns the endpoint's domain.
func (p Port) Domain() *Domain { return p.ep.domain }

// Peer returns the peer's address, or "" before the endpoint is connected.
func (p Port) Peer() fabric.Addr { return p.ep.Peer() }

// An extensions bounds the extension frames that wait to be sent.
type extensions struct{ queued atomic.Int64 }

// reserve makes room for a frame of n bytes. It returns false if the queue is full.
func (e *extensions) reserve(n int) bool {
	if e.queued.Add(int64(n)) > MaxExtensionQueue {
		e.queued.Add(-int64(n))
		return false
	}
	return true
}

// extension returns the job that sends an extension frame. It copies body.
func extension(kind uint8, body []byte) socket.Job {
	return socket.Job{
		H:    frame.Header{Kind: frame.KindExtension, Count: uint32(kind), Length: uint64(len(body))},
		Body: append([]byte(nil), body...),
	}
}

// A stagingPort is the interface of the Endpoint to its Stager. The peer's frames that access
// device memory are handled in writes.go, replies.go and answers.go.
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

// Ended ends the op of x. If remote data was not sent with the only piece, Ended sends it now.
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

// Log logs a device error. Peers get only an errno.
func (o stagingPort) Log(what string, err error) {
	ep := o.ep
	ep.cfg.log(slog.LevelWarn, what, "provider", ep.cfg.Info.Provider, "peer", ep.peer, "err", err)
}
