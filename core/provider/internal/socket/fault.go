// SPDX-License-Identifier: MIT

package socket

import (
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/frame"
)

// Memory of an op or region that was freed before its bytes were sent or received fails that op,
// with ErrFault, and the connection stays:
//
//   - Received payload that has nowhere to go is dropped; the answer says so.
//   - A write whose payload cannot be read, and whose header has not been sent, becomes one with
//     flagVoid, which the peer drops.
//   - A reply has a trailer behind its payload, and ends in zeros and an errno.
//   - Anything else that was begun cannot be completed. Its op fails, and the connection ends for
//     the others with ErrConnReset.
//
// Peers that do not know these flags get none of them; their connections end.

const pageLen = 4096

var filler [64 << 10]byte

// A layout is where the frame of a job lies in the iov of its batch.
type layout struct {
	head    int    // entry of the header
	addr    uint64 // the header's address
	payload int    // first entry behind the header
	trailer int    // entry that begins with the trailer, 0: none
	end     int    // first entry behind the frame
}

func (a *layout) begin(p *pump, head []byte) {
	*a = layout{head: len(p.iov) - 1, addr: sys.AddrOf(head), payload: len(p.iov)}
}

// addTrailer appends a trailer that says that the payload is good, in an entry of its own.
func (a *layout) addTrailer(p *pump) {
	b := p.room(frame.TrailerLen)
	frame.PutTrailer(b, 0)
	a.trailer = len(p.iov)
	p.iov = append(p.iov, sys.Iovec{Addr: sys.AddrOf(b), Len: frame.TrailerLen})
}

// sendAroundFault continues where the kernel could not read some memory of the batch. It copies in
// large parts and does not say which entry it was, so a first pass looks at the frames that were
// not begun, and then single pages are sent. EFAULT is the end of the connection.
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

// voidUnreadable looks at the payload of all frames whose header was not sent, and keeps what
// cannot be read from being sent.
func (p *pump) voidUnreadable() {
	for i := len(p.batch) - 1; i >= 0; i-- { // from the last on: what is replaced moves only what is behind it
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

// endReply replaces the payload of a reply from an entry on with zeros, and says so in the trailer.
func (p *pump) endReply(j *Job, from int) {
	frame.PutTrailer(sys.Bytes(p.iov[j.at.trailer].Addr, frame.TrailerLen), fabric.ErrFault)
	for i := range p.batch {
		if &p.batch[i] == j {
			p.blank(i, from, j.at.trailer)
		}
	}
}

// blank has entries from to end of iov, payload of the frame of that index, sent as zeros.
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
