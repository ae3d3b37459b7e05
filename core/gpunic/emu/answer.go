// SPDX-License-Identifier: MIT

package emu

import (
	"time"

	"mori/core/gpunic/mlx5"
)

// What the peer answers, and what is done where it does not.

// answered takes an acknowledgement: all before its sequence number has come, and that one, too, or
// why not.
func (q *qp) answered(p *packet) {
	if q.ctx.State != mlx5.StateRTS || after(p.seq, q.nextSeq) >= 0 {
		return
	}
	if p.ack == ackOK {
		q.acknowledge(p.seq + 1)
		q.retire()
		return
	}
	q.acknowledge(p.seq)
	q.retire()
	behind := after(p.seq, q.acked)
	if behind < 0 || q.ctx.State != mlx5.StateRTS || behind > 0 && (p.ack == nakSequence || p.ack == nakRNR) {
		return // about what has been sent again since, or an answer before it was lost, which is asked for again
	}
	switch p.ack {
	case nakSequence:
		q.rewind(p.seq)
	case nakRNR:
		q.notReady(p)
	case nakInvalid:
		q.fault(p.seq, mlx5.SyndromeRemoteInvalid)
	case nakAccess:
		q.fault(p.seq, mlx5.SyndromeRemoteAccess)
	case nakOperation:
		q.fault(p.seq, mlx5.SyndromeRemoteOp)
	}
}

// acknowledge notes that all before next has come. That a read is passed whose answer has not come
// means that the answer was lost.
func (q *qp) acknowledge(next uint32) {
	next &= seqMask
	if after(next, q.acked) <= 0 {
		return
	}
	for i, e := range q.entries {
		if !e.started || after(next, e.first) <= 0 {
			break
		}
		if e.done {
			continue
		}
		if e.answers() {
			want := (e.first + uint32(e.got)) & seqMask
			next = want
			if !e.again {
				e.again = true
				q.rewind(want)
			}
			break
		}
		if after(next, e.first+uint32(e.packets)) < 0 {
			break
		}
		q.entries[i].done = true
	}
	if after(next, q.acked) > 0 {
		q.acked = next
		q.progress()
	}
}

// progress gives back the retries: the peer is there.
func (q *qp) progress() {
	q.retries, q.rnr = q.ctx.RetryCount, q.ctx.RNRRetry
	q.deadline = time.Time{}
	if len(q.entries) > 0 {
		q.arm(time.Now())
	}
}

// find returns the index of the entry that has a sequence number, or -1.
func (q *qp) find(seq uint32) int {
	for i, e := range q.entries {
		if e.started && e.packets > 0 && after(seq, e.first) >= 0 && after(seq, e.first) < e.packets {
			return i
		}
	}
	return -1
}

// rewind has all from a sequence number on sent again.
func (q *qp) rewind(seq uint32) {
	i := q.find(seq)
	if i < 0 {
		return
	}
	q.nic.stats.SentAgain++
	q.sending = i
	for _, e := range q.entries[i:] {
		e.sent = 0
	}
	if e := q.entries[i]; !e.answers() {
		e.sent = after(seq, e.first)
	}
}

// fault ends the entry of a sequence number with an error, when those before it are complete.
func (q *qp) fault(seq uint32, s mlx5.Syndrome) {
	if i := q.find(seq); i >= 0 {
		q.entries[i].fault = s
		q.retire()
	}
}

// forever is the count of RNR retries that does not end.
const forever = 7

// notReady waits as long as the peer says, and then sends again.
func (q *qp) notReady(p *packet) {
	q.nic.stats.NotReady++
	if q.rnr != forever {
		if q.rnr == 0 {
			q.fault(p.seq, mlx5.SyndromeRNR)
			return
		}
		q.rnr--
	}
	q.paused = time.Now().Add(rnrTimer(p.code))
	q.rewind(p.seq)
	q.arm(q.paused)
}

// rnrTimer is the time of a code of the InfiniBand specification's table of RNR NAK timers.
func rnrTimer(code uint8) time.Duration {
	const unit = 10 * time.Microsecond
	table := [...]time.Duration{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
		8192, 12288, 16384, 24576, 32768, 49152}
	return table[code&31] * unit
}

// arm starts the timer of retries.
func (q *qp) arm(now time.Time) {
	if q.ctx.Path.AckTimeout != 0 {
		q.deadline, q.nudge = now.Add(q.timeout()), now.Add(q.timeout()/nudges)
	}
}

func (q *qp) timeout() time.Duration { return 4096 * time.Nanosecond << q.ctx.Path.AckTimeout }

// nudges is how often within the time of one retry what was not answered is sent again without
// counting. Real NICs do not; here it makes up for machines so busy that a thread waits longer than
// a network ever takes.
const nudges = 16

// watch sends again what was not answered in time, as often as it may.
func (q *qp) watch(now time.Time) {
	if q.ctx.State != mlx5.StateRTS || q.deadline.IsZero() || now.Before(q.nudge) || len(q.entries) == 0 {
		return
	}
	e := q.entries[0]
	if !e.started || e.done {
		q.arm(now)
		return
	}
	if now.After(q.deadline) {
		if q.retries == 0 {
			q.failEntry(mlx5.SyndromeRetry)
			return
		}
		q.retries--
		q.arm(now)
	}
	q.nudge = now.Add(q.timeout() / nudges)
	e.again = false
	seq := q.acked
	if e.answers() {
		seq = (e.first + uint32(e.got)) & seqMask
	}
	q.rewind(seq)
}

// replied takes a packet of the answer to a read or an atomic.
func (q *qp) replied(p *packet) {
	if q.ctx.State != mlx5.StateRTS {
		return
	}
	var e *entry
	for _, o := range q.entries {
		if o.started && o.answers() && !o.done && o.fault == 0 {
			e = o
			break
		}
	}
	if e == nil {
		return
	}
	want := (e.first + uint32(e.got)) & seqMask
	if d := after(p.seq, want); d != 0 {
		if d > 0 && !e.again && after(p.seq, q.nextSeq) < 0 {
			e.again = true
			q.rewind(want)
		}
		return
	}
	q.acknowledge(want)
	q.absorb(e, p)
	q.retire()
}

// absorb puts the bytes of an answer where the entry wants them.
func (q *qp) absorb(e *entry, p *packet) {
	offset := uint64(e.got * q.mtu())
	if uint64(len(p.data)) != min(uint64(q.mtu()), e.Bytes()-offset) {
		e.fault = mlx5.SyndromeBadResponse
		return
	}
	if e.Bytes() <= 32 && q.ctx.ScatterReq != 0 {
		e.inline = p.data
	} else if err := q.local(e, offset, p.data, rightWrite); err != nil {
		e.fault = mlx5.SyndromeProtection
		return
	}
	e.got++
	e.again = false
	e.done = e.got == e.packets
	q.acked = (p.seq + 1) & seqMask
	q.progress()
}
