// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	lf "mori/native/libfabric"
)

// postBatch is how many ops one call passes to C.
const postBatch = 16

// ops are the pending ops of an endpoint, in slots. Some wait in lanes, others are with libfabric.
// Guarded by endpoint.mu.
type ops struct {
	fid     lf.FID // 0: not open
	table   table
	recvs   lane // receives not yet posted to libfabric
	queues  *util.Queues
	offer   *offer
	retries *retries
	idle    func(l *lane) // called when a lane has no pending ops
	post    [postBatch]lf.Op
}

func (o *ops) init(queues *util.Queues, offer *offer, retries *retries) {
	o.queues, o.offer, o.retries, o.idle = queues, offer, retries, func(*lane) {}
	o.recvs.reset(lf.NoPeer)
}

// start posts the receives to a newly opened libfabric endpoint.
func (o *ops) start(fid lf.FID) {
	o.fid = fid
	o.pump(&o.recvs)
}

// add queues op in its lane, with a place in cq for its completion.
func (o *ops) add(op *fabric.Op, l *lane, key uint64, cq *util.CQ) error {
	if len(*o.table.free(op.Kind)) == 0 {
		return fabric.ErrAgain
	}
	if err := cq.Reserve(1); err != nil {
		return err
	}
	i := o.table.take(op)
	o.table.slots[i].key = key
	if op.Flags&fabric.OpInject != 0 {
		o.table.gather(i)
	}
	l.push(&o.table, i)
	return nil
}

// pump posts queued ops, up to a fence or until libfabric accepts no more. The caller holds mu.
func (o *ops) pump(l *lane) {
	if o.fid == 0 {
		return
	}
	for l.head >= 0 {
		n := 0
		for i := l.head; i >= 0 && n < postBatch; i = o.table.slots[i].next {
			s := &o.table.slots[i]
			if s.op.Flags&fabric.OpFence != 0 && (l.posted > 0 || n > 0) {
				break
			}
			o.table.translate(i, l.peer, o.offer, &o.post[n])
			n++
		}
		if n == 0 {
			return // pump is called again when the ops before the fence have ended
		}
		k, err := o.fid.Post(o.post[:n])
		if k > 0 {
			l.since, l.lost = time.Time{}, false
		}
		for range k {
			o.table.slots[l.pop(&o.table)].state = slotPosted
			l.posted++
		}
		switch errno := fabric.ErrnoOf(err); {
		case err == nil:
		case errno == fabric.ErrAgain:
			o.retries.set()
			if !l.unreachable() {
				return
			}
			o.failed(l.pop(&o.table), fabric.ErrTimeout, "libfabric cannot reach this peer")
		default:
			o.failed(l.pop(&o.table), transmitCause(errno), "libfabric refused it")
		}
	}
}

// receives reports whether the op of slot i is a receive.
func (o *ops) receives(i int32) bool { return o.table.slots[i].op.Kind == fabric.OpRecv }

// ended ends the op of slot i with libfabric's result.
func (o *ops) ended(i int32, c *lf.Completion, from fabric.AVAddr) {
	s := &o.table.slots[i]
	if c.Err != 0 {
		errno := fabric.Errno(c.Err)
		if s.op.Kind != fabric.OpRecv {
			errno = transmitCause(errno)
		}
		o.failed(i, errno, lf.ErrorText(c.Err)+" ("+c.Text()+")")
		return
	}
	op, l := s.op, s.lane
	o.table.give(i)
	if op.Kind == fabric.OpRecv {
		r := fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv, Len: c.Len, Src: from}
		if c.Flags&lf.RemoteCQData != 0 {
			r.Flags, r.Data = fabric.OpRemoteData, c.Data
		}
		o.queues.Received(&op, r)
		return
	}
	l.posted--
	o.queues.Done(&op, op.Len())
	o.next(l)
}

// failed ends the op of slot i, which is in no lane any more, with an error. The caller holds mu.
func (o *ops) failed(i int32, errno fabric.Errno, detail string) {
	s := &o.table.slots[i]
	op, l, posted := s.op, s.lane, s.state == slotPosted
	o.table.give(i)
	if op.Kind == fabric.OpRecv {
		entry := fabric.ErrEntry{Completion: fabric.Completion{Ctx: op.Ctx, Kind: fabric.OpRecv}, Err: receiveCause(errno), Detail: detail}
		if errno == fabric.ErrTruncated {
			entry.Len = op.Len()
		}
		o.queues.NotReceived(entry)
		return
	}
	if posted {
		l.posted--
	}
	o.queues.Failed(&op, errno, detail)
	if posted {
		o.next(l)
	}
}

// next posts the ops that waited for the end of an op of l.
func (o *ops) next(l *lane) {
	if l.head >= 0 {
		o.pump(l)
	} else if l.posted == 0 {
		o.idle(l)
	}
}

// cancel ends the receives with this Ctx, or asks libfabric to cancel them.
func (o *ops) cancel(ctx uint64) {
	o.table.each(func(i int32, s *slot) {
		if s.op.Kind != fabric.OpRecv || s.op.Ctx != ctx {
			return
		}
		if s.state == slotPosted {
			o.fid.Cancel(o.table.context(i))
			return
		}
		o.recvs.remove(&o.table, i)
		o.failed(i, fabric.ErrCanceled, "")
	})
}

// stop closes the libfabric endpoint. Its receives are queued for the next one.
func (o *ops) stop() {
	_ = o.fid.Close()
	o.fid = 0
	o.recvs.reset(lf.NoPeer)
	o.table.each(func(i int32, s *slot) {
		if s.op.Kind == fabric.OpRecv {
			s.state = slotHeld
			o.recvs.push(&o.table, i)
		}
	})
}

// end ends every op. libfabric must have none of them.
func (o *ops) end(errno fabric.Errno, detail string) {
	o.table.each(func(i int32, _ *slot) { o.failed(i, errno, detail) })
	o.recvs.reset(lf.NoPeer)
}

// transmitCause returns the cause of an op that ended with its connection. libfabric reports no
// cause, or that the op was canceled.
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

// retries makes the engine call an endpoint at each poll, while libfabric or a queue has not
// accepted something. Guarded by endpoint.mu.
type retries struct {
	engine *engine
	due    bool // counts in engine.stalled
}

func (r *retries) set() {
	if !r.due {
		r.due = true
		r.engine.stalled.Add(1)
	}
}

func (r *retries) clear() {
	if r.due {
		r.due = false
		r.engine.stalled.Add(-1)
	}
}
