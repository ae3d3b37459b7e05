// SPDX-License-Identifier: MIT

package emu

import (
	"errors"
	"time"

	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

// A qp is a queue pair. It owns the connection's state and passes work between its parts: the ring
// finds entries, the requester executes them, and the responder executes the peer's requests. The
// thread owns all of it, under NIC.mu.
type qp struct {
	end
	ring    sendRing
	out     requester
	in      responder
	release func()
}

// newQP assembles the parts. The caller sets the addresses of the rings and the doorbell record.
func newQP(e end, send, receive *cq) *qp {
	q := &qp{end: e}
	q.ctx.State = mlx5.StateRST
	q.ring.end, q.out.end, q.in.end, q.in.receives.end, q.in.writes.end = &q.end, &q.end, &q.end, &q.end, &q.end
	q.out.ring, q.out.cq, q.in.receives.cq = &q.ring, send, receive
	return q
}

// modify changes the queue pair's state. Each transition applies the attributes that it requires
// and ignores the others, as a NIC does.
func (q *qp) modify(op uint32, in []byte) *refusal {
	var m mlx5.ModifyQP
	if r := command(in, &m); r != nil {
		return r
	}
	from := map[uint32]uint32{mlx5.OpRst2Init: mlx5.StateRST, mlx5.OpInit2RTR: mlx5.StateINIT, mlx5.OpRTR2RTS: mlx5.StateRTR}[op]
	if q.ctx.State != from {
		return refuse(mlx5.StatusBadState, q.ctx.State)
	}
	c := &m.QPC
	switch op {
	case mlx5.OpRst2Init:
		if c.Path.Port != 1 || c.PathState != mlx5.PathMigrated {
			return refuse(mlx5.StatusBadParam, 1)
		}
		q.ctx.RemoteRead, q.ctx.RemoteWrite, q.ctx.RemoteAtom, q.ctx.AtomicMode = c.RemoteRead, c.RemoteWrite, c.RemoteAtom, c.AtomicMode
		q.ctx.State = mlx5.StateINIT
	case mlx5.OpInit2RTR:
		return q.readyToReceive(&m)
	case mlx5.OpRTR2RTS:
		if c.LogSRAMax > logReads {
			return refuse(mlx5.StatusExceedLimit, 2)
		}
		q.ctx.NextSendPSN = c.NextSendPSN
		q.ctx.RetryCount, q.ctx.RNRRetry, q.ctx.LogSRAMax, q.ctx.Path.AckTimeout = c.RetryCount, c.RNRRetry, c.LogSRAMax, c.Path.AckTimeout
		q.out.ready(c.NextSendPSN)
		q.ctx.State = mlx5.StateRTS
	}
	return nil
}

func (q *qp) readyToReceive(m *mlx5.ModifyQP) *refusal {
	c := &m.QPC
	switch {
	case c.MTU < 1 || c.MTU > 5 || 128<<c.MTU > q.opts.MTU:
		return refuse(mlx5.StatusBadParam, 3)
	case c.LogMsgMax > maxMessage || c.LogRRAMax > logReads:
		return refuse(mlx5.StatusExceedLimit, 4)
	case c.RemoteQPN == 0 || c.Path.HopLimit == 0:
		return refuse(mlx5.StatusBadParam, 5)
	}
	q.ctx.MTU, q.ctx.LogMsgMax, q.ctx.RemoteQPN, q.ctx.LogRRAMax, q.ctx.MinRNRNak = c.MTU, c.LogMsgMax, c.RemoteQPN, c.LogRRAMax, c.MinRNRNak
	q.ctx.Path, q.ctx.NextRecvPSN = c.Path, c.NextRecvPSN
	if m.OptParams&mlx5.OptRemoteRead != 0 {
		q.ctx.RemoteRead = c.RemoteRead
	}
	if m.OptParams&mlx5.OptRemoteWrite != 0 {
		q.ctx.RemoteWrite = c.RemoteWrite
	}
	if m.OptParams&mlx5.OptAtomic != 0 {
		q.ctx.RemoteAtom = c.RemoteAtom
	}
	q.in.ready(c.NextRecvPSN)
	q.ctx.State = mlx5.StateRTR
	return nil
}

// reset moves the queue pair to state RST. Its completion queues do not change.
func (q *qp) reset() {
	q.in.writes.flush()
	q.ring.reset()
	q.out.reset()
	q.in.reset()
	q.ctx.State = mlx5.StateRST
}

// fail moves the queue pair to state ERR. All its entries, including later ones, complete as
// flushed.
func (q *qp) fail() {
	q.out.failed, q.in.failed = false, false
	if q.ctx.State == mlx5.StateERR || q.ctx.State == mlx5.StateRST {
		return
	}
	q.in.writes.flush()
	q.ctx.State = mlx5.StateERR
	q.out.flush()
	q.in.out = nil
}

// failIfBroken fails the queue pair if one of its parts has failed.
func (q *qp) failIfBroken() {
	if q.out.failed || q.in.failed || q.out.cq.broken || q.in.receives.cq.broken {
		q.fail()
	}
}

func (q *qp) describe() mlx5.Message {
	c := q.ctx
	c.HWSQCounter, c.SWSQCounter, c.NextSendPSN, c.NextRecvPSN = q.ring.fetched&0xffff, q.ring.known&0xffff, q.out.nextSeq, q.in.expected
	return &mlx5.QueryQPReply{QPC: c}
}

// take handles a packet of the peer.
func (q *qp) take(p *wire.Packet) {
	sends := q.ctx.State == mlx5.StateRTS
	switch p.Kind {
	case wire.KindAck:
		if sends {
			q.out.acknowledged(p)
		}
	case wire.KindReadReply, wire.KindAtomicReply:
		if sends {
			q.out.replied(p)
		}
	default:
		if sends || q.ctx.State == mlx5.StateRTR {
			q.in.request(p)
		}
	}
	q.failIfBroken()
}

// step executes the queue pair's part of a round. It reports whether there was any work.
func (q *qp) step(now time.Time) (busy bool) {
	if q.ctx.State == mlx5.StateRST {
		return false
	}
	busy = q.fetch()
	if q.ctx.State == mlx5.StateRTS {
		busy = q.out.transmit(now) || busy
		q.failIfBroken()
	}
	busy = q.in.serve() || busy
	q.failIfBroken()
	if q.ctx.State == mlx5.StateRTS {
		q.out.watch(now)
	}
	if q.ctx.State == mlx5.StateERR {
		q.in.receives.flush()
	}
	q.in.receives.check()
	q.failIfBroken()
	return busy
}

// fetch copies entries. In state ERR it completes them as flushed.
func (q *qp) fetch() (busy bool) {
	oldest := q.ring.fetched
	if e := q.out.head(); e != nil {
		oldest = e.at
	}
	busy, ok := q.ring.look(oldest)
	if !ok {
		q.fail()
	}
	if q.ctx.State != mlx5.StateRTS && q.ctx.State != mlx5.StateERR {
		return busy
	}
	for q.ring.pending() && !q.out.full() {
		busy = true
		if e := q.ring.next(); q.ctx.State == mlx5.StateERR {
			q.out.complete(e, mlx5.SyndromeFlush)
		} else {
			q.out.add(e)
		}
	}
	return busy
}

// An end is one end of a connection: the state that both halves of a queue pair use.
type end struct {
	*common
	memory.Domain
	port *port
	num  uint32
	ctx  mlx5.QPContext
}

func (e *end) mtu() int { return 128 << e.ctx.MTU }

// send sends a packet to the peer.
func (e *end) send(p *wire.Packet) {
	p.From, p.To = e.num, e.ctx.RemoteQPN
	e.port.send(e.ctx.Path.GID, p)
}

// noteAccess records an access to local memory that no region allows.
func (e *end) noteAccess(err error) {
	if errors.As(err, new(memory.ProtectionError)) {
		e.violate("queue pair %#x: %v", e.num, err)
	}
}
