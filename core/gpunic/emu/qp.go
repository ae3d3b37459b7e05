// SPDX-License-Identifier: MIT

package emu

import (
	"slices"
	"time"

	"mori/core/gpunic/mlx5"
)

// A qp is a queue pair. doorbell.go has how its entries come to be known, request.go how they are
// carried out, respond.go what the peer asks for. All of it is the thread's, under NIC.mu.
type qp struct {
	nic      *NIC
	num      uint32
	ctx      mlx5.QPContext
	work     *umem
	dbrMem   Memory
	dbr      uint64
	rq, sq   uint64
	uar      *uar
	scq, rcq *cq
	release  func()

	// The send queue. Counts of blocks run on past the ring's end.
	known   uint32 // blocks that the NIC knows of
	fetched uint32 // of those, read
	lookAt  uint64 // round at which a doorbell that was rung is looked at; 0 is none
	bell    uint64 // what was in it
	entries []*entry
	sending int // index of the entry whose packets go out next

	nextSeq  uint32
	acked    uint32    // all before it have been answered for
	deadline time.Time // of the answer to what was sent; none if zero
	nudge    time.Time // when to send again, before that
	paused   time.Time // the peer is not ready until then
	retries  uint32
	rnr      uint32

	respond responder
}

// memory of the receive queue's entries, 16 bytes each at least
func (q *qp) receiveBytes() uint64 { return 16 << q.ctx.LogRQStride }

func (n *NIC) createQP(in []byte) (mlx5.Message, *refusal) {
	var m mlx5.CreateQP
	if r := command(in, &m); r != nil {
		return nil, r
	}
	c := &m.QPC
	u, d, page := n.umems[m.UmemID], n.umems[c.DBRUmemID], n.uars[c.UARPage]
	scq, rcq := n.cqs[c.SendCQN], n.cqs[c.RecvCQN]
	_, pd := n.pds[c.PD]
	switch {
	case len(n.qps) >= 1<<logMaxCount:
		return nil, refuse(mlx5.StatusExceedLimit, 1)
	case c.Service != mlx5.ServiceRC || c.PathState != mlx5.PathMigrated || c.NoSQ:
		return nil, refuse(mlx5.StatusBadParam, 2)
	case c.LogSQSize > logMaxQueue || c.LogRQSize > logMaxQueue || c.RQType != mlx5.RQRegular && c.RQType != mlx5.RQNone:
		return nil, refuse(mlx5.StatusBadParam, 3)
	case !pd || page == nil || scq == nil || rcq == nil:
		return nil, refuse(mlx5.StatusBadParam, 4)
	case !c.DBRUmemValid || d == nil || c.DBRAddr%8 != 0 || d.n < 8 || c.DBRAddr > d.n-8:
		return nil, refuse(mlx5.StatusBadParam, 5)
	case !m.UmemValid || u == nil || m.UmemOffset%4096 != 0 || c.SendDBRMode > mlx5.DBRNone:
		return nil, refuse(mlx5.StatusBadParam, 6)
	}
	q := &qp{nic: n, num: n.number(), ctx: *c, work: u, dbrMem: d.mem, dbr: d.addr + c.DBRAddr, uar: page, scq: scq, rcq: rcq}
	var receive uint64
	if c.RQType == mlx5.RQRegular {
		receive = max(q.receiveBytes()<<c.LogRQSize, mlx5.BlockBytes)
	}
	if m.UmemOffset > u.n || receive+mlx5.BlockBytes<<c.LogSQSize > u.n-m.UmemOffset {
		return nil, refuse(mlx5.StatusBadParam, 7)
	}
	q.rq = u.addr + m.UmemOffset
	q.sq = q.rq + receive
	u.users, d.users, page.users, scq.users, rcq.users = u.users+1, d.users+1, page.users+1, scq.users+1, rcq.users+1
	n.pds[c.PD]++
	q.release = func() {
		u.users, d.users, page.users, scq.users, rcq.users = u.users-1, d.users-1, page.users-1, scq.users-1, rcq.users-1
		n.pds[c.PD]--
	}
	q.ctx.State = mlx5.StateRST
	n.qps[q.num] = q
	n.order = append(n.order, q)
	return &mlx5.Reply{ID: q.num}, nil
}

func (n *NIC) destroyQP(q *qp) {
	q.place()
	delete(n.qps, q.num)
	n.order = slices.DeleteFunc(n.order, func(o *qp) bool { return o == q })
	q.release()
}

// modify moves the queue pair on. Each transition takes what it requires and leaves the rest as it
// is, as the NIC does.
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
		return q.ready(&m)
	case mlx5.OpRTR2RTS:
		if c.LogSRAMax > logReads {
			return refuse(mlx5.StatusExceedLimit, 2)
		}
		q.nextSeq, q.acked, q.ctx.NextSendPSN = c.NextSendPSN, c.NextSendPSN, c.NextSendPSN
		q.ctx.RetryCount, q.ctx.RNRRetry, q.ctx.LogSRAMax, q.ctx.Path.AckTimeout = c.RetryCount, c.RNRRetry, c.LogSRAMax, c.Path.AckTimeout
		q.retries, q.rnr = c.RetryCount, c.RNRRetry
		q.ctx.State = mlx5.StateRTS
	}
	return nil
}

func (q *qp) ready(m *mlx5.ModifyQP) *refusal {
	c := &m.QPC
	switch {
	case c.MTU < 1 || c.MTU > 5 || 128<<c.MTU > q.nic.opts.MTU:
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
	q.respond = responder{expected: c.NextRecvPSN}
	q.ctx.State = mlx5.StateRTR
	return nil
}

// reset brings the queue pair to state RST; its completion queues go on.
func (q *qp) reset() {
	q.place()
	q.known, q.fetched, q.lookAt, q.entries, q.sending, q.respond = 0, 0, 0, nil, 0, responder{}
	q.paused, q.deadline = time.Time{}, time.Time{}
	q.ctx.State = mlx5.StateRST
}

// fail moves the queue pair to state ERR. All its entries end as flushed, also those that come
// later.
func (q *qp) fail() {
	if q.ctx.State == mlx5.StateERR || q.ctx.State == mlx5.StateRST {
		return
	}
	q.place()
	q.ctx.State = mlx5.StateERR
	for _, e := range q.entries {
		q.complete(e, mlx5.SyndromeFlush)
	}
	q.entries, q.sending = nil, 0
	q.respond.out = nil
}

func (q *qp) describe() mlx5.Message {
	c := q.ctx
	c.HWSQCounter, c.SWSQCounter, c.NextSendPSN, c.NextRecvPSN = q.fetched&0xffff, q.known&0xffff, q.nextSeq, q.respond.expected
	return &mlx5.QueryQPReply{QPC: c}
}

func (q *qp) mtu() int { return 128 << q.ctx.MTU }
