// SPDX-License-Identifier: MIT

package emu

import (
	"time"

	"mori/core/gpunic/mlx5"
)

// An entry is work of a send queue from when it was fetched until it is complete. Each packet has a
// sequence number of its own, also those of the answer to a read.
type entry struct {
	mlx5.Entry
	raw     []byte
	at      uint32 // count of blocks before it
	index   uint16
	blocks  int
	started bool
	first   uint32 // sequence number of its first packet
	packets int    // sequence numbers that it takes
	sent    int
	got     int  // packets of the answer
	again   bool // the answer had a hole, and was asked for again
	done    bool
	fault   mlx5.Syndrome
	vendor  uint8
	inline  []byte // of the answer, to go into the completion entry
}

func (e *entry) answers() bool { return e.Opcode == mlx5.OpRead || e.IsAtomic() }

const (
	window     = 128 // packets under way
	sendBudget = 64  // packets in a round
	ackEvery   = 16
)

// transmit sends packets of entries in order, as far as the window and the peer allow, and
// completes what is done.
func (q *qp) transmit(now time.Time) (busy bool) {
	if q.ctx.State != mlx5.StateRTS {
		return false
	}
	busy = q.retire()
	if now.Before(q.paused) {
		return busy
	}
	for budget := sendBudget; budget > 0 && q.sending < len(q.entries); {
		e := q.entries[q.sending]
		if e.fault != 0 || !e.started && !q.start(e) {
			break
		}
		if e.done || e.sent >= e.packets {
			q.sending++
			continue
		}
		if after(e.first+uint32(e.sent), q.acked) >= window || !q.sendNext(e) {
			break
		}
		budget--
		busy = true
		if q.deadline.IsZero() {
			q.arm(now)
		}
	}
	return q.retire() || busy
}

// start gives an entry its sequence numbers, unless it has to wait for others.
func (q *qp) start(e *entry) bool {
	underWay := 0
	for _, o := range q.entries[:q.sending] {
		if o.answers() && !o.done {
			underWay++
		}
	}
	if underWay > 0 && (e.Flags&mlx5.FlagFence != 0 || e.answers() && underWay >= 1<<q.ctx.LogSRAMax) {
		return false
	}
	if q.nic.stats.Entries++; q.nic.stats.Entries == q.nic.opts.Chaos.FailAt {
		e.fault, e.vendor = q.nic.opts.Chaos.FailWith, 0xee
		return false
	}
	if e.Bytes() > 1<<q.ctx.LogMsgMax {
		e.fault = mlx5.SyndromeLength
		return false
	}
	e.started, e.first = true, q.nextSeq
	switch {
	case e.Opcode == mlx5.OpNop:
		e.done = true
	case e.IsAtomic():
		e.packets = 1
	default:
		e.packets = max(1, int((e.Bytes()+uint64(q.mtu())-1)/uint64(q.mtu())))
	}
	q.nextSeq = (q.nextSeq + uint32(e.packets)) & seqMask
	if f := q.nic.family; f != nil {
		if err := f.numbered(q, e); err != nil {
			q.nic.violate("queue pair %#x, entry %d: %v", q.num, e.index, err)
			e.fault = mlx5.SyndromeOperation
			return false
		}
	}
	return true
}

// sendNext sends the next packet of an entry. It answers false if the entry failed.
func (q *qp) sendNext(e *entry) bool {
	p := packet{seq: (e.first + uint32(e.sent)) & seqMask, addr: e.Remote.Addr, key: e.Remote.Key, length: e.Bytes()}
	switch {
	case e.Opcode == mlx5.OpRead:
		done := uint64(e.got * q.mtu())
		p.kind, p.seq, p.addr, p.length = kindRead, (e.first+uint32(e.got))&seqMask, p.addr+done, p.length-done
		p.flag = flagFirst | flagLast
		e.sent = e.packets
	case e.IsAtomic():
		p.kind, p.atomic, p.code, p.flag = kindAtomic, e.Atomic, e.Opcode, flagFirst|flagLast
		e.sent = 1
	default:
		if !q.load(e, &p) {
			return false
		}
		e.sent++
	}
	q.send(p)
	return true
}

