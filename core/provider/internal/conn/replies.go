// SPDX-License-Identifier: MIT

package conn

import (
	"slices"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util/atomics"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// keepEntries is the largest capacity of a segment list that is kept for the next frame.
const keepEntries = 8 << 10

// A reply is the payload of one read of the peer.
type reply struct {
	mr      *regions.MR
	iov     []sys.Iovec
	entries int
	result  []byte // result of an atomic op; iov points to it

	// For device memory: the buffer that iov points to, and the state for the Stager's answer.
	buf    staging.Buffer
	from   *channel
	ticket uint32
	flags  uint16
}

// Iovecs returns the payload; see socket.Reply.
func (r *reply) Iovecs() []sys.Iovec { return r.iov }

// A replies answers the peer's reads and atomics that arrive on one channel. It holds the pending
// replies and counts their credit.
type replies struct {
	c       *channel
	reads   atomic.Int64
	entries atomic.Int64

	mu      sync.Mutex // protects what follows
	spare   []*reply
	serving []*reply // replies that hold a region open
}

// open returns a reply for an op with n segments, or an error if the peer exceeds its credit.
func (o *replies) open(n int, peer fabric.Addr) (*reply, error) {
	// Twice the sender's credit: the peer may reuse credit before the reply here has ended.
	if o.reads.Add(1) > 2*frame.MaxReads || o.entries.Add(int64(n)) > 2*frame.MaxReadSegments {
		return nil, frame.ProtocolErr("more pending reads of %s than allowed", peer)
	}
	r := o.take()
	r.entries = n
	return r, nil
}

// take returns a spare reply or a new one.
func (o *replies) take() *reply {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.spare); n > 0 {
		r := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return r
	}
	return &reply{}
}

// serve records that r holds mr open.
func (o *replies) serve(r *reply, mr *regions.MR) {
	o.mu.Lock()
	r.mr = mr
	o.serving = append(o.serving, r)
	o.mu.Unlock()
}

// end releases the region of r, if any, and returns the credit of the read.
func (o *replies) end(r *reply) {
	if r.mr != nil {
		r.mr.Release()
	}
	r.buf.Free()
	o.reads.Add(-1)
	o.entries.Add(-int64(r.entries))
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.serving, r); i >= 0 {
		o.serving = slices.Delete(o.serving, i, i+1)
	}
	r.mr = nil
	if r.iov = r.iov[:0]; cap(r.iov) > keepEntries {
		r.iov = nil
	}
	if len(o.spare) < frame.MaxReads {
		o.spare = append(o.spare, r)
	}
}

// holding reports whether a reply keeps a region open.
func (o *replies) holding(id uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.serving, func(r *reply) bool { return r.mr.Key().ID == id })
}

// read answers a read of the peer.
func (o *replies) read(in *socket.Incoming) error {
	h := &in.H
	segs := in.Segs
	r, err := o.open(len(segs), o.c.ep.peer)
	if err != nil {
		return err
	}
	j := socket.Job{H: frame.Header{Kind: frame.KindReply, Ticket: h.Ticket, Flags: h.Flags&frame.FlagChecksum | o.c.ep.cfg.checksumFlag()}}
	mr, iov, errno := o.c.claim(h, segs, fabric.AccessRemoteRead, r.iov[:0])
	r.iov = iov
	if errno != 0 {
		o.end(r)
		j.H.Data = uint64(errno)
	} else {
		o.serve(r, mr)
		j.Reply, j.H.Length = r, h.Length
		if o.c.ep.peerFault && h.Length > 0 {
			j.H.Flags |= frame.FlagTrailer
		}
		if h.Length > 0 && mr.Buffer().Kind != fabric.MemHost {
			errno := o.openStaged(h, r, mr)
			if errno == 0 {
				return nil // the Stager sends the reply
			}
			o.end(r)
			j.Reply, j.H.Length, j.H.Data = nil, 0, uint64(errno)
		}
	}
	o.c.Post(&j, j.H.Length)
	o.c.Kick()
	return nil
}

// atomic executes an atomic op of the peer. It answers with an ack, or with a reply that has the
// old value. The reply counts against the credit for reads.
func (o *replies) atomic(in *socket.Incoming) error {
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
		return o.c.Ack(ticket, o.execute(h, operand, compare, nil))
	}
	r, err := o.open(1, o.c.ep.peer)
	if err != nil {
		return err
	}
	if r.result == nil {
		r.result = make([]byte, atomics.MaxBytes)
	}
	j := socket.Job{H: frame.Header{Kind: frame.KindReply, Ticket: ticket, Flags: o.c.ep.cfg.checksumFlag()}}
	if errno := o.execute(h, operand, compare, r.result[:n]); errno != 0 {
		o.end(r)
		j.H.Data = uint64(errno)
	} else {
		r.iov = append(r.iov[:0], sys.Iovec{Addr: sys.AddrOf(r.result), Len: n})
		j.Reply, j.H.Length = r, n
	}
	o.c.Post(&j, j.H.Length)
	o.c.Kick()
	return nil
}

// execute checks the request and performs the op. It does not block.
func (o *replies) execute(h *frame.Header, operand, compare, result []byte) fabric.Errno {
	code := frame.AtomicCode(h.Count)
	mr, err := o.c.ep.domain.regions.Acquire(fabric.RegionKey{ID: h.Region, Secret: h.Secret}, code.Access())
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
	if !atomics.Aligned(addr, code.Type()) {
		return fabric.ErrInvalid
	}
	if err := sys.Guard(func() { atomics.Execute(code.Kind(), code.Op(), code.Type(), addr, operand, compare, result) }); err != nil {
		return fabric.ErrnoOf(err)
	}
	return 0
}

// openStaged prepares a read of device memory, in r.iov, for the Stager.
func (o *replies) openStaged(h *frame.Header, r *reply, mr *regions.MR) fabric.Errno {
	r.from, r.ticket, r.flags = o.c, h.Ticket, h.Flags&frame.FlagChecksum|o.c.ep.cfg.checksumFlag()
	iov := r.iov
	r.iov = r.iov[:0]
	if err := o.c.ep.stage.Read(r, mr, iov, h.Length, &o.c.ep.domain.devices); err != nil {
		o.c.logDevice(err)
		return staging.Errno(err)
	}
	return 0
}

// Reply sends the bytes of b, or errno, to the reading peer.
func (r *reply) Reply(b staging.Buffer, errno fabric.Errno) {
	c := r.from
	j := socket.Job{H: frame.Header{Kind: frame.KindReply, Ticket: r.ticket, Flags: r.flags}}
	if errno != 0 {
		c.replies.end(r)
		j.H.Data = uint64(errno)
	} else {
		at := b.Iovec()
		r.iov, r.buf = append(r.iov[:0], at), b
		j.Reply, j.H.Length = r, at.Len
	}
	c.Post(&j, j.H.Length)
	c.Kick()
}

// Drop ends the reply when the connection ends.
func (r *reply) Drop() { r.from.replies.end(r) }
