// SPDX-License-Identifier: MIT

package emu

import (
	"mori/core/gpunic/mlx5"
)

// A refusal is the answer to a command that is not carried out. Its syndrome, which is the
// firmware's own matter, is the place here.
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

// Do is of mlx5.Cmd.
func (n *NIC) Do(in, out []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.gone()
	}
	clear(out)
	answer, refused := n.carryOut(in)
	if refused != nil {
		answer = &mlx5.Reply{Status: refused.status, Syndrome: refused.syndrome}
	}
	copy(out, mlx5.Encode(answer))
	n.wakeUp()
	return nil
}

// command reads m from a command's bytes.
func command(in []byte, m mlx5.Message) *refusal {
	if mlx5.Decode(in, m) != nil {
		return refuse(mlx5.StatusBadInLen, 0)
	}
	return nil
}

func (n *NIC) carryOut(in []byte) (mlx5.Message, *refusal) {
	var s mlx5.Simple
	if r := command(in, &s); r != nil {
		return nil, r
	}
	ok := &mlx5.Reply{}
	switch s.Op {
	case mlx5.OpQueryHCACap:
		return n.queryCaps(in)
	case mlx5.OpAllocPD:
		ok.ID = n.number()
		n.pds[ok.ID] = 0
		return ok, nil
	case mlx5.OpDeallocPD:
		return ok, n.deallocPD(s.ID)
	case mlx5.OpCreateMKey:
		return n.createMKey(in)
	case mlx5.OpDestroyMKey:
		return ok, n.destroyMKey(s.ID)
	case mlx5.OpCreateCQ:
		return n.createCQ(in)
	case mlx5.OpDestroyCQ:
		return ok, n.destroyCQ(s.ID)
	case mlx5.OpCreateQP:
		return n.createQP(in)
	}
	return n.ofQueuePair(s, in)
}

// ofQueuePair carries out commands that name a queue pair.
func (n *NIC) ofQueuePair(s mlx5.Simple, in []byte) (mlx5.Message, *refusal) {
	ok := &mlx5.Reply{}
	q := n.qps[s.ID]
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
		n.destroyQP(q)
		return ok, nil
	}
	return nil, refuse(mlx5.StatusBadOp, s.Op)
}

func (n *NIC) queryCaps(in []byte) (mlx5.Message, *refusal) {
	var m mlx5.QueryHCACap
	if r := command(in, &m); r != nil {
		return nil, r
	}
	if m.Mode > 1 {
		return nil, refuse(mlx5.StatusBadParam, 1) // other kinds of capabilities: it has none
	}
	return &mlx5.Caps{
		LogMaxQPSize: logMaxQueue, LogMaxQP: logMaxCount, LogMaxCQSize: logMaxCQ, LogMaxCQ: logMaxCount, LogMaxMKey: logMaxCount,
		LogMaxReadsInitiated: logReads, LogMaxReadsTaken: logReads, NumPorts: 1,
	}, nil
}

func (n *NIC) deallocPD(id uint32) *refusal {
	users, ok := n.pds[id]
	switch {
	case !ok:
		return refuse(mlx5.StatusBadRes, 1)
	case users > 0:
		return refuse(mlx5.StatusBusy, 2)
	}
	delete(n.pds, id)
	return nil
}

