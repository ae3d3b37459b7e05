// SPDX-License-Identifier: MIT

package stream

import (
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// issueAtomic reports false if the op is answered by a reply, and no link has credit for one.
func (ep *Endpoint) issueAtomic(s *slot, t *todo) bool {
	j := job{h: frame.Header{Kind: frame.KindAtomic, Length: s.n, Count: uint32(frame.AtomicCodeOf(s.op.Kind, s.op.Atomic)), Region: s.key.ID, Secret: s.key.Secret,
		Data: s.op.RSeg.Addr}}
	l, wire := ep.lightest(), ep.wire.Load()
	switch {
	case wire != nil && s.replied():
		if wire.readsOut == frame.MaxReads {
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
	ep.post(l, s, &j, j.h.PayloadLen(), t)
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
func (l *link) onAtomic(h *frame.Header) error {
	code, ticket, n := frame.AtomicCode(h.Count), h.Ticket, h.Length
	size := int(code.PayloadLen(n))
	if err := l.need(size); err != nil {
		return err
	}
	operand := l.in.buf[l.in.r : l.in.r+size]
	if frame.Checksum(0, operand) != h.TableChecksum {
		return l.altered(h)
	}
	var compare []byte
	if code.Kind() == fabric.OpCompareAtomic {
		operand, compare = operand[:n], operand[n:]
	}
	l.in.r += size
	if code.Kind() == fabric.OpAtomic {
		return l.ack(ticket, l.execute(h, operand, compare, nil))
	}
	r, err := l.openReply(1)
	if err != nil {
		return err
	}
	if r.result == nil {
		r.result = make([]byte, util.MaxAtomic)
	}
	j := job{h: frame.Header{Kind: frame.KindReply, Ticket: ticket, Flags: l.ep.sums()}}
	if errno := l.execute(h, operand, compare, r.result[:n]); errno != 0 {
		l.endReply(r)
		j.h.Data = uint64(errno)
	} else {
		r.iov = append(r.iov[:0], sys.Iovec{Addr: sys.AddrOf(r.result), Len: n})
		j.reply, j.h.Length = r, n
	}
	l.post(&j, j.h.Length)
	l.kick()
	return nil
}

// execute checks the claim and does the op. It does not wait.
func (l *link) execute(h *frame.Header, operand, compare, result []byte) fabric.Errno {
	code := frame.AtomicCode(h.Count)
	mr, err := l.ep.domain.regions.Acquire(fabric.RegionKey{ID: h.Region, Secret: h.Secret}, code.Access())
	if err != nil {
		return fabric.ErrnoOf(err)
	}
	defer mr.Release()
	if mr.Buffer().Kind != fabric.MemHost {
		return fabric.ErrNotSupported
	}
	addr, err := mr.Range(h.Data, h.Length)
	if err != nil {
		return fabric.ErrnoOf(err)
	}
	if !util.AtomicAligned(addr, code.Type()) {
		return fabric.ErrInvalid
	}
	if err := sys.Guard(func() { util.Execute(code.Kind(), code.Op(), code.Type(), addr, operand, compare, result) }); err != nil {
		return fabric.ErrnoOf(err)
	}
	return 0
}
