// SPDX-License-Identifier: MIT

package socket

import (
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// arenaNeed returns how many bytes of the arena the frame needs.
func (j *Job) arenaNeed() int {
	n := frame.HeaderLen + len(j.Body)
	if j.H.Kind == frame.KindWrite || j.H.Kind == frame.KindRead {
		n += int(j.H.Count) * frame.SegmentLen
	}
	if j.H.Flags&frame.FlagTrailer != 0 {
		n += frame.TrailerLen
	}
	if j.gathers() {
		n += int(j.H.PayloadLen())
	}
	return n
}

// gathers reports whether the payload is copied into the arena. The payload of writes is not: a
// system call reads it, so that a slow page fault blocks only that thread.
func (j *Job) gathers() bool {
	if j.Op == nil {
		return false
	}
	inject := j.Op.Flags&fabric.OpInject != 0
	return j.H.Kind == frame.KindAtomic || inject || j.H.PayloadLen() <= copyMax && j.H.Kind != frame.KindWrite
}

// entries returns the most entries that the frame adds to the batch.
func (j *Job) entries() int {
	switch {
	case j.Reply != nil:
		return 2 + len(j.Reply.Iovecs())
	case j.Op != nil && !j.gathers():
		return 2 + len(j.Op.More)
	}
	return 1
}

// encode appends the frame to the batch. If the frame's memory cannot be read, the op fails and the
// connection stays open: encode drops the frame, or turns a reply into an errno. An error ends the
// connection.
func (j *Job) encode(p *pump) error {
	at := p.mark()
	head := p.grow(frame.HeaderLen) // filled last, as it has the checksums of the rest
	j.at.begin(p, head)
	h := &j.H
	if err := j.encodeRest(p); err != nil {
		p.rewind(at)
		switch {
		case j.Reply != nil:
			head = p.grow(frame.HeaderLen)
			j.at.begin(p, head)
			h = &frame.Header{Kind: frame.KindReply, Ticket: j.H.Ticket, Data: uint64(Unreadable)}
		case j.H.Kind == frame.KindBody: // the peer has reserved a receive for it
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

func (j *Job) encodeRest(p *pump) error {
	switch {
	case j.Reply != nil && j.H.Flags&frame.FlagCompressed != 0:
		p.addCompressed()
	case j.Reply != nil:
		for _, v := range j.Reply.Iovecs() {
			if err := j.add(p, v.Addr, v.Len); err != nil {
				return err
			}
		}
		if j.H.Flags&frame.FlagTrailer != 0 {
			j.at.addTrailer(p)
		}
	case j.Op != nil:
		return j.encodeOp(p)
	default:
		b := p.grow(len(j.Body))
		copy(b, j.Body)
		j.H.TableChecksum = frame.Checksum(0, b)
	}
	return nil
}

func (j *Job) encodeOp(p *pump) error {
	op := j.Op
	if j.H.Kind == frame.KindWrite || j.H.Kind == frame.KindRead {
		b := p.grow(int(j.H.Count) * frame.SegmentLen)
		frame.PutTable(b, op, int(j.H.Count))
		j.H.TableChecksum = frame.Checksum(0, b)
	}
	n := j.H.PayloadLen()
	switch {
	case n == 0:
	case j.H.Flags&frame.FlagCompressed != 0:
		p.addCompressed()
	case j.H.Kind == frame.KindAtomic:
		b := p.grow(int(n))
		if err := encodeAtomic(b, op); err != nil {
			return err
		}
		j.H.TableChecksum = frame.Checksum(0, b)
	case op.Flags&fabric.OpInject != 0:
		j.copied(p.grow(int(n)), j.Inject)
	case j.gathers():
		b := p.grow(int(n))
		if err := Gather(b, op); err != nil {
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

// add appends payload to the batch and, if one is wanted, to the checksum.
func (j *Job) add(p *pump, addr, n uint64) (err error) {
	if j.H.Flags&frame.FlagChecksum != 0 {
		j.H.Checksum, err = checksumOf(j.H.Checksum, addr, n)
	}
	p.add(addr, n)
	return err
}

// copied adds payload in the arena to the checksum. If from is not nil, it first copies the payload
// from there.
func (j *Job) copied(b, from []byte) {
	copy(b, from)
	if j.H.Flags&frame.FlagChecksum != 0 {
		j.H.Checksum = frame.Checksum(0, b)
	}
}

// encodeAtomic writes the operand and the comparison.
func encodeAtomic(b []byte, op *fabric.Op) error {
	if len(b) == 0 {
		return nil
	}
	n := int(op.Seg.Len)
	if err := Gather(b[:n], op); err != nil || len(b) == n {
		return err
	}
	return sys.Move(sys.AddrOf(b[n:]), op.Atomic.Compare.Addr, uint64(n))
}