func (n *NIC) createMKey(in []byte) (mlx5.Message, *refusal) {
	var m mlx5.CreateMKey
	if r := command(in, &m); r != nil {
		return nil, r
	}
	u := n.umems[m.UmemID]
	_, pd := n.pds[m.PD]
	offset := m.Addr & (1<<m.LogPageSize - 1) // of the region in its first page
	switch {
	case len(n.mkeys) >= 1<<logMaxCount:
		return nil, refuse(mlx5.StatusExceedLimit, 1)
	case !m.UmemValid || u == nil:
		return nil, refuse(mlx5.StatusBadParam, 2)
	case !pd:
		return nil, refuse(mlx5.StatusBadParam, 3)
	case m.AccessMode != mlx5.AccessModeMTT || m.QPN != mlx5.AnyQPN:
		return nil, refuse(mlx5.StatusBadParam, 4)
	case m.LogPageSize < 12 || m.LogPageSize > 31:
		return nil, refuse(mlx5.StatusBadParam, 5)
	case m.UmemOffset > u.n || m.Bytes == 0 || m.Bytes > u.n-m.UmemOffset || offset > u.n-m.UmemOffset-m.Bytes:
		return nil, refuse(mlx5.StatusBadParam, 6)
	case uint64(m.TranslationsActual)*2<<m.LogPageSize < offset+m.Bytes:
		return nil, refuse(mlx5.StatusBadParam, 7)
	case u.addr+m.UmemOffset+offset != m.Addr:
		// A NIC would map other addresses onto the memory; nobody asks for it here.
		return nil, refuse(mlx5.StatusBadParam, 8)
	}
	id := n.number()
	n.pds[m.PD]++
	u.users++
	n.mkeys[id] = &mkey{
		umem: u, pd: m.PD, key: id<<8 | m.Variant, addr: m.Addr, n: m.Bytes, write: m.LocalWrite, remoteW: m.RemoteWrite, remoteR: m.RemoteRead,
		atomic: m.Atomic, relaxed: m.RelaxedOrdering,
	}
	return &mlx5.Reply{ID: id}, nil
}

func (n *NIC) destroyMKey(id uint32) *refusal {
	k := n.mkeys[id]
	if k == nil {
		return refuse(mlx5.StatusBadRes, 1)
	}
	for _, q := range n.order {
		q.place() // what was said to be written is
	}
	delete(n.mkeys, id)
	k.umem.users--
	n.pds[k.pd]--
	return nil
}

func (n *NIC) createCQ(in []byte) (mlx5.Message, *refusal) {
	var m mlx5.CreateCQ
	if r := command(in, &m); r != nil {
		return nil, r
	}
	u, d, page := n.umems[m.UmemID], n.umems[m.DBRUmemID], n.uars[m.UARPage]
	switch {
	case len(n.cqs) >= 1<<logMaxCount:
		return nil, refuse(mlx5.StatusExceedLimit, 1)
	case !m.UmemValid || u == nil || m.UmemOffset%4096 != 0 || m.UmemOffset > u.n || mlx5.CQEBytes<<min(m.LogSize, logMaxCQ) > u.n-m.UmemOffset:
		return nil, refuse(mlx5.StatusBadParam, 2)
	case !m.DBRUmemValid || d == nil || m.DBRAddr%8 != 0 || d.n < 8 || m.DBRAddr > d.n-8:
		return nil, refuse(mlx5.StatusBadParam, 3)
	case page == nil:
		return nil, refuse(mlx5.StatusBadParam, 4)
	case m.LogSize > logMaxCQ || m.EntrySize != 0 || m.Compressed:
		return nil, refuse(mlx5.StatusBadParam, 5)
	case m.EQN != eventQueue:
		return nil, refuse(mlx5.StatusBadParam, 6)
	}
	id := n.number()
	u.users, d.users, page.users = u.users+1, d.users+1, page.users+1
	n.cqs[id] = &cq{
		nic: n, num: id, addr: u.addr + m.UmemOffset, log: m.LogSize, dbr: d.addr + m.DBRAddr, collapsed: m.Collapsed, ignoreOverrun: m.IgnoreOverrun,
		mem: u.mem, dbrMem: d.mem, release: func() { u.users, d.users, page.users = u.users-1, d.users-1, page.users-1 },
	}
	return &mlx5.Reply{ID: id}, nil
}

func (n *NIC) destroyCQ(id uint32) *refusal {
	c := n.cqs[id]
	switch {
	case c == nil:
		return refuse(mlx5.StatusBadRes, 1)
	case c.users > 0:
		return refuse(mlx5.StatusBusy, 2)
	}
	delete(n.cqs, id)
	c.release()
	return nil
}
