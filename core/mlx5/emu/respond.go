// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"

	"mori/core/mlx5"
)

// A responder is the half of a queue pair that does what the peer asks for, in the order of sequence numbers.
type responder struct {
	expected uint32 // sequence number of the next packet
	refused  bool   // the peer was told that one is missing
	message  message
	taken    uint32 // receive entries
	atomics  [1 << logReads]oldAtomic
	next     int // of atomics
	out      []outgoing
	lines    []line
	warned   bool
}

// A message is one of several packets that is being received.
type message struct {
	open   bool
	kind   uint8
	addr   uint64
	key    uint32
	left   uint64
	into   []mlx5.Data // of a send
	room   uint64
	offset uint64
	index  uint16 // of the receive entry
}

// An oldAtomic is the answer to an atomic, for when the peer asks again: it must not be done twice.
type oldAtomic struct {
	used bool
	seq  uint32
	data []byte
}

// An outgoing answer: a packet, or what is left of a read.
type outgoing struct {
	packet
	reading bool
}

// asked takes a request.
func (q *qp) asked(p *packet) {
	if q.ctx.State != mlx5.StateRTR && q.ctx.State != mlx5.StateRTS {
		return
	}
	r := &q.respond
	switch d := after(p.seq, r.expected); {
	case d > 0:
		if !r.refused {
			r.refused = true
			q.answer(nakSequence, r.expected, 0)
		}
	case d < 0:
		q.askedAgain(p)
	default:
		r.refused = false
		q.execute(p)
	}
}

// askedAgain repeats an answer that may have been lost.
func (q *qp) askedAgain(p *packet) {
	r := &q.respond
	switch p.kind {
	case kindRead:
		if q.mayRead(p) {
			q.dropReadings(p.seq)
			r.out = append(r.out, outgoing{packet: *p, reading: true})
		}
	case kindAtomic:
		for _, a := range r.atomics {
			if a.used && a.seq == p.seq {
				r.out = append(r.out, outgoing{packet: packet{kind: kindAtomicReply, seq: a.seq, data: a.data}})
			}
		}
	default:
		q.answer(ackOK, (r.expected-1)&seqMask, 0)
	}
}

// dropReadings forgets answers to reads from a sequence number on: the peer asks for all of them again.
func (q *qp) dropReadings(from uint32) {
	kept := q.respond.out[:0]
	for _, o := range q.respond.out {
		if !o.reading || after(o.seq, from) < 0 {
			kept = append(kept, o)
		}
	}
	q.respond.out = kept
}

// answer queues an acknowledgement, behind answers to what came before.
func (q *qp) answer(ack uint8, seq uint32, code uint8) {
	q.respond.out = append(q.respond.out, outgoing{packet: packet{kind: kindAck, ack: ack, seq: seq, code: code}})
}

// refuse answers with an error and ends the queue pair on this side, too, when the answer is out.
func (q *qp) refuse(ack uint8, p *packet) {
	q.answer(ack, p.seq, 0)
	q.serve()
	q.fail()
}

func (q *qp) execute(p *packet) {
	switch p.kind {
	case kindSend:
		q.receive(p)
	case kindWrite:
		q.write(p)
	case kindRead:
		q.readOut(p)
	case kindAtomic:
		q.change(p)
	}
}

// next goes on to the packet after p, and answers if p asks for it.
func (q *qp) next(p *packet) {
	q.respond.expected = (p.seq + 1) & seqMask
	if p.flag&flagAckReq != 0 {
		q.place()
		q.answer(ackOK, p.seq, 0)
	}
}

