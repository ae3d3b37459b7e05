// SPDX-License-Identifier: MIT

package emu

import (
	"slices"

	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

// A refusal is the reply to a command that failed. The emulated NIC's syndromes are numbers of its
// own: each marks one place in this code.
type refusal struct {
	status, syndrome uint32
}

func (r *refusal) Error() string { return "refused" }

func refuse(status, syndrome uint32) *refusal { return &refusal{status, syndrome} }

// Limits of the NIC.
const (
	logMaxQueue = 15
	logMaxCQ    = 22
	logMaxCount = 16 // of objects of a kind
	logReads    = 4
	maxMessage  = 30 // log2 of bytes
)

// command decodes a command's bytes into m.
func command(in []byte, m mlx5.Message) *refusal {
	if mlx5.Decode(in, m) != nil {
		return refuse(mlx5.StatusBadInLen, 0)
	}
	return nil
}

func (f *firmware) carryOut(in []byte) (mlx5.Message, *refusal) {
	var s mlx5.Simple
	if r := command(in, &s); r != nil {
		return nil, r
	}
	ok := &mlx5.Reply{}
	switch s.Op {
	case mlx5.OpQueryHCACap:
		return f.queryCaps(in)
	case mlx5.OpAllocPD:
		ok.ID = f.number()
		f.pds[ok.ID] = 0
		return ok, nil
	case mlx5.OpDeallocPD:
		return ok, f.deallocPD(s.ID)
	case mlx5.OpCreateMKey:
		return f.createMKey(in)
	case mlx5.OpDestroyMKey:
		return ok, f.destroyMKey(s.ID)
	case mlx5.OpCreateCQ:
		return f.createCQ(in)
	case mlx5.OpDestroyCQ:
		return ok, f.destroyCQ(s.ID)
	case mlx5.OpCreateQP:
		return f.createQP(in)
	}
	return f.ofQueuePair(s, in)
}

// ofQueuePair executes commands that name a queue pair.
func (f *firmware) ofQueuePair(s mlx5.Simple, in []byte) (mlx5.Message, *refusal) {
	ok := &mlx5.Reply{}
	q := f.qps[s.ID]
	switch s.Op {
	case mlx5.OpRst2Init, mlx5.OpInit2RTR, mlx5.OpRTR2RTS, mlx5.Op2Err, mlx5.Op2Rst, mlx5.OpQueryQP, mlx5.OpDestroyQP:
		if q == nil {
			return nil, refuse(mlx5.StatusBadRes, s.Op)
		}
	}
	switch s.Op {
	case mlx5.OpRst2Init, mlx5.OpInit2RTR, mlx5.OpRTR2RTS:
		return ok, q.modify(s.Op, in)
	case mlx5.Op2Err:
		q.fail()
		return ok, nil
	case mlx5.Op2Rst:
		q.reset()
		return ok, nil
	case mlx5.OpQueryQP:
		return q.describe(), nil
	case mlx5.OpDestroyQP:
		f.destroyQP(q)
		return ok, nil
	}
	return nil, refuse(mlx5.StatusBadOp, s.Op)
}

func (f *firmware) queryCaps(in []byte) (mlx5.Message, *refusal) {
	var m mlx5.QueryHCACap
	if r := command(in, &m); r != nil {
		return nil, r
	}
	if m.Mode > 1 {
		return nil, refuse(mlx5.StatusBadParam, 1) // it has no other kinds of capabilities
	}
	return &mlx5.Caps{
		LogMaxQPSize: logMaxQueue, LogMaxQP: logMaxCount, LogMaxCQSize: logMaxCQ, LogMaxCQ: logMaxCount, LogMaxMKey: logMaxCount,
		LogMaxReadsInitiated: logReads, LogMaxReadsTaken: logReads, NumPorts: 1,
	}, nil
}

func (f *firmware) deallocPD(id uint32) *refusal {
	users, ok := f.pds[id]
	switch {
	case !ok:
		return refuse(mlx5.StatusBadRes, 1)
	case users > 0:
		return refuse(mlx5.StatusBusy, 2)
	}
	delete(f.pds, id)
	return nil
}

func (f *firmware) createMKey(in []byte) (mlx5.Message, *refusal) {
	var m mlx5.CreateMKey
	if r := command(in, &m); r != nil {
		return nil, r
	}
	u := f.umems[m.UmemID]
	_, pd := f.pds[m.PD]
	offset := m.Addr & (1<<m.LogPageSize - 1) // of the region in its first page
	switch {
	case len(f.mkeys) >= 1<<logMaxCount:
		return nil, refuse(mlx5.StatusExceedLimit, 1)
	case !m.UmemValid || u == nil:
		return nil, refuse(mlx5.StatusBadParam, 2)
	case !pd:
		return nil, refuse(mlx5.StatusBadParam, 3)
	case m.AccessMode != mlx5.AccessModeMTT || m.QPN != mlx5.AnyQPN:
		return nil, refuse(mlx5.StatusBadParam, 4)
	case m.LogPageSize < 12 || m.LogPageSize > 31:
		return nil, refuse(mlx5.StatusBadParam, 5)
	case m.UmemOffset > u.N || m.Bytes == 0 || m.Bytes > u.N-m.UmemOffset || offset > u.N-m.UmemOffset-m.Bytes:
		return nil, refuse(mlx5.StatusBadParam, 6)
	case uint64(m.TranslationsActual)*2<<m.LogPageSize < offset+m.Bytes:
		return nil, refuse(mlx5.StatusBadParam, 7)
	case u.Addr+m.UmemOffset+offset != m.Addr:
		// A NIC would map other addresses onto the memory; no caller here needs that.
		return nil, refuse(mlx5.StatusBadParam, 8)
	}
	id := f.number()
	f.pds[m.PD]++
	u.Users++
	f.mkeys[id] = &memory.Region{
		Pinned: u, PD: m.PD, Key: id<<8 | m.Variant, Addr: m.Addr, N: m.Bytes, Write: m.LocalWrite, RemoteWrite: m.RemoteWrite, RemoteRead: m.RemoteRead,
		Atomic: m.Atomic, Relaxed: m.RelaxedOrdering,
	}
	return &mlx5.Reply{ID: id}, nil
}

func (f *firmware) destroyMKey(id uint32) *refusal {
	k := f.mkeys[id]
	if k == nil {
		return refuse(mlx5.StatusBadRes, 1)
	}
	for _, q := range f.order {
		q.in.writes.flush() // makes acknowledged writes visible
	}
	delete(f.mkeys, id)
	k.Pinned.Users--
	f.pds[k.PD]--
	return nil
}

func (f *firmware) createCQ(in []byte) (mlx5.Message, *refusal) {
	var m mlx5.CreateCQ
	if r := command(in, &m); r != nil {
		return nil, r
	}
	u, d, page := f.umems[m.UmemID], f.umems[m.DBRUmemID], f.uars[m.UARPage]
	switch {
	case len(f.cqs) >= 1<<logMaxCount:
		return nil, refuse(mlx5.StatusExceedLimit, 1)
	case !m.UmemValid || u == nil || m.UmemOffset%4096 != 0 || m.UmemOffset > u.N || mlx5.CQEBytes<<min(m.LogSize, logMaxCQ) > u.N-m.UmemOffset:
		return nil, refuse(mlx5.StatusBadParam, 2)
	case !m.DBRUmemValid || d == nil || m.DBRAddr%8 != 0 || d.N < 8 || m.DBRAddr > d.N-8:
		return nil, refuse(mlx5.StatusBadParam, 3)
	case page == nil:
		return nil, refuse(mlx5.StatusBadParam, 4)
	case m.LogSize > logMaxCQ || m.EntrySize != 0 || m.Compressed:
		return nil, refuse(mlx5.StatusBadParam, 5)
	case m.EQN != eventQueue:
		return nil, refuse(mlx5.StatusBadParam, 6)
	}
	id := f.number()
	u.Users, d.Users, page.users = u.Users+1, d.Users+1, page.users+1
	f.cqs[id] = &cq{
		common: f.common, num: id, addr: u.Addr + m.UmemOffset, mem: u.Mem, record: memory.Record{Mem: d.Mem, Addr: d.Addr + m.DBRAddr}, log: m.LogSize,
		collapsed: m.Collapsed, ignoreOverrun: m.IgnoreOverrun,
		release: func() { u.Users, d.Users, page.users = u.Users-1, d.Users-1, page.users-1 },
	}
	return &mlx5.Reply{ID: id}, nil
}

func (f *firmware) destroyCQ(id uint32) *refusal {
	c := f.cqs[id]
	switch {
	case c == nil:
		return refuse(mlx5.StatusBadRes, 1)
	case c.users > 0:
		return refuse(mlx5.StatusBusy, 2)
	}
	delete(f.cqs, id)
	c.release()
	return nil
}

func (f *firmware) createQP(in []byte) (mlx5.Message, *refusal) {
	var m mlx5.CreateQP
	if r := command(in, &m); r != nil {
		return nil, r
	}
	c := &m.QPC
	u, d, page := f.umems[m.UmemID], f.umems[c.DBRUmemID], f.uars[c.UARPage]
	scq, rcq := f.cqs[c.SendCQN], f.cqs[c.RecvCQN]
	_, pd := f.pds[c.PD]
	switch {
	case len(f.qps) >= 1<<logMaxCount:
		return nil, refuse(mlx5.StatusExceedLimit, 1)
	case c.Service != mlx5.ServiceRC || c.PathState != mlx5.PathMigrated || c.NoSQ:
		return nil, refuse(mlx5.StatusBadParam, 2)
	case c.LogSQSize > logMaxQueue || c.LogRQSize > logMaxQueue || c.RQType != mlx5.RQRegular && c.RQType != mlx5.RQNone:
		return nil, refuse(mlx5.StatusBadParam, 3)
	case !pd || page == nil || scq == nil || rcq == nil:
		return nil, refuse(mlx5.StatusBadParam, 4)
	case !c.DBRUmemValid || d == nil || c.DBRAddr%8 != 0 || d.N < 8 || c.DBRAddr > d.N-8:
		return nil, refuse(mlx5.StatusBadParam, 5)
	case !m.UmemValid || u == nil || m.UmemOffset%4096 != 0 || c.SendDBRMode > mlx5.DBRNone:
		return nil, refuse(mlx5.StatusBadParam, 6)
	}
	var receive uint64 // bytes of the receive queue's ring, before the send queue's
	if c.RQType == mlx5.RQRegular {
		receive = max(uint64(16)<<c.LogRQStride<<c.LogRQSize, mlx5.BlockBytes)
	}
	if m.UmemOffset > u.N || receive+mlx5.BlockBytes<<c.LogSQSize > u.N-m.UmemOffset {
		return nil, refuse(mlx5.StatusBadParam, 7)
	}
	e := end{common: f.common, Domain: memory.Domain{Regions: f.mkeys, PD: c.PD}, port: f.port, num: f.number(), ctx: *c}
	q, dbr, at := newQP(e, scq, rcq), memory.Record{Mem: d.Mem, Addr: d.Addr + c.DBRAddr}, u.Addr+m.UmemOffset
	q.ring.mem, q.ring.addr, q.ring.record, q.ring.uar = u.Mem, at+receive, dbr, page
	q.in.receives.mem, q.in.receives.addr, q.in.receives.record = u.Mem, at, dbr
	u.Users, d.Users, page.users, scq.users, rcq.users = u.Users+1, d.Users+1, page.users+1, scq.users+1, rcq.users+1
	f.pds[c.PD]++
	q.release = func() {
		u.Users, d.Users, page.users, scq.users, rcq.users = u.Users-1, d.Users-1, page.users-1, scq.users-1, rcq.users-1
		f.pds[c.PD]--
	}
	f.qps[q.num] = q
	f.order = append(f.order, q)
	return &mlx5.Reply{ID: q.num}, nil
}

func (f *firmware) destroyQP(q *qp) {
	q.in.writes.flush()
	delete(f.qps, q.num)
	f.order = slices.DeleteFunc(f.order, func(o *qp) bool { return o == q })
	q.release()
}

// dispatch passes a packet to its queue pair. It drops packets that are not from the queue pair's
// peer.
func (f *firmware) dispatch(p *wire.Packet) {
	q := f.qps[p.To]
	if q != nil && p.From == q.ctx.RemoteQPN && p.Src == q.ctx.Path.GID {
		q.take(p)
	}
}

// rung passes a doorbell on the page of own to the queue pair that it is for.
func (f *firmware) rung(own *qp, bell uint64) {
	num := f.family.target(bell, own.num)
	switch to := f.qps[num]; {
	case to == nil || to.ring.uar != own.ring.uar:
		f.violate("doorbell %#x of queue pair %#x: unknown queue pair", bell, num)
	case to.ctx.State == mlx5.StateRST:
		f.violate("doorbell of queue pair %#x in state RST", num)
	default:
		to.ring.ring(bell)
	}
}
