// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// completed takes what libfabric's queue held. With engine.polling held.
func (e *endpoint) completed(done []lf.Completion) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range done {
		c := &done[i]
		if c.Err == 0 && c.Flags&lf.RemoteWrite != 0 && c.Flags&lf.RemoteCQData != 0 {
			e.notified(c)
		} else if j, ok := e.table.find(c.Ctx); ok {
			e.ended(j, c)
		}
	}
}

// notified passes on a peer's write with data. What has no place waits, and with it the queue.
func (e *endpoint) notified(c *lf.Completion) {
	w := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: e.source(c), Len: c.Len, Data: c.Data}
	if len(e.backlog) == 0 && e.queues.Rx.TryPush(w) {
		return
	}
	e.backlog = append(e.backlog, w)
	e.domain.network.engine.pause(e.queue)
	e.stall()
}

// ended ends the op of slot i as libfabric says.
func (e *endpoint) ended(i int32, c *lf.Completion) {
	s := &e.table.slots[i]
	if c.Err != 0 {
		errno := fabric.Errno(c.Err)
		if s.op.Kind != fabric.OpRecv {
			errno = transmitCause(errno)
		}
		e.failed(i, errno, lf.ErrorText(c.Err)+" ("+c.Text()+")")
		return
	}
	op, l := s.op, s.lane
	e.table.give(i)
	if op.Kind == fabric.OpRecv {
		r := fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv, Len: c.Len, Src: e.source(c)}
		if c.Flags&lf.RemoteCQData != 0 {
			r.Flags, r.Data = fabric.OpRemoteData, c.Data
		}
		e.queues.Received(&op, r)
		return
	}
	l.posted--
	e.queues.Done(&op, op.Len())
	e.next(l)
}

// failed ends the op of slot i, which is in no lane any more, with an error. With mu held.
func (e *endpoint) failed(i int32, errno fabric.Errno, detail string) {
	s := &e.table.slots[i]
	op, l, posted := s.op, s.lane, s.state == slotPosted
	e.table.give(i)
	if op.Kind == fabric.OpRecv {
		entry := fabric.ErrEntry{Completion: fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv}, Err: receiveCause(errno), Detail: detail}
		if errno == fabric.ErrTruncated {
			entry.Len = op.Len()
		}
		e.queues.NotReceived(entry)
		return
	}
	if posted {
		l.posted--
	}
	e.queues.Failed(&op, errno, detail)
	if posted {
		e.next(l)
	}
}

// next posts what waited for the end of an op, and lets go of a peer that is no more. With mu held.
func (e *endpoint) next(l *lane) {
	if l.head >= 0 {
		e.pump(l)
	} else if l.gone && l.posted == 0 {
		e.drop(l)
	}
}

// again offers libfabric what it did not take, and the queue what had no place. With engine.polling
// held.
func (e *endpoint) again() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.stalled {
		return
	}
	e.settle()
	e.pump(&e.recvs)
	e.pump(&e.only)
	for _, l := range e.lanes {
		e.pump(l)
	}
	for len(e.backlog) > 0 && e.queues.Rx.TryPush(e.backlog[0]) {
		if e.backlog = e.backlog[1:]; len(e.backlog) == 0 {
			e.backlog = nil
		}
	}
	if len(e.backlog) > 0 {
		e.stall()
	} else if e.fid != 0 {
		e.domain.network.engine.resume(e.queue)
	}
}

// source is the sender's number. It is 0 if libfabric does not report the sender or the address
// vector does not hold it.
func (e *endpoint) source(c *lf.Completion) fabric.AVAddr {
	if e.av == nil || c.From == lf.NoPeer || e.domain.offer.info.Caps&fabric.CapSource == 0 {
		return 0
	}
	l := e.peers[c.From]
	if l == nil {
		return 0
	}
	return e.av.Find(l.addr)
}

// transmitCause is the cause of an op that ended with its connection: libfabric reports none, or
// that it was canceled.
func transmitCause(errno fabric.Errno) fabric.Errno {
	if errno == fabric.ErrCanceled {
		return fabric.ErrConnReset
	}
	return receiveCause(errno)
}

func receiveCause(errno fabric.Errno) fabric.Errno {
	switch errno {
	case fabric.ErrNotConn, fabric.ErrShutdown:
		return fabric.ErrConnReset
	}
	return errno
}
