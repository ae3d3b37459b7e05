// SPDX-License-Identifier: MIT

package emu

import (
	"time"

	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

// A requester is the half of a queue pair that executes entries of the send queue: it sends their
// packets, handles the responses, and completes the entries in order.
type requester struct {
	*end
	ring *sendRing
	cq   *cq
	window
	retry retryTimer

	failed bool // an entry failed: the queue pair must fail
}

const (
	sendBudget = 64 // packets per round
	ackEvery   = 16
)

// transmit sends packets of entries in order, as far as the window and the peer allow, and
// completes finished entries.
func (r *requester) transmit(now time.Time) (busy bool) {
	if busy = r.retire(); r.failed || now.Before(r.retry.paused) {
		return busy
	}
	for range sendBudget {
		e := r.current()
		if e == nil || e.fault != 0 || !e.started && !r.start(e) {
			break
		}
		if e.done {
			continue
		}
		if wire.After(e.first+uint32(e.sent), r.acked) >= maxPackets || !r.sendNext(e) {
			break
		}
		busy = true
		if r.retry.deadline.IsZero() {
			r.retry.start(now, &r.ctx)
		}
	}
	return r.retire() || busy
}

// start assigns sequence numbers to an entry. It returns false if the entry failed or has to wait
// for others.
func (r *requester) start(e *entry) bool {
	if n := r.unanswered(); n > 0 && (e.Flags&mlx5.FlagFence != 0 || e.answers() && n >= 1<<r.ctx.LogSRAMax) {
		return false
	}
	if r.stats.Entries++; r.stats.Entries == r.opts.Chaos.FailAt {
		e.fault, e.vendor = r.opts.Chaos.FailWith, 0xee
		return false
	}
	if e.Bytes() > 1<<r.ctx.LogMsgMax {
		e.fault = mlx5.SyndromeLength
		return false
	}
	packets := 1
	switch mtu := uint64(r.mtu()); {
	case e.Opcode == mlx5.OpNop:
		packets = 0
	case !e.IsAtomic():
		packets = max(1, int((e.Bytes()+mtu-1)/mtu))
	}
	r.number(e, packets)
	if err := r.family.numbered(r.ring, e); err != nil {
		r.violate("queue pair %#x, entry %d: %v", r.num, e.index, err)
		e.fault = mlx5.SyndromeOperation
		return false
	}
	return true
}

// sendNext sends the next packet of an entry. It returns false if the entry failed.
func (r *requester) sendNext(e *entry) bool {
	p := wire.Packet{Seq: (e.first + uint32(e.sent)) & wire.SeqMask, Addr: e.Remote.Addr, Key: e.Remote.Key, Length: e.Bytes()}
	switch {
	case e.Opcode == mlx5.OpRead:
		done := uint64(e.got * r.mtu())
		p.Kind, p.Seq, p.Addr, p.Length = wire.KindRead, e.expects(), p.Addr+done, p.Length-done
		p.Flag = wire.FlagFirst | wire.FlagLast
		e.sent = e.packets
	case e.IsAtomic():
		p.Kind, p.Atomic, p.Code, p.Flag = wire.KindAtomic, e.Atomic, e.Opcode, wire.FlagFirst|wire.FlagLast
		e.sent = 1
	default:
		if !r.load(e, &p) {
			return false
		}
		e.sent++
	}
	r.send(&p)
	return true
}

// load fills a packet of a send or a write.
func (r *requester) load(e *entry, p *wire.Packet) bool {
	p.Kind = wire.KindWrite
	if e.Opcode == mlx5.OpSend || e.Opcode == mlx5.OpSendImm {
		p.Kind = wire.KindSend
	}
	offset := uint64(e.sent * r.mtu())
	p.Data = make([]byte, min(uint64(r.mtu()), p.Length-offset))
	if e.Inline != nil {
		copy(p.Data, e.Inline[offset:])
	} else if err := r.Gather(e.Data, offset, p.Data); err != nil {
		r.noteAccess(err)
		e.fault = mlx5.SyndromeProtection
		return false
	}
	if e.sent == 0 {
		p.Flag |= wire.FlagFirst
	}
	if e.sent%ackEvery == ackEvery-1 {
		p.Flag |= wire.FlagAckReq
	}
	if e.sent == e.packets-1 {
		p.Flag |= wire.FlagLast | wire.FlagAckReq
		if e.Opcode == mlx5.OpWriteImm || e.Opcode == mlx5.OpSendImm {
			p.Flag |= wire.FlagImm
			p.Imm = e.Imm
		}
	}
	return true
}

// retire completes finished entries in order. One that failed ends the queue pair.
func (r *requester) retire() (busy bool) {
	for e := r.head(); e != nil && !r.failed; e = r.head() {
		if e.fault == 0 && !e.done {
			return busy
		}
		busy = true
		r.pop()
		r.complete(e, e.fault)
		r.failed = e.fault != 0
	}
	if !r.failed {
		r.retry.stop()
	}
	return busy
}

// complete writes the completions of an entry, if it requested one or failed.
func (r *requester) complete(e *entry, s mlx5.Syndrome) {
	if s == 0 && e.Flags&mlx5.FlagSignalled == 0 {
		return
	}
	for _, b := range r.family.completions(r.ring, e, s) {
		r.cq.put(b)
	}
}

// flush completes all entries as flushed.
func (r *requester) flush() {
	for _, e := range r.clear() {
		r.complete(e, mlx5.SyndromeFlush)
	}
}

// reset forgets all entries.
func (r *requester) reset() {
	r.clear()
	r.retry.paused, r.failed = time.Time{}, false
	r.retry.stop()
}

// ready starts sending with a sequence number.
func (r *requester) ready(seq uint32) {
	r.nextSeq, r.acked = seq, seq
	r.retry.refill(&r.ctx)
}

// acknowledged handles an acknowledgement. All packets before its sequence number have arrived. The
// code says whether that one has, or why not.
func (r *requester) acknowledged(p *wire.Packet) {
	if wire.After(p.Seq, r.nextSeq) >= 0 {
		return
	}
	if p.Ack == wire.AckOK {
		r.advance(p.Seq + 1)
		r.retire()
		return
	}
	r.advance(p.Seq)
	r.retire()
	behind := wire.After(p.Seq, r.acked)
	if behind < 0 || r.failed || behind > 0 && (p.Ack == wire.NakSequence || p.Ack == wire.NakRNR) {
		return // stale, or an earlier response was lost and will be requested again
	}
	switch p.Ack {
	case wire.NakSequence:
		r.sendAgain(p.Seq)
	case wire.NakRNR:
		r.stats.NotReady++
		if !r.retry.notReady(time.Now(), p.Code, &r.ctx) {
			r.fault(p.Seq, mlx5.SyndromeRNR)
			return
		}
		r.sendAgain(p.Seq)
	case wire.NakInvalid:
		r.fault(p.Seq, mlx5.SyndromeRemoteInvalid)
	case wire.NakAccess:
		r.fault(p.Seq, mlx5.SyndromeRemoteAccess)
	case wire.NakOperation:
		r.fault(p.Seq, mlx5.SyndromeRemoteOp)
	}
}

// advance records that all packets before next have arrived. A response that is still missing was
// lost; advance requests it again, once.
func (r *requester) advance(next uint32) {
	progress, hole := r.acknowledge(next)
	if hole != nil && !hole.again {
		hole.again = true
		r.sendAgain(hole.expects())
	}
	if progress {
		r.progress()
	}
}

// progress resets the retry count, since the peer responds.
func (r *requester) progress() {
	r.retry.refill(&r.ctx)
	if r.head() != nil {
		r.retry.start(time.Now(), &r.ctx)
	}
}

// sendAgain retransmits from a sequence number on.
func (r *requester) sendAgain(seq uint32) {
	if r.rewind(seq) {
		r.stats.SentAgain++
	}
}

// fault fails the entry of a sequence number, once those before it are complete.
func (r *requester) fault(seq uint32, s mlx5.Syndrome) {
	if i := r.find(seq); i >= 0 {
		r.entries[i].fault = s
		r.retire()
	}
}

// watch retransmits packets that were not acknowledged in time, up to the retry count.
func (r *requester) watch(now time.Time) {
	e := r.head()
	if e == nil || !r.retry.due(now) {
		return
	}
	if !e.started || e.done {
		r.retry.start(now, &r.ctx)
		return
	}
	if !r.retry.again(now, &r.ctx) {
		e.fault = mlx5.SyndromeRetry
		r.retire()
		return
	}
	e.again = false
	seq := r.acked
	if e.answers() {
		seq = e.expects()
	}
	r.sendAgain(seq)
}

// replied handles a packet of the response to a read or an atomic.
func (r *requester) replied(p *wire.Packet) {
	e := r.answered()
	if e == nil {
		return
	}
	want := e.expects()
	if d := wire.After(p.Seq, want); d != 0 {
		if d > 0 && !e.again && wire.After(p.Seq, r.nextSeq) < 0 {
			e.again = true
			r.sendAgain(want)
		}
		return
	}
	r.advance(want)
	r.absorb(e, p)
	r.retire()
}

// absorb stores the bytes of a response in the entry's memory or, if short, in its completion.
func (r *requester) absorb(e *entry, p *wire.Packet) {
	offset := uint64(e.got * r.mtu())
	if uint64(len(p.Data)) != min(uint64(r.mtu()), e.Bytes()-offset) {
		e.fault = mlx5.SyndromeBadResponse
		return
	}
	if e.Bytes() <= 32 && r.ctx.ScatterReq != 0 {
		e.inline = p.Data
	} else if err := r.Scatter(e.Data, offset, p.Data); err != nil {
		r.noteAccess(err)
		e.fault = mlx5.SyndromeProtection
		return
	}
	e.got++
	e.again = false
	e.done = e.got == e.packets
	r.acked = (p.Seq + 1) & wire.SeqMask
	r.progress()
}
