// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	lf "mori/native/libfabric"
)

// postBatch is how many ops cross into C at once.
const postBatch = 16

// Submit gives each op a slot and a place in its lane, and posts what may go; see fabric.Endpoint.
func (e *endpoint) Submit(ops []fabric.Op) (n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var last *lane
	for ; n < len(ops); n++ {
		var l *lane
		if l, err = e.accept(&ops[n]); err != nil {
			break
		}
		if last != nil && l != last {
			e.pump(last)
		}
		last = l
	}
	if last != nil {
		e.pump(last)
		e.domain.network.engine.kick()
	}
	return n, err
}

// accept checks op and puts it in line. With mu held.
func (e *endpoint) accept(op *fabric.Op) (*lane, error) {
	if err := e.state.Submit(op.Kind); err != nil {
		return nil, err
	}
	if err := util.CheckOp(op, &e.limits); err != nil {
		return nil, err
	}
	if err := e.possible(op); err != nil {
		return nil, err
	}
	cq, l, key := e.queues.Rx, &e.recvs, uint64(0)
	if op.Kind != fabric.OpRecv {
		var err error
		if l, err = e.laneOf(op.Dest); err != nil {
			return nil, err
		}
		if key, err = e.remoteKey(op); err != nil {
			return nil, err
		}
		cq = e.queues.Tx
	}
	if len(*e.table.free(op.Kind)) == 0 {
		return nil, fabric.ErrAgain
	}
	if err := cq.Reserve(1); err != nil {
		return nil, err
	}
	i := e.table.take(op)
	s := &e.table.slots[i]
	s.key = key
	if op.Flags&fabric.OpInject != 0 {
		e.table.gather(i)
	}
	l.push(&e.table, i)
	return l, nil
}

// possible refuses what libfabric or its provider does not have.
func (e *endpoint) possible(op *fabric.Op) error {
	if op.Kind == fabric.OpSend && op.Flags&fabric.OpDeliveryComplete != 0 && e.domain.offer.delivered == 0 {
		return fmt.Errorf("submit send that completes on delivery over %s: %w", e.domain.offer.fi.Provider, fabric.ErrNotSupported)
	}
	if a := op.Atomic; a != nil {
		if n := uint64(e.domain.atomics[op.Kind][a.Op][a.Type] * a.Type.Size()); op.Seg.Len > n {
			return fmt.Errorf("submit %v %v of %d bytes of %v, limit is %d: %w", op.Kind, a.Op, op.Seg.Len, a.Type, n, fabric.ErrNoSys)
		}
	}
	return nil
}

// remoteKey is libfabric's key of the region that op names, 0 for a message.
func (e *endpoint) remoteKey(op *fabric.Op) (uint64, error) {
	if op.Kind == fabric.OpSend {
		return 0, nil
	}
	r := e.domain.imports.lookup(op.RSeg.Key)
	if r == nil {
		return 0, fmt.Errorf("submit %v to a region that was not imported: %w", op.Kind, fabric.ErrNoKey)
	}
	// libfabric takes any address.
	if op.Atomic != nil && !util.AtomicAligned(r.memory+op.RSeg.Addr-r.base, op.Atomic.Type) {
		return 0, fmt.Errorf("submit %v of %v at %#x, which is not aligned: %w", op.Kind, op.Atomic.Type, op.RSeg.Addr, fabric.ErrInvalid)
	}
	return r.key, nil
}

// gather takes the op's local bytes along, since the caller will reuse them.
func (t *table) gather(i int32) {
	op := &t.slots[i].op
	at := t.injects + uint64(i)*t.inject
	to := sys.Bytes(at, int(t.inject))
	n := copy(to, sys.Bytes(op.Seg.Addr, int(op.Seg.Len)))
	for _, s := range op.More {
		n += copy(to[n:], sys.Bytes(s.Addr, int(s.Len)))
	}
	op.Seg, op.More = fabric.Seg{Addr: at, Len: uint64(n)}, nil
}

// pump posts what is in line, up to a fence or until libfabric takes no more. With mu held.
func (e *endpoint) pump(l *lane) {
	if e.fid == 0 {
		return
	}
	for l.head >= 0 {
		n := 0
		for i := l.head; i >= 0 && n < postBatch; i = e.table.slots[i].next {
			s := &e.table.slots[i]
			if s.op.Flags&fabric.OpFence != 0 && (l.posted > 0 || n > 0) {
				break
			}
			e.table.translate(i, l.peer, &e.domain.offer, &e.post[n])
			n++
		}
		if n == 0 {
			return // the end of what the fence waits for calls again
		}
		k, err := e.fid.Post(e.post[:n])
		if k > 0 {
			l.since, l.lost = time.Time{}, false
		}
		for range k {
			e.table.slots[l.pop(&e.table)].state = slotPosted
			l.posted++
		}
		switch errno := fabric.ErrnoOf(err); {
		case err == nil:
		case errno == fabric.ErrAgain:
			e.stall()
			if !l.unreachable() {
				return
			}
			e.failed(l.pop(&e.table), fabric.ErrTimeout, "libfabric does not reach this peer")
		default:
			e.failed(l.pop(&e.table), transmitCause(errno), "libfabric did not take it")
		}
	}
}

