// SPDX-License-Identifier: MIT

package conn

import (
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// read answers a read of the peer.
func (o *replies) read(in *socket.Incoming) error {
	h := &in.H
	segs := in.Segs
	r, err := o.open(len(segs), o.c.ep.peer)
	if err != nil {
		return err
	}
	j := socket.Job{H: frame.Header{Kind: frame.KindReply, Ticket: h.Ticket, Flags: h.Flags&frame.FlagChecksum | o.c.ep.checksumFlag()}}
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
				return nil // the stager answers
			}
			o.end(r)
			j.Reply, j.H.Length, j.H.Data = nil, 0, uint64(errno)
		}
	}
	o.c.Post(&j, j.H.Length)
	o.c.Kick()
	return nil
}

// atomic executes a peer's atomic op. The answer is an ack, or a reply with what was there
// before, under the credit of reads.
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
		r.result = make([]byte, util.MaxAtomic)
	}
	j := socket.Job{H: frame.Header{Kind: frame.KindReply, Ticket: ticket, Flags: o.c.ep.checksumFlag()}}
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

// execute checks the claim and does the op. It does not wait.
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
	if !util.AtomicAligned(addr, code.Type()) {
		return fabric.ErrInvalid
	}
	if err := sys.Guard(func() { util.Execute(code.Kind(), code.Op(), code.Type(), addr, operand, compare, result) }); err != nil {
		return fabric.ErrnoOf(err)
	}
	return 0
}

// openStaged leaves a read of device memory, in r.iov, to the Stager.
func (o *replies) openStaged(h *frame.Header, r *reply, mr *util.MR) fabric.Errno {
	r.from, r.ticket, r.flags = o.c, h.Ticket, h.Flags&frame.FlagChecksum|o.c.ep.checksumFlag()
	iov := r.iov
	r.iov = r.iov[:0]
	if err := o.c.ep.stage.Read(r, mr, iov, h.Length, &o.c.ep.domain.devices); err != nil {
		o.c.logDevice(err)
		return staging.Errno(err)
	}
	return 0
}
