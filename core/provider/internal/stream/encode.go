// SPDX-License-Identifier: MIT

package stream

import "mori/core/fabric"

// payload is how many bytes follow the header and the table, before they are packed.
func (j *job) payload() uint64 {
	switch j.h.kind {
	case kindAtomic:
		return atomicCode(j.h.count).payload(j.h.length)
	case kindSend, kindBody, kindReply, kindExtension:
		return j.h.length
	case kindWrite:
		if j.h.flags&flagNotice == 0 {
			return j.h.length
		}
	}
	return 0
}

// arenaNeed is how much of the arena the frame takes.
func (j *job) arenaNeed() int {
	n := headerLen + len(j.body)
	if j.h.kind == kindWrite || j.h.kind == kindRead {
		n += int(j.h.count) * segmentLen
	}
	if j.h.flags&flagTrailer != 0 {
		n += trailerLen
	}
	if j.gathers() {
		n += int(j.payload())
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
	return j.h.kind == kindAtomic || inject || j.payload() <= copyMax && j.h.kind != kindWrite
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
	head := p.grow(headerLen) // filled last: it has the checksums of what follows
	j.at.begin(p, head)
	h := &j.h
	if err := j.encodeRest(p); err != nil {
		p.rewind(at)
		switch {
		case j.reply != nil:
			head = p.grow(headerLen)
			j.at.begin(p, head)
			h = &header{kind: kindReply, ticket: j.h.ticket, data: uint64(unreadable)}
		case j.h.kind == kindBody: // which the peer holds a receive for
			return err
		default:
			j.lost = true
			return nil
		}
	}
	j.at.end = len(p.iov)
	h.put(head)
	return nil
}

func (j *job) encodeRest(p *pump) error {
	switch {
	case j.reply != nil && j.h.flags&flagZstd != 0:
		p.addPacked()
	case j.reply != nil:
		for _, v := range j.reply.iov {
			if err := j.add(p, v.Addr, v.Len); err != nil {
				return err
			}
		}
		if j.h.flags&flagTrailer != 0 {
			j.at.addTrailer(p)
		}
	case j.slot != nil:
		return j.encodeOp(p)
	default:
		b := p.grow(len(j.body))
		copy(b, j.body)
		j.h.table = tableSum(0, b)
	}
	return nil
}

func (j *job) encodeOp(p *pump) error {
	op := &j.slot.op
	if j.h.kind == kindWrite || j.h.kind == kindRead {
		b := p.grow(int(j.h.count) * segmentLen)
		putTable(b, op, int(j.h.count))
		j.h.table = tableSum(0, b)
	}
	n := j.payload()
	switch {
	case n == 0:
	case j.h.flags&flagZstd != 0:
		p.addPacked()
	case j.h.kind == kindAtomic:
		b := p.grow(int(n))
		if err := encodeAtomic(b, op); err != nil {
			return err
		}
		j.h.table = tableSum(0, b)
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
			s := local(op, i)
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
	if j.h.flags&flagSum != 0 {
		j.h.sum, err = sumOf(j.h.sum, addr, n)
	}
	p.add(addr, n)
	return err
}

// copied takes payload that lies in the arena into the sum, after copying from there if that is not nil.
func (j *job) copied(b, from []byte) {
	copy(b, from)
	if j.h.flags&flagSum != 0 {
		j.h.sum = tableSum(0, b)
	}
}

// putTable encodes the op's remote segments; a notice has none.
func putTable(b []byte, op *fabric.Op, count int) {
	if count == 0 {
		return
	}
	putSegment(b, op.RSeg.Addr, op.RSeg.Len)
	for i := range op.RMore {
		putSegment(b[(i+1)*segmentLen:], op.RMore[i].Addr, op.RMore[i].Len)
	}
}
