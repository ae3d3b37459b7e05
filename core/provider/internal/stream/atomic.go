// SPDX-License-Identifier: MIT

package stream

import (
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
)

// An atomicCode is what an atomic frame asks for, as its header's count: kind of op, AtomicOp and type, a byte each.
type atomicCode uint32

func codeOf(kind fabric.OpKind, a *fabric.Atomic) atomicCode {
	return atomicCode(kind)<<16 | atomicCode(a.Op)<<8 | atomicCode(a.Type)
}

func (c atomicCode) kind() fabric.OpKind  { return fabric.OpKind(c >> 16) }
func (c atomicCode) op() fabric.AtomicOp  { return fabric.AtomicOp(c >> 8) }
func (c atomicCode) typ() fabric.DataType { return fabric.DataType(c) }
func (c atomicCode) access() fabric.Access {
	return (&fabric.Op{Kind: c.kind(), Atomic: &fabric.Atomic{Op: c.op()}}).Access()
}

// payload is how many bytes go along for an op on n bytes: the operand, unless it is not looked at, and the comparison.
func (c atomicCode) payload(n uint64) uint64 {
	switch {
	case c.kind() == fabric.OpCompareAtomic:
		return 2 * n
	case c.op() == fabric.AtomicRead:
		return 0
	}
	return n
}

// check tells whether the code means anything, and n is a length for it.
func (c atomicCode) check(n uint64) error {
	if c>>24 != 0 || !fabric.AtomicValid(c.kind(), c.op(), c.typ()) {
		return protocolErr("atomic frame with code %#x", uint32(c))
	}
	if n == 0 || n > util.MaxAtomic || n%uint64(c.typ().Size()) != 0 {
		return protocolErr("atomic frame of %d bytes of %v", n, c.typ())
	}
	return nil
}

// issueAtomic reports false if the op is answered by a reply, and no link has credit for one.
func (ep *Endpoint) issueAtomic(s *slot, t *todo) bool {
	j := job{h: header{kind: kindAtomic, length: s.n, count: uint32(codeOf(s.op.Kind, s.op.Atomic)), region: s.key.ID, secret: s.key.Secret,
		data: s.op.RSeg.Addr}}
	l, wire := ep.lightest(), ep.wire.Load()
	switch {
	case wire != nil && s.replied():
		if wire.readsOut == maxReads {
			return false
		}
		wire.charge(s, 1)
		l = wire
	case wire != nil:
		l = wire
	case s.replied():
		if l = ep.creditRead(s, 1); l == nil {
			return false
		}
	}
	ep.post(l, s, &j, j.payload(), t)
	return true
}

// encodeAtomic writes the operand and the comparison.
func encodeAtomic(b []byte, op *fabric.Op) error {
	if len(b) == 0 {
		return nil
	}
	n := int(op.Seg.Len)
	if err := gather(b[:n], op); err != nil || len(b) == n {
		return err
	}
	return sys.Move(sys.AddrOf(b[n:]), op.Atomic.Compare.Addr, uint64(n))
}

// onAtomic executes a peer's atomic op. The answer is an ack, or a reply with what was there before, under the credit of reads.
func (l *link) onAtomic(h *header) error {
	code, ticket, n := atomicCode(h.count), h.ticket, h.length
	size := int(code.payload(n))
	if err := l.need(size); err != nil {
		return err
	}
	operand := l.in.buf[l.in.r : l.in.r+size]
	if tableSum(0, operand) != h.table {
		return l.altered(h)
	}
	var compare []byte
	if code.kind() == fabric.OpCompareAtomic {
		operand, compare = operand[:n], operand[n:]
	}
	l.in.r += size
	if code.kind() == fabric.OpAtomic {
		return l.ack(ticket, l.execute(h, operand, compare, nil))
	}
	r, err := l.openReply(1)
	if err != nil {
		return err
	}
	if r.result == nil {
		r.result = make([]byte, util.MaxAtomic)
	}
	j := job{h: header{kind: kindReply, ticket: ticket, flags: l.ep.sums()}}
	if errno := l.execute(h, operand, compare, r.result[:n]); errno != 0 {
		l.endReply(r)
		j.h.data = uint64(errno)
	} else {
		r.iov = append(r.iov[:0], sys.Iovec{Addr: sys.AddrOf(r.result), Len: n})
		j.reply, j.h.length = r, n
	}
	l.post(&j, j.h.length)
	l.kick()
	return nil
}

// execute checks the claim and does the op. It does not wait.
func (l *link) execute(h *header, operand, compare, result []byte) fabric.Errno {
	code := atomicCode(h.count)
	mr, err := l.ep.domain.regions.Acquire(fabric.RegionKey{ID: h.region, Secret: h.secret}, code.access())
	if err != nil {
		return fabric.ErrnoOf(err)
	}
	defer mr.Release()
	if mr.Buffer().Kind != fabric.MemHost {
		return fabric.ErrNotSupported
	}
	addr, err := mr.Range(h.data, h.length)
	if err != nil {
		return fabric.ErrnoOf(err)
	}
	if !util.AtomicAligned(addr, code.typ()) {
		return fabric.ErrInvalid
	}
	if err := sys.Guard(func() { util.Execute(code.kind(), code.op(), code.typ(), addr, operand, compare, result) }); err != nil {
		return fabric.ErrnoOf(err)
	}
	return 0
}
