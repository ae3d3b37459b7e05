// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// A pieceKind is what a piece is part of.
type pieceKind uint8

const (
	pieceOut     pieceKind = iota // our write
	pieceIn                       // our read
	pieceReply                    // a peer's read
	pieceLanding                  // a peer's write
)

// A piece is what moves through one buffer, or through none if all its memory here is the host's.
//
//	pieceOut      cut -> copied out -> sent, answered -> over
//	pieceIn       cut -> sent, answered -> copied in -> over
//	pieceReply    copied out -> sent as a reply, which has the buffer then
//	pieceLanding  copied in -> told -> answered
type piece struct {
	kind    pieceKind
	n       uint64
	staging *device.Staging // nil without a buffer
	buf     *device.StageBuffer

	parent *slot // of ours: the op
	slot   *slot // of ours: while it is under way
	size   uint64

	link  *link        // of a peer's
	reply *reply       // of its read
	h     frame.Header // of its write

	copies  []device.CopySegment // the buffer's side is a distance until aim
	hosts   []part
	segs    []fabric.Seg
	rsegs   []fabric.RSeg
	descs   []fabric.MRDesc
	regions []*util.MR // held open while it is copied
	aimed   bool
	copy    device.Copy

	errno  fabric.Errno
	detail string
}

// A part is host memory among a device's, and how far into the buffer it lies.
type part struct{ addr, n, at uint64 }

// get takes a piece from the spare ones.
func (s *stager) get(kind pieceKind, n uint64) *piece {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p *piece
	if k := len(s.spare); k > 0 {
		p = s.spare[k-1]
		s.spare = s.spare[:k-1]
	} else {
		p = &piece{}
	}
	p.kind, p.n = kind, n
	return p
}

// put keeps a piece for the next one, with the room of its lists.
func (s *stager) put(p *piece) {
	if cap(p.copies) > keepEntries || cap(p.segs) > keepEntries || cap(p.rsegs) > keepEntries {
		return
	}
	clear(p.regions)
	*p = piece{copies: p.copies[:0], hosts: p.hosts[:0], segs: p.segs[:0], rsegs: p.rsegs[:0], descs: p.descs[:0], regions: p.regions[:0]}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) < pieceSlots {
		s.spare = append(s.spare, p)
	}
}

// take gets a buffer for n bytes.
func (p *piece) take(n uint64, to device.Outwardness) (err error) {
	p.buf, err = p.staging.Take(n, to)
	return err
}

// free gives the buffer back, if there is one.
func (p *piece) free() {
	if p.buf != nil {
		p.buf.Free()
		p.buf = nil
	}
}

// lose gives up the buffer of a copy that failed.
func (p *piece) lose() {
	if p.buf != nil {
		_ = p.buf.Lose() // what cannot be given back stays in device.Live
		p.buf = nil
	}
}

// release lets go of the regions.
func (p *piece) release() {
	for i, mr := range p.regions {
		mr.Release()
		p.regions[i] = nil
	}
	p.regions = p.regions[:0]
}

// end lets go of all that a piece has whose connection ended.
func (p *piece) end() {
	p.free()
	p.release()
	if p.reply != nil {
		p.link.endReply(p.reply)
		p.reply = nil
	}
}

// cover takes the next n bytes of an op: its local and remote segments from the cursors on.
func (p *piece) cover(op *fabric.Op, c *cut) {
	left, at := p.n, uint64(0)
	for left > 0 {
		g := local(op, c.local.index)
		m := min(left, g.Len-c.local.off)
		if m > 0 {
			p.segs = append(p.segs, fabric.Seg{Addr: g.Addr + c.local.off, Len: m, MR: g.MR})
		}
		at, left = at+m, left-m
		c.local.advance(m, g.Len)
	}
	for left = p.n; left > 0; {
		g := &op.RSeg
		if i := c.remote.index; i > 0 {
			g = &op.RMore[i-1]
		}
		m := min(left, g.Len-c.remote.off)
		if m > 0 {
			p.rsegs = append(p.rsegs, fabric.RSeg{Addr: g.Addr + c.remote.off, Len: m, Key: g.Key})
		}
		left -= m
		c.remote.advance(m, g.Len)
	}
	c.done += p.n
}

// split divides the local segments into those to be copied by a device and those of the host.
func (p *piece) split() {
	at := uint64(0)
	for _, g := range p.segs {
		switch {
		case g.MR == 0:
			p.hosts = append(p.hosts, part{g.Addr, g.Len, at})
		default:
			if k := len(p.descs); k == 0 || p.descs[k-1] != g.MR {
				p.descs = append(p.descs, g.MR)
			}
			p.toBuffer(g.Addr, g.Len, at)
		}
		at += g.Len
	}
}

// toBuffer adds memory of a device that belongs at a distance into the buffer.
func (p *piece) toBuffer(addr, n, at uint64) {
	g := device.CopySegment{Dst: at, Src: addr, Bytes: n}
	if p.inward() {
		g.Dst, g.Src = addr, at
	}
	p.copies = append(p.copies, g)
}

func (p *piece) inward() bool { return p.kind == pieceIn || p.kind == pieceLanding }

// aim readies the copies: regions are held open, addresses are those of the buffer, what is the host's is copied.
func (p *piece) aim(regions *util.MRTable) error {
	if p.aimed {
		return nil
	}
	p.aimed = true
	for _, desc := range p.descs {
		mr := regions.Device(desc)
		if mr == nil {
			return fmt.Errorf("copy %d bytes: the local region %d was closed: %w", p.n, desc, fabric.ErrNoMR)
		}
		p.regions = append(p.regions, mr)
	}
	base := p.buf.DeviceAddr()
	for i := range p.copies {
		if p.inward() {
			p.copies[i].Src += base
		} else {
			p.copies[i].Dst += base
		}
	}
	for _, h := range p.hosts {
		here, there := sys.Iovec{Addr: h.addr, Len: h.n}, sys.Iovec{Addr: p.buf.Addr() + h.at, Len: h.n}
		if !p.inward() {
			here, there = there, here
		}
		if _, err := sys.CopySelf([]sys.Iovec{here}, []sys.Iovec{there}); err != nil {
			return fmt.Errorf("copy %d bytes of host memory at %#x, which is gone: %w", h.n, h.addr, fabric.ErrInvalid)
		}
	}
	return nil
}

// answerRead sends what was copied out, or why not, to the peer that reads it.
func (p *piece) answerRead() {
	l, r := p.link, p.reply
	j := job{h: frame.Header{Kind: frame.KindReply, Ticket: p.h.Ticket, Flags: p.h.Flags}}
	if p.errno != 0 {
		if p.size > 0 {
			l.ep.stage.sent(p.size)
		}
		p.free()
		l.endReply(r)
		j.h.Data = uint64(p.errno)
	} else {
		r.iov = append(r.iov[:0], sys.Iovec{Addr: p.buf.Addr(), Len: p.n})
		r.buf, r.size, p.buf = p.buf, p.size, nil
		j.reply, j.h.Length = r, p.n
	}
	p.reply = nil
	l.post(&j, j.h.Length)
	l.kick()
}
