// SPDX-License-Identifier: MIT

package conn

import (
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// issueAtomic reports false if the op is answered by a reply, and no socket has credit for one.
func (ep *Endpoint) issueAtomic(s *pendingOp, t *todo) bool {
	j := socket.Job{H: frame.Header{Kind: frame.KindAtomic, Length: s.n, Count: uint32(frame.AtomicCodeOf(s.op.Kind, s.op.Atomic)), Region: s.key.ID, Secret: s.key.Secret,
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
	ep.post(l, s, &j, j.H.PayloadLen(), t)
	return true
}

// onAtomic executes a peer's atomic op. The answer is an ack, or a reply with what was there
// before, under the credit of reads.
func (c *channel) onAtomic(in *socket.Incoming) error {
	h := &in.H
	code, ticket, n := frame.AtomicCode(h.Count), h.Ticket, h.Length
	size := int(code.PayloadLen(n))
	operand, err := in.Take(size)
	if err != nil {
		return err
	}
	if frame.Checksum(0, operand) != h.TableChecksum {
		return in.Altered()
	}
	var compare []byte
	if code.Kind() == fabric.OpCompareAtomic {
		operand, compare = operand[:n], operand[n:]
	}
	if code.Kind() == fabric.OpAtomic {
		return c.Ack(ticket, c.execute(h, operand, compare, nil))
	}
	r, err := c.replies.open(1, c.ep.peer)
	if err != nil {
		return err
	}
	if r.result == nil {
		r.result = make([]byte, util.MaxAtomic)
	}
	j := socket.Job{H: frame.Header{Kind: frame.KindReply, Ticket: ticket, Flags: c.ep.checksumFlag()}}
	if errno := c.execute(h, operand, compare, r.result[:n]); errno != 0 {
		c.replies.end(r)
		j.H.Data = uint64(errno)
	} else {
		r.iov = append(r.iov[:0], sys.Iovec{Addr: sys.AddrOf(r.result), Len: n})
		j.Reply, j.H.Length = r, n
	}
	c.Post(&j, j.H.Length)
	c.Kick()
	return nil
}

// execute checks the claim and does the op. It does not wait.
func (c *channel) execute(h *frame.Header, operand, compare, result []byte) fabric.Errno {
	code := frame.AtomicCode(h.Count)
	mr, err := c.ep.domain.regions.Acquire(fabric.RegionKey{ID: h.Region, Secret: h.Secret}, code.Access())
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
