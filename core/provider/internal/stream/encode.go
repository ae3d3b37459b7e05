// SPDX-License-Identifier: MIT

package stream

import (
	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

// arenaNeed is how much of the arena the frame takes.
func (j *job) arenaNeed() int {
	n := frame.HeaderLen + len(j.body)
	if j.h.Kind == frame.KindWrite || j.h.Kind == frame.KindRead {
		n += int(j.h.Count) * frame.SegmentLen
	}
	if j.h.Flags&frame.FlagTrailer != 0 {
		n += frame.TrailerLen
	}
	if j.gathers() {
		n += int(j.h.PayloadLen())
	}
	return n
}

// gathers reports whether the payload is copied into the arena. That of writes is not: a system call reads it, so that a page that is long in
// coming holds up its thread and nothing else.
func (j *job) gathers() bool {
	if j.slot == nil {
		return false
	}
	inject := j.slot.op.Flags&fabric.OpInject != 0
	return j.h.Kind == frame.KindAtomic || inject || j.h.PayloadLen() <= copyMax && j.h.Kind != frame.KindWrite
}

// entries is the most entries that the frame adds to the batch.
func (j *job) entries() int {
	switch {
	case j.reply != nil:
		return 2 + len(j.reply.iov)
	case j.slot != nil && !j.gathers():
		return 2 + len(j.slot.op.More)
	}
	return 1
}

// encode appends the frame to the batch. If memory that it reads for that is gone, the op ends and the connection stays: the frame is not
// sent, or, where the peer waits for it, says so. An error is the end of the connection.
func (j *job) encode(p *pump) error {
	at := p.mark()
	head := p.grow(frame.HeaderLen) // filled last: it has the checksums of what follows
	j.at.begin(p, head)
	h := &j.h
	if err := j.encodeRest(p); err != nil {
		p.rewind(at)
		switch {
		case j.reply != nil:
			head = p.grow(frame.HeaderLen)
			j.at.begin(p, head)
			h = &frame.Header{Kind: frame.KindReply, Ticket: j.h.Ticket, Data: uint64(unreadable)}
		case j.h.Kind == frame.KindBody: // which the peer holds a receive for
			return err
		default:
			j.lost = true
			return nil
		}
	}
	j.at.end = len(p.iov)
	h.Put(head)
	return nil
}

func (j *job) encodeRest(p *pump) error {
	switch {
	case j.reply != nil && j.h.Flags&frame.FlagCompressed != 0:
		p.addPacked()
	case j.reply != nil:
		for _, v := range j.reply.iov {
			if err := j.add(p, v.Addr, v.Len); err != nil {
				return err
			}
		}
		if j.h.Flags&frame.FlagTrailer != 0 {
			j.at.addTrailer(p)
		}
	case j.slot != nil:
		return j.encodeOp(p)
	default:
		b := p.grow(len(j.body))
		copy(b, j.body)
		j.h.TableChecksum = frame.Checksum(0, b)
	}
	return nil
}

func (j *job) encodeOp(p *pump) error {
	op := &j.slot.op
	if j.h.Kind == frame.KindWrite || j.h.Kind == frame.KindRead {
		b := p.grow(int(j.h.Count) * frame.SegmentLen)
		frame.PutTable(b, op, int(j.h.Count))
		j.h.TableChecksum = frame.Checksum(0, b)
	}
	n := j.h.PayloadLen()
	switch {
	case n == 0:
	case j.h.Flags&frame.FlagCompressed != 0:
		p.addPacked()
	case j.h.Kind == frame.KindAtomic:
		b := p.grow(int(n))
		if err := encodeAtomic(b, op); err != nil {
			return err
		}
		j.h.TableChecksum = frame.Checksum(0, b)
	case op.Flags&fabric.OpInject != 0:
		j.copied(p.grow(int(n)), j.slot.inject)
	case j.gathers():
		b := p.grow(int(n))
		if err := gather(b, op); err != nil {
			return err
		}
		j.copied(b, nil)
	default:
		for i := 0; i <= len(op.More) && n > 0; i++ {
			s := op.LocalSeg(i)
			m := min(s.Len, n)
			if err := j.add(p, s.Addr, m); err != nil {
				return err
			}
			n -= m
		}
	}
	return nil
}

// add appends payload to the batch, and to the sum if one is wanted.
func (j *job) add(p *pump, addr, n uint64) (err error) {
	if j.h.Flags&frame.FlagChecksum != 0 {
		j.h.Checksum, err = sumOf(j.h.Checksum, addr, n)
	}
	p.add(addr, n)
	return err
}

// copied takes payload that lies in the arena into the sum, after copying from there if that is not nil.
func (j *job) copied(b, from []byte) {
	copy(b, from)
	if j.h.Flags&frame.FlagChecksum != 0 {
		j.h.Checksum = frame.Checksum(0, b)
	}
}
