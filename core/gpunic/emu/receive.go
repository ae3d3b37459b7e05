// SPDX-License-Identifier: MIT

package emu

import "mori/core/gpunic/mlx5"

// What brings bytes: writes and sends, a packet at a time.

// fits reports whether a packet is the next one of the message that is open.
func (m *message) fits(p *packet, kind uint8) bool {
	n := uint64(len(p.data))
	return m.open && m.kind == kind && n <= m.left && (p.flag&flagLast != 0) == (n == m.left)
}

// write takes a packet of a write.
func (q *qp) write(p *packet) {
	m := &q.respond.message
	if p.flag&flagFirst != 0 && !q.beginWrite(p) {
		return
	}
	if !m.fits(p, kindWrite) {
		q.refuse(nakInvalid, p)
		return
	}
	var index uint16
	if p.flag&flagImm != 0 {
		var ok bool
		if _, index, ok = q.takeReceive(p); !ok {
			if p.flag&flagFirst != 0 {
				m.open = false // it comes again
			}
			return
		}
	}
	n := uint64(len(p.data))
	if n > 0 {
		k, err := q.nic.region(m.key, q.ctx.PD, m.addr, n, rightRemoteWrite) // it may be gone since
		if err == nil {
			err = q.put(k, m.addr, p.data)
		}
		if err != nil {
			q.refuse(nakAccess, p)
			return
		}
	}
	m.addr, m.left, m.offset = m.addr+n, m.left-n, m.offset+n
	m.open = p.flag&flagLast == 0
	if p.flag&flagImm != 0 {
		q.place()
		q.rcq.add(mlx5.CQE{Opcode: mlx5.CQERecvImm, QPN: q.num, Counter: index, Imm: p.imm, Bytes: uint32(m.offset)}, nil)
	}
	q.next(p)
}

// beginWrite checks the whole of a write by its first packet.
func (q *qp) beginWrite(p *packet) bool {
	m := &q.respond.message
	if m.open || p.length > 1<<q.ctx.LogMsgMax {
		q.refuse(nakInvalid, p)
		return false
	}
	if p.length > 0 {
		if _, err := q.nic.region(p.key, q.ctx.PD, p.addr, p.length, rightRemoteWrite); err != nil || !q.ctx.RemoteWrite {
			q.refuse(nakAccess, p)
			return false
		}
	}
	*m = message{open: true, kind: kindWrite, addr: p.addr, key: p.key, left: p.length}
	return true
}

// receive takes a packet of a send.
func (q *qp) receive(p *packet) {
	m := &q.respond.message
	if p.flag&flagFirst != 0 && !q.beginReceive(p) {
		return
	}
	if !m.fits(p, kindSend) {
		q.refuse(nakInvalid, p)
		return
	}
	q.place()
	n := uint64(len(p.data))
	if m.offset+n > m.room {
		q.failReceive(p, mlx5.SyndromeLength, nakInvalid)
		return
	}
	if err := q.scatter(m.into, m.offset, p.data, rightWrite); err != nil {
		q.failReceive(p, mlx5.SyndromeProtection, nakOperation)
		return
	}
	m.offset, m.left = m.offset+n, m.left-n
	if m.open = p.flag&flagLast == 0; !m.open {
		c := mlx5.CQE{Opcode: mlx5.CQERecvSend, QPN: q.num, Counter: m.index, Bytes: uint32(m.offset)}
		if p.flag&flagImm != 0 {
			c.Opcode, c.Imm = mlx5.CQERecvSendImm, p.imm
		}
		q.rcq.add(c, nil)
	}
	q.next(p)
}

// beginReceive takes a receive entry for a send.
func (q *qp) beginReceive(p *packet) bool {
	m := &q.respond.message
	if m.open || p.length > 1<<q.ctx.LogMsgMax {
		q.refuse(nakInvalid, p)
		return false
	}
	into, index, ok := q.takeReceive(p)
	if !ok {
		return false
	}
	*m = message{open: true, kind: kindSend, into: into, index: index, left: p.length}
	for _, d := range into {
		m.room += uint64(d.Bytes)
	}
	return true
}

// failReceive ends a receive entry, and the queue pair, by an error that is this side's.
func (q *qp) failReceive(p *packet, s mlx5.Syndrome, ack uint8) {
	q.rcq.add(mlx5.CQE{Opcode: mlx5.CQERecvError, QPN: q.num, Counter: q.respond.message.index, Syndrome: s}, nil)
	q.refuse(ack, p)
}

// takeReceive takes the next entry of the receive queue. Without one the peer is asked to wait.
func (q *qp) takeReceive(p *packet) (into []mlx5.Data, index uint16, ok bool) {
	r := &q.respond
	if q.ctx.RQType != mlx5.RQRegular || uint16(q.record(0)) == uint16(r.taken) {
		q.answer(nakRNR, p.seq, uint8(q.ctx.MinRNRNak))
		return nil, 0, false
	}
	b := make([]byte, q.receiveBytes())
	slot := uint64(r.taken & (1<<q.ctx.LogRQSize - 1))
	if err := q.work.mem.Read(q.rq+slot*q.receiveBytes(), b); err != nil {
		q.refuse(nakOperation, p)
		return nil, 0, false
	}
	index = uint16(r.taken)
	r.taken++
	for ; len(b) >= mlx5.SegmentBytes; b = b[mlx5.SegmentBytes:] {
		d := mlx5.ParseData(b)
		if d.Key == mlx5.InvalidLKey {
			break
		}
		into = append(into, d)
	}
	return into, index, true
}

// flushReceives completes receive entries of a queue pair in state ERR.
func (q *qp) flushReceives() {
	r := &q.respond
	for q.ctx.State == mlx5.StateERR && q.ctx.RQType == mlx5.RQRegular && uint16(q.record(0)) != uint16(r.taken) {
		q.rcq.add(mlx5.CQE{Opcode: mlx5.CQERecvError, QPN: q.num, Counter: uint16(r.taken), Syndrome: mlx5.SyndromeFlush}, nil)
		if r.taken++; q.rcq.broken {
			return
		}
	}
}
