// SPDX-License-Identifier: MIT

package socket

import (
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/frame"
)

// If memory of an op or region is freed before its bytes are sent or received, that op fails with
// ErrFault and the connection stays open:
//
//   - Received payload whose destination is not mapped is dropped; the answer reports it.
//   - A write whose payload cannot be read, and whose header has not been sent, is sent with
//     flagVoid. The peer drops it.
//   - A reply has a trailer after its payload. The unreadable part is sent as zeros, and the
//     trailer has the errno.
//   - Any other frame that is partly sent cannot be completed. Its op fails with ErrFault, and the
//     connection ends with ErrConnReset for the other ops.
//
// These flags are not sent to peers that do not know them. Connections to such peers end instead.

const pageLen = 4096

var filler [64 << 10]byte

// A layout says where the frame of a job lies in the iov of its batch.
type layout struct {
	head    int    // entry of the header
	addr    uint64 // the header's address
	payload int    // first entry after the header
	trailer int    // entry that begins with the trailer; 0: no trailer
	end     int    // first entry after the frame
}

func (a *layout) begin(p *pump, head []byte) {
	*a = layout{head: len(p.iov) - 1, addr: sys.AddrOf(head), payload: len(p.iov)}
}

// addTrailer appends a trailer, in an entry of its own, that says that the payload is valid.
func (a *layout) addTrailer(p *pump) {
	b := p.room(frame.TrailerLen)
	frame.PutTrailer(b, 0)
	a.trailer = len(p.iov)
	p.iov = append(p.iov, sys.Iovec{Addr: sys.AddrOf(b), Len: frame.TrailerLen})
}

// sendAroundFault continues after the kernel could not read some memory of the batch. The kernel
// copies in large parts and does not report the faulty entry. So sendAroundFault first checks the
// frames that were not started, and then sends single pages. EFAULT ends the connection.
func (p *pump) sendAroundFault() (int, error) {
	p.rest = sys.Advance(p.rest, 0)
	if !p.searched {
		p.searched = true
		p.voidUnreadable()
	}
	first := p.rest[0]
	p.page[0] = sys.Iovec{Addr: first.Addr, Len: min(first.Len, pageLen-first.Addr%pageLen)}
	n, err := p.send(p.page[:])
	if err != syscall.EFAULT {
		return n, err
	}
	at := len(p.iov) - len(p.rest)
	for i := range p.batch {
		if j := &p.batch[i]; j.at.payload <= at && at < j.at.end {
			if j.at.trailer != 0 {
				p.endReply(j, at)
				return 0, nil
			}
			p.s.owner.Unreadable(j)
		}
	}
	return 0, syscall.EFAULT
}

// voidUnreadable checks the payload of all frames whose header was not sent. It replaces unreadable
// payload, so that it is not sent.
func (p *pump) voidUnreadable() {
	for i := len(p.batch) - 1; i >= 0; i-- { // backwards: a replacement moves only the entries after it
		j := &p.batch[i]
		at := len(p.iov) - len(p.rest)
		begun := j.at.head < at || j.at.head == at && p.rest[0].Addr > j.at.addr
		if begun || j.lost || j.at.payload >= j.at.end {
			continue
		}
		switch {
		case j.at.trailer != 0:
			if !readable(p.iov[j.at.payload:j.at.trailer]) {
				p.endReply(j, j.at.payload)
			}
		case j.H.Kind == frame.KindWrite && j.H.Flags&frame.FlagCompressed == 0 && p.s.env.PeerFault && !readable(p.iov[j.at.payload:j.at.end]):
			p.s.owner.Unreadable(j)
			j.H.Flags |= frame.FlagVoid
			j.H.Put(sys.Bytes(j.at.addr, frame.HeaderLen))
			p.blank(i, j.at.payload, j.at.end)
		}
	}
}

// endReply replaces the payload of a reply, starting at entry from, with zeros, and writes ErrFault
// to the trailer.
func (p *pump) endReply(j *Job, from int) {
	frame.PutTrailer(sys.Bytes(p.iov[j.at.trailer].Addr, frame.TrailerLen), fabric.ErrFault)
	for i := range p.batch {
		if &p.batch[i] == j {
			p.blank(i, from, j.at.trailer)
		}
	}
}

// blank replaces the entries from to end of iov, payload of the frame with this index, with zeros.
func (p *pump) blank(index, from, end int) {
	at := len(p.iov) - len(p.rest)
	iov := append([]sys.Iovec(nil), p.iov[:from]...)
	for _, v := range p.iov[from:end] {
		for v.Len > 0 {
			n := min(v.Len, uint64(len(filler)))
			iov = append(iov, sys.Iovec{Addr: sys.AddrOf(filler[:]), Len: n})
			v.Len -= n
		}
	}
	more := len(iov) - end
	p.iov = append(iov, p.iov[end:]...)
	p.rest = p.iov[at:]
	a := &p.batch[index].at
	a.end += more
	if a.trailer != 0 {
		a.trailer += more
	}
	for i := index + 1; i < len(p.batch); i++ {
		b := &p.batch[i].at
		b.payload, b.end = b.payload+more, b.end+more
		if b.head >= end {
			b.head += more
		}
		if b.trailer != 0 {
			b.trailer += more
		}
	}
}

// readable asks the kernel whether each page of iov can be read by copying a byte of it.
func readable(iov []sys.Iovec) bool {
	var b [1]byte
	for _, v := range iov {
		for v.Len > 0 {
			if vm.Load(b[:], v.Addr) != nil {
				return false
			}
			n := min(v.Len, pageLen-v.Addr%pageLen)
			v.Addr, v.Len = v.Addr+n, v.Len-n
		}
	}
	return true
}