// load makes a packet of a send or a write.
func (q *qp) load(e *entry, p *packet) bool {
	p.kind = kindWrite
	if e.Opcode == mlx5.OpSend || e.Opcode == mlx5.OpSendImm {
		p.kind = kindSend
	}
	offset := uint64(e.sent * q.mtu())
	p.data = make([]byte, min(uint64(q.mtu()), p.length-offset))
	if e.Inline != nil {
		copy(p.data, e.Inline[offset:])
	} else if err := q.local(e, offset, p.data, rightRead); err != nil {
		e.fault = mlx5.SyndromeProtection
		return false
	}
	if e.sent == 0 {
		p.flag |= flagFirst
	}
	if e.sent%ackEvery == ackEvery-1 {
		p.flag |= flagAckReq
	}
	if e.sent == e.packets-1 {
		p.flag |= flagLast | flagAckReq
		if e.Opcode == mlx5.OpWriteImm || e.Opcode == mlx5.OpSendImm {
			p.flag |= flagImm
			p.imm = e.Imm
		}
	}
	return true
}

// local copies between b and this side's memory of an entry, from offset on.
func (q *qp) local(e *entry, offset uint64, b []byte, need right) error {
	return q.scatter(e.Data, offset, b, need)
}

// scatter copies between b and a list of memory.
func (q *qp) scatter(list []mlx5.Data, offset uint64, b []byte, need right) error {
	for _, d := range list {
		if offset >= uint64(d.Bytes) {
			offset -= uint64(d.Bytes)
			continue
		}
		n := min(uint64(d.Bytes)-offset, uint64(len(b)))
		k, err := q.nic.region(d.Key, q.ctx.PD, d.Addr+offset, n, need)
		if err != nil {
			q.nic.violate("queue pair %#x: %v", q.num, err)
			return err
		}
		if need == rightRead {
			err = k.umem.mem.Read(d.Addr+offset, b[:n])
		} else {
			err = k.umem.mem.Write(d.Addr+offset, b[:n])
		}
		if err != nil {
			return err
		}
		if b, offset = b[n:], 0; len(b) == 0 {
			return nil
		}
	}
	return nil
}

// retire completes entries in order. One with an error ends the queue pair.
func (q *qp) retire() (busy bool) {
	for len(q.entries) > 0 {
		e := q.entries[0]
		if e.fault == 0 && !e.done {
			return busy
		}
		busy = true
		q.entries = q.entries[1:]
		q.sending = max(q.sending-1, 0)
		q.complete(e, e.fault)
		if e.fault != 0 {
			q.fail()
			return true
		}
	}
	q.deadline = time.Time{}
	return busy
}

// complete writes the completion of an entry, if it is to have one. Errors always have.
func (q *qp) complete(e *entry, s mlx5.Syndrome) {
	if f := q.nic.family; f != nil {
		if s != 0 || e.Flags&mlx5.FlagSignalled != 0 {
			for _, b := range f.completions(q, e, s) {
				q.scq.put(b)
			}
		}
		return
	}
	c := mlx5.CQE{Opcode: mlx5.CQEReq, WQEOpcode: e.Opcode, QPN: q.num, Counter: e.index}
	switch {
	case s != 0:
		c.Opcode, c.Syndrome, c.Vendor = mlx5.CQEReqError, s, e.vendor
	case e.Flags&mlx5.FlagSignalled == 0:
		return
	case e.answers():
		c.Bytes = uint32(e.Bytes())
	}
	q.scq.add(c, e.inline)
}

// failEntry ends the queue pair by an error of the oldest entry.
func (q *qp) failEntry(s mlx5.Syndrome) {
	if len(q.entries) > 0 {
		q.entries[0].fault = s
		q.retire()
	}
}
