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
	if j.slot != nil && (j.payload() <= copyMax || j.h.kind == kindAtomic) {
		n += int(j.payload())
	}
	return n
}

// entries is the most entries that the frame adds to the batch.
func (j *job) entries() int {
	switch {
	case j.reply != nil:
		return 1 + len(j.reply.iov)
	case j.slot != nil && j.payload() > copyMax && j.h.kind != kindAtomic:
		return 2 + len(j.slot.op.More)
	}
	return 1
}

// encode appends the frame to the batch.
func (j *job) encode(p *pump) {
	head := p.grow(headerLen) // filled last: it has the checksums of what follows
	switch {
	case j.reply != nil && j.h.flags&flagZstd != 0:
		p.addPacked()
	case j.reply != nil:
		for _, v := range j.reply.iov {
			j.add(p, v.Addr, v.Len)
		}
	case j.slot != nil:
		j.encodeOp(p)
	default:
		b := p.grow(len(j.body))
		copy(b, j.body)
		j.h.table = tableSum(0, b)
	}
	j.h.put(head)
}

func (j *job) encodeOp(p *pump) {
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
		encodeAtomic(b, op)
		j.h.table = tableSum(0, b)
	case op.Flags&fabric.OpInject != 0:
		j.copied(p.grow(int(n)), j.slot.inject)
	case n <= copyMax:
		b := p.grow(int(n))
		gather(b, op)
		j.copied(b, nil)
	default:
		for i := 0; i <= len(op.More) && n > 0; i++ {
			s := local(op, i)
			m := min(s.Len, n)
			j.add(p, s.Addr, m)
			n -= m
		}
	}
}

// add appends payload to the batch, and to the sum if one is wanted.
func (j *job) add(p *pump, addr, n uint64) {
	if j.h.flags&flagSum != 0 {
		j.h.sum = sumOf(j.h.sum, addr, n)
	}
	p.add(addr, n)
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
