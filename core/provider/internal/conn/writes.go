// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"sync/atomic"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// A writes executes the peer's writes that arrive on one channel. Its state describes the write
// that is arriving. Only the channel's reader uses it, except for holds.
type writes struct {
	c       *channel
	mr      *regions.MR    // held open
	errno   fabric.Errno   // the answer
	stuck   bool           // the write had to wait for room for its completion
	landing *staging.Piece // for a write to device memory: the piece owns mr

	holds atomic.Pointer[regions.MR] // the region that the payload is written to
}

var _ staging.Writer = (*writes)(nil)

// begin starts a write and sets where its payload goes.
func (w *writes) begin(in *socket.Incoming) error {
	h := &in.H
	w.errno, w.stuck = 0, false
	if h.Flags&frame.FlagNotice != 0 {
		mr, _, errno := w.c.claim(h, nil, fabric.AccessRemoteWrite, nil)
		if errno == 0 {
			mr.Release()
		}
		w.errno = errno
		return nil
	}
	if h.Flags&frame.FlagVoid != 0 {
		w.errno, in.Drop = fabric.ErrFault, h.Length
		return nil
	}
	if h.Length > answerFirst {
		w.c.Kick()
	}
	w.mr, in.Dst, w.errno = w.c.claim(h, in.Segs, fabric.AccessRemoteWrite, in.Scratch(len(in.Segs)))
	if w.errno != 0 {
		in.Drop = h.WireLen()
		return nil
	}
	if h.Length > 0 && w.mr.Buffer().Kind != fabric.MemHost {
		if err := w.beginLanding(in); err != nil || w.landing == nil {
			return err
		}
		in.ReceiveCompressed()
		return nil
	}
	in.Want = h.Length
	w.holds.Store(w.mr)
	in.ReceiveCompressed()
	return nil
}

// end ends a write whose bytes are visible: it pushes the completion that the write asked for and
// then answers.
func (w *writes) end(in *socket.Incoming) error {
	h := &in.H
	if w.landing != nil {
		return w.endLanding(in)
	}
	if w.mr != nil {
		if in.Compressed() {
			if err := in.Decompress(w.written(in)); err != nil {
				return err
			}
		}
		switch {
		case in.Gone:
			w.errno = fabric.ErrFault
		case in.Differs():
			w.errno = fabric.ErrCRC
		}
		w.holds.Store(nil)
		w.mr.Release()
		w.mr = nil
	}
	if w.errno == 0 && h.Flags&frame.FlagRemoteData != 0 {
		done := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: w.c.ep.from(), Len: h.Length, Data: h.Data}
		if !w.c.ep.Queues.Rx.TryPush(done) {
			w.stuck = true
			return socket.ErrNoRoom
		}
		if w.stuck {
			w.c.ep.inbox.wake() // room is signaled once, but other readers may wait for it, too
		}
	}
	return w.c.Ack(h.Ticket, w.errno)
}

// written returns the memory of a write whose claim was accepted.
func (w *writes) written(in *socket.Incoming) []sys.Iovec {
	iov := in.Scratch(len(in.Segs))
	for _, s := range in.Segs {
		if addr, err := w.mr.Range(s.Addr, s.Len); err == nil && s.Len > 0 {
			iov = append(iov, sys.Iovec{Addr: addr, Len: s.Len})
		}
	}
	return iov
}

// beginLanding redirects the payload of a write to device memory, listed in in.Dst, to a staging
// buffer.
func (w *writes) beginLanding(in *socket.Incoming) error {
	h := &in.H
	mr := w.mr
	p, err := w.c.ep.stage.BeginWrite(mr, in.Dst, h.Length, &w.c.ep.domain.devices)
	if err == nil {
		w.landing, w.mr = p, nil
		in.Want, in.Own = h.Length, true
		w.holds.Store(mr)
		in.Dst = append(in.Scratch(1), sys.Iovec{Addr: p.Addr(), Len: h.Length})
		return nil
	}
	mr.Release()
	w.mr, in.Dst = nil, nil
	if errors.Is(err, device.ErrBusy) {
		return socket.ErrNoBuffer // the reader calls begin again, which checks the claim again
	}
	w.c.logDevice(err)
	w.errno, in.Drop = staging.Errno(err), h.WireLen()
	return nil
}

// endLanding passes a write whose payload has arrived to the Stager.
func (w *writes) endLanding(in *socket.Incoming) error {
	h := &in.H
	if in.Compressed() {
		if err := in.Decompress(append(in.Scratch(1), sys.Iovec{Addr: w.landing.Addr(), Len: h.Length})); err != nil {
			return err
		}
	}
	p := w.landing
	w.landing = nil
	w.holds.Store(nil)
	if in.Differs() {
		w.c.ep.stage.Discard(p)
		return w.c.Ack(h.Ticket, fabric.ErrCRC)
	}
	w.c.ep.stage.EndWrite(p, w, h)
	return nil
}

// Landed pushes the completion that a peer's write asked for and answers the write; see
// staging.Writer.
func (w *writes) Landed(h *frame.Header, errno fabric.Errno) bool {
	if errno == 0 && h.Flags&frame.FlagRemoteData != 0 {
		done := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: w.c.ep.from(), Len: h.Length, Data: h.Data}
		if !w.c.ep.Queues.Rx.TryPush(done) {
			return false
		}
	}
	if err := w.c.Ack(h.Ticket, errno); err != nil {
		w.c.ep.fail(err)
	}
	w.c.Kick()
	return true
}

// holding reports whether a write keeps a region open.
func (w *writes) holding(id uint64) bool {
	mr := w.holds.Load()
	return mr != nil && mr.Key().ID == id
}

// abandon releases what a partly received write holds. The reader has stopped.
func (w *writes) abandon() {
	if w.mr != nil {
		w.mr.Release()
		w.mr = nil
	}
	if w.landing != nil {
		w.landing.End()
		w.landing = nil
	}
}