// stall makes the engine call again at its next look. With mu held.
func (e *endpoint) stall() {
	if !e.stalled {
		e.stalled = true
		e.domain.network.engine.stalled.Add(1)
	}
}

// settle undoes stall. With mu held.
func (e *endpoint) settle() {
	if e.stalled {
		e.stalled = false
		e.domain.network.engine.stalled.Add(-1)
	}
}

var kinds = [...]uint32{fabric.OpSend: lf.OpSend, fabric.OpRecv: lf.OpRecv, fabric.OpRead: lf.OpRead, fabric.OpWrite: lf.OpWrite,
	fabric.OpAtomic: lf.OpAtomic, fabric.OpFetchAtomic: lf.OpFetch, fabric.OpCompareAtomic: lf.OpCompare}

// translate writes the op of slot i in libfabric's words.
func (t *table) translate(i int32, peer uint64, o *offer, out *lf.Op) {
	s := &t.slots[i]
	op := &s.op
	out.Ctx, out.Flags, out.Peer, out.Data, out.Key, out.Kind = t.context(i), flagsOf(op, o), peer, op.Data, s.key, kinds[op.Kind]
	if op.Atomic != nil {
		t.translateAtomic(op, out)
		return
	}
	out.NSeg, out.NRSeg = 0, 0
	addSeg(out, &op.Seg)
	for j := range op.More {
		addSeg(out, &op.More[j])
	}
	if op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite {
		return
	}
	addRSeg(out, &op.RSeg)
	for j := range op.RMore {
		addRSeg(out, &op.RMore[j])
	}
	if out.NRSeg == 0 {
		out.RSegs[0], out.NRSeg = lf.Seg{Addr: op.RSeg.Addr}, 1
		out.Segs[0], out.NSeg = lf.Seg{Addr: op.Seg.Addr}, 1
	}
}

// addSeg adds a segment unless it is empty.
func addSeg(out *lf.Op, s *fabric.Seg) {
	if s.Len != 0 {
		out.Segs[out.NSeg] = lf.Seg{Addr: s.Addr, Len: s.Len, Desc: uint64(s.MR)}
		out.NSeg++
	}
}

func addRSeg(out *lf.Op, s *fabric.RSeg) {
	if s.Len != 0 {
		out.RSegs[out.NRSeg] = lf.Seg{Addr: s.Addr, Len: s.Len}
		out.NRSeg++
	}
}

func (t *table) translateAtomic(op *fabric.Op, out *lf.Op) {
	a, size := op.Atomic, uint64(op.Atomic.Type.Size())
	elements := func(s fabric.Seg) lf.Seg { return lf.Seg{Addr: s.Addr, Len: s.Len / size, Desc: uint64(s.MR)} }
	out.NSeg, out.NRSeg, out.DataType, out.AtomicOp = 1, 1, atomicType(a.Type), atomicOp(a.Op)
	out.Segs[0] = elements(op.Seg)
	out.RSegs[0] = lf.Seg{Addr: op.RSeg.Addr, Len: op.RSeg.Len / size}
	out.Compare, out.Result = elements(a.Compare), elements(a.Result)
}

// flagsOf are libfabric's flags of op. Every op completes, for the slot's sake; whether the caller
// hears of it is for the queues.
func flagsOf(op *fabric.Op, o *offer) uint64 {
	flags := lf.Completed
	if op.Flags&fabric.OpRemoteData != 0 {
		flags |= lf.RemoteCQData
	}
	if op.Flags&fabric.OpInject != 0 && op.Atomic == nil { // of an injected atomic ofi_rxm 1.17 reports no end, and our operand is a copy
		flags |= lf.Inject
	}
	switch {
	case op.Kind == fabric.OpRecv, op.Kind == fabric.OpRead:
	case op.Flags&fabric.OpInjectComplete != 0:
		flags |= lf.InjectComplete
	case op.Kind == fabric.OpSend && op.Flags&fabric.OpDeliveryComplete != 0:
		flags |= o.delivered
	case op.Kind == fabric.OpSend, op.Flags&fabric.OpTransmitComplete != 0:
		flags |= lf.TransmitComplete
	default:
		flags |= lf.DeliveryComplete
		if op.Kind == fabric.OpWrite && op.Len() == 0 {
			flags &^= o.forgets
		}
	}
	return flags
}
