// SPDX-License-Identifier: MIT

package staging

import (
	"fmt"
	"sync"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/frame"
)

// A pieceKind is the kind of operation that a piece belongs to.
type pieceKind uint8

const (
	ownWrite pieceKind = iota
	ownRead
	peerRead
	peerWrite
)

// A Piece is the work that uses one buffer, or no buffer if all its local memory is host memory.
//
//	ownWrite   cut -> copied out -> sent, answered -> ended
//	ownRead    cut -> sent, answered -> copied in -> ended
//	peerRead   copied out -> sent as a reply, which then has the buffer
//	peerWrite  copied in -> reported -> answered
type Piece struct {
	ID int       // the Port's; set by Reserve
	Op fabric.Op // the operation to send; set before Port.Send

	kind   pieceKind
	n      uint64
	device *device.Staging // nil without a buffer
	buf    *device.StageBuffer

	transfer *Transfer // of this side's operation
	size     uint64    // bytes of an outgoing buffer

	reader Reader // of a peer's read
	writer Writer // of a peer's write, like h
	h      frame.Header

	copies  []device.CopySegment // the buffer's side is an offset until aim
	hosts   []hostPart
	segs    []fabric.Seg
	rsegs   []fabric.RSeg
	descs   []fabric.MRDesc
	regions []*regions.MR // held open while they are copied
	aimed   bool
	copy    device.Copy

	errno  fabric.Errno
	detail string
}

// A hostPart is host memory between device memory, with its offset in the buffer.
type hostPart struct{ addr, n, at uint64 }

// A pool reuses pieces and the memory of their lists.
type pool struct {
	mu    sync.Mutex // protects what follows
	spare []*Piece
}

// get returns a piece of n bytes.
func (o *pool) get(kind pieceKind, n uint64) *Piece {
	o.mu.Lock()
	defer o.mu.Unlock()
	var p *Piece
	if k := len(o.spare); k > 0 {
		p = o.spare[k-1]
		o.spare = o.spare[:k-1]
	} else {
		p = &Piece{}
	}
	p.kind, p.n = kind, n
	return p
}

// put takes back a piece that is no longer referenced.
func (o *pool) put(p *Piece) {
	if cap(p.copies) > keepEntries || cap(p.segs) > keepEntries || cap(p.rsegs) > keepEntries {
		return
	}
	clear(p.regions)
	*p = Piece{
		copies: p.copies[:0], hosts: p.hosts[:0], segs: p.segs[:0],
		rsegs: p.rsegs[:0], descs: p.descs[:0], regions: p.regions[:0],
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.spare) < MaxPieces {
		o.spare = append(o.spare, p)
	}
}

// Transfer returns the transfer of this side that p is part of.
func (p *Piece) Transfer() *Transfer { return p.transfer }

// Len returns how many bytes p moves.
func (p *Piece) Len() uint64 { return p.n }

// Addr returns the address of p's buffer.
func (p *Piece) Addr() uint64 { return p.buf.Addr() }

// Receive takes a buffer for the n bytes of a reply, if p needs one and has none. It reports
// whether it took one; p.Addr then returns its address. It returns device.ErrBusy if no buffer is
// free.
func (p *Piece) Receive(n uint64) (bool, error) {
	if p.device == nil || n == 0 || p.buf != nil {
		return false, nil
	}
	err := p.take(n, device.Inward)
	return err == nil, err
}

func (p *Piece) take(n uint64, to device.Outwardness) (err error) {
	p.buf, err = p.device.Take(n, to)
	return err
}

// free returns the buffer to its pool, if p has one.
func (p *Piece) free() {
	if p.buf != nil {
		p.buf.Free()
		p.buf = nil
	}
}

// lose abandons the buffer of a copy that failed.
func (p *Piece) lose() {
	if p.buf != nil {
		_ = p.buf.Lose() // buffers that cannot be returned stay counted in device.Live
		p.buf = nil
	}
}

func (p *Piece) releaseRegions() {
	for i, mr := range p.regions {
		mr.Release()
		p.regions[i] = nil
	}
	p.regions = p.regions[:0]
}

// End releases what a piece holds when its connection ends.
func (p *Piece) End() {
	p.free()
	p.releaseRegions()
	if p.reader != nil {
		p.reader.Drop()
		p.reader = nil
	}
}

// cover assigns the next n bytes of t to p: local and remote segments, starting at the cursors.
func (p *Piece) cover(t *Transfer) {
	for left := p.n; left > 0; {
		g := t.Op.LocalSeg(t.local.index)
		m := min(left, g.Len-t.local.off)
		if m > 0 {
			p.segs = append(p.segs, fabric.Seg{Addr: g.Addr + t.local.off, Len: m, MR: g.MR})
		}
		left -= m
		t.local.advance(m, g.Len)
	}
	for left := p.n; left > 0; {
		g := t.Op.RemoteSeg(t.remote.index)
		m := min(left, g.Len-t.remote.off)
		if m > 0 {
			p.rsegs = append(p.rsegs, fabric.RSeg{Addr: g.Addr + t.remote.off, Len: m, Key: g.Key})
		}
		left -= m
		t.remote.advance(m, g.Len)
	}
	t.done += p.n
}

// split separates the local segments into those that a device copies and those in host memory.
func (p *Piece) split() {
	at := uint64(0)
	for _, g := range p.segs {
		switch {
		case g.MR == 0:
			p.hosts = append(p.hosts, hostPart{g.Addr, g.Len, at})
		default:
			if k := len(p.descs); k == 0 || p.descs[k-1] != g.MR {
				p.descs = append(p.descs, g.MR)
			}
			p.copyWith(g.Addr, g.Len, at)
		}
		at += g.Len
	}
}

// copyWith adds device memory that is copied to or from an offset in the buffer.
func (p *Piece) copyWith(addr, n, at uint64) {
	g := device.CopySegment{Dst: at, Src: addr, Bytes: n}
	if p.inward() {
		g.Dst, g.Src = addr, at
	}
	p.copies = append(p.copies, g)
}

func (p *Piece) inward() bool { return p.kind == ownRead || p.kind == peerWrite }

// aim prepares the copies, once. It holds the regions open, replaces offsets by addresses in the
// buffer, and copies the host memory.
func (p *Piece) aim(regions *regions.Table) error {
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
		if _, err := vm.CopySelf([]sys.Iovec{here}, []sys.Iovec{there}); err != nil {
			return fmt.Errorf("copy %d bytes of host memory at %#x, which is not mapped: %w", h.n, h.addr, fabric.ErrInvalid)
		}
	}
	return nil
}