// write takes a packet of a write.
func (q *qp) write(p *packet) {
	m := &q.respond.message
	if p.flag&flagFirst != 0 {
		if !m.open && p.length > 0 {
			if _, err := q.nic.region(p.key, q.ctx.PD, p.addr, p.length, rightRemoteWrite); err != nil || !q.ctx.RemoteWrite {
				q.refuse(nakAccess, p)
				return
			}
		}
		if m.open || p.length > 1<<q.ctx.LogMsgMax {
			q.refuse(nakInvalid, p)
			return
		}
		*m = message{open: true, kind: kindWrite, addr: p.addr, key: p.key, left: p.length}
	}
	n := uint64(len(p.data))
	if !m.open || m.kind != kindWrite || n > m.left || (p.flag&flagLast != 0) != (n == m.left) {
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

// receive takes a packet of a send.
func (q *qp) receive(p *packet) {
	m := &q.respond.message
	if p.flag&flagFirst != 0 {
		if m.open {
			q.refuse(nakInvalid, p)
			return
		}
		into, index, ok := q.takeReceive(p)
		if !ok {
			return
		}
		*m = message{open: true, kind: kindSend, into: into, index: index, left: p.length}
		for _, d := range into {
			m.room += uint64(d.Bytes)
		}
	}
	n := uint64(len(p.data))
	if !m.open || m.kind != kindSend || n > m.left || (p.flag&flagLast != 0) != (n == m.left) {
		q.refuse(nakInvalid, p)
		return
	}
	q.place()
	s := mlx5.Syndrome(0)
	if m.offset+n > m.room {
		s = mlx5.SyndromeLength
	} else if err := q.scatter(m.into, m.offset, p.data, rightWrite); err != nil {
		s = mlx5.SyndromeProtection
	}
	if s != 0 {
		q.rcq.add(mlx5.CQE{Opcode: mlx5.CQERecvError, QPN: q.num, Counter: m.index, Syndrome: s}, nil)
		if s == mlx5.SyndromeLength {
			q.refuse(nakInvalid, p)
		} else {
			q.refuse(nakOperation, p)
		}
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

// takeReceive takes the next entry of the receive queue. If there is none the peer is told to wait.
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

// mayRead tells whether a read is allowed.
func (q *qp) mayRead(p *packet) bool {
	if !q.ctx.RemoteRead || p.length > 1<<q.ctx.LogMsgMax {
		return false
	}
	_, err := q.nic.region(p.key, q.ctx.PD, p.addr, p.length, rightRemoteRead)
	return err == nil || p.length == 0
}

// readOut answers a read.
func (q *qp) readOut(p *packet) {
	if q.respond.message.open {
		q.refuse(nakInvalid, p)
		return
	}
	if !q.mayRead(p) {
		q.refuse(nakAccess, p)
		return
	}
	q.place()
	n := max(1, (p.length+uint64(q.mtu())-1)/uint64(q.mtu()))
	q.respond.out = append(q.respond.out, outgoing{packet: *p, reading: true})
	q.respond.expected = (p.seq + uint32(n)) & seqMask
}

// change does an atomic.
func (q *qp) change(p *packet) {
	k, err := q.nic.region(p.key, q.ctx.PD, p.addr, uint64(p.atomic.Width), rightAtomic)
	switch {
	case err != nil || !q.ctx.RemoteAtom:
		q.refuse(nakAccess, p)
		return
	case p.addr%uint64(p.atomic.Width) != 0 || q.respond.message.open:
		q.refuse(nakInvalid, p)
		return
	}
	q.place()
	old, err := changeBytes(k.umem.mem, p.addr, p.atomic.Width, func(v uint64) uint64 { return operate(p.code, p.atomic, v) })
	if err != nil {
		q.refuse(nakOperation, p)
		return
	}
	data := binary.LittleEndian.AppendUint64(nil, old)[:p.atomic.Width]
	r := &q.respond
	r.atomics[r.next%len(r.atomics)] = oldAtomic{used: true, seq: p.seq, data: data}
	r.next++
	r.out = append(r.out, outgoing{packet: packet{kind: kindAtomicReply, seq: p.seq, data: data}})
	r.expected = (p.seq + 1) & seqMask
}

// operate is what an atomic makes of a word.
func operate(opcode uint8, a mlx5.Atomic, v uint64) uint64 {
	switch opcode {
	case mlx5.OpFetchAdd:
		return v + a.Swap
	case mlx5.OpCompareSwap:
		if v == a.Compare {
			return a.Swap
		}
		return v
	case mlx5.OpMaskedSwap:
		if v&a.CompareMsk == a.Compare&a.CompareMsk {
			return v&^a.SwapMask | a.Swap&a.SwapMask
		}
		return v
	}
	// Masked add: nothing is carried over the top bits of fields, which SwapMask has.
	low := (v &^ a.SwapMask) + (a.Swap &^ a.SwapMask)
	return low ^ (v^a.Swap)&a.SwapMask
}

// serve sends answers and completes what is left to do when nothing is asked.
func (q *qp) serve() (busy bool) {
	r := &q.respond
	for budget := sendBudget; budget > 0 && len(r.out) > 0; budget-- {
		busy = true
		o := &r.out[0]
		if !o.reading {
			q.send(o.packet)
			r.out = r.out[1:]
			continue
		}
		if !q.readOn(o) {
			return true
		}
	}
	q.placeSome()
	q.flushReceives()
	if !r.warned && q.ctx.RQType == mlx5.RQNone && q.ctx.State != mlx5.StateRST && q.record(0) != 0 {
		r.warned = true
		q.nic.violate("queue pair %#x: the receive counter moved, and there is no receive queue", q.num)
	}
	return busy
}

// readOn sends the next packet of the answer to a read.
func (q *qp) readOn(o *outgoing) bool {
	p := packet{kind: kindReadReply, seq: o.seq, data: make([]byte, min(uint64(q.mtu()), o.length))}
	if len(p.data) > 0 {
		k, err := q.nic.region(o.key, q.ctx.PD, o.addr, uint64(len(p.data)), rightRemoteRead)
		if err == nil {
			err = k.umem.mem.Read(o.addr, p.data)
		}
		if err != nil {
			asked := o.packet
			q.respond.out = nil
			q.refuse(nakOperation, &asked)
			return false
		}
	}
	n := uint64(len(p.data))
	o.seq, o.addr, o.length = (o.seq+1)&seqMask, o.addr+n, o.length-n
	if o.length == 0 {
		q.respond.out = q.respond.out[1:]
	}
	q.send(p)
	return true
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
