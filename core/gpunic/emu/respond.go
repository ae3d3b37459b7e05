// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"

	"mori/core/gpunic/mlx5"
)

// A responder is the half of a queue pair that does what the peer asks for, in the order of
// sequence numbers.
type responder struct {
	expected uint32 // sequence number of the next packet
	refused  bool   // the peer knows that one is missing
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

// dropReadings forgets answers to reads from a sequence number on: the peer asks for all of them
// again.
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

// next continues with the packet after p, and answers if p asks for it.
func (q *qp) next(p *packet) {
	q.respond.expected = (p.seq + 1) & seqMask
	if p.flag&flagAckReq != 0 {
		q.place()
		q.answer(ackOK, p.seq, 0)
	}
}

// mayRead reports whether a read is allowed.
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
		q.nic.violate("queue pair %#x: the receive counter moved without a receive queue", q.num)
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
