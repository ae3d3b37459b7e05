// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"mori/core/fabric"
	"mori/core/internal/sys"
	lf "mori/native/libfabric"
)

// gather copies the op's local bytes, since the caller may reuse them.
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

var kinds = [...]uint32{fabric.OpSend: lf.OpSend, fabric.OpRecv: lf.OpRecv, fabric.OpRead: lf.OpRead, fabric.OpWrite: lf.OpWrite,
	fabric.OpAtomic: lf.OpAtomic, fabric.OpFetchAtomic: lf.OpFetch, fabric.OpCompareAtomic: lf.OpCompare}

// translate converts the op of slot i to libfabric's form.
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

// flagsOf returns libfabric's flags of op. Every op requests a completion, in order to free the
// slot. The queues decide whether to report it to the caller.
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
