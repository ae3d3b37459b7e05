// SPDX-License-Identifier: MIT

package ending

import (
	"errors"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// EndMsgCases are the cases of connections that end, for EPMsg only.
var EndMsgCases = []rig.Case{
	{Name: "shutdown in good order", Run: shutdown},
	{Name: "shutdown under load ends every op before it returns", Run: func(r *rig.Rig) { endUnderLoad(r, func(n *rig.Node) error { return n.Conn.Shutdown() }) }},
	{Name: "a peer that closes is noticed", Run: peerCloses},
	{Name: "the event comes after the ops ended", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		const count = 50
		for i := range uint64(count) {
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Ctx: i})
		}
		r.Must(a.EP.Close())
		b.Event(fabric.EventShutdown)
		if left := rig.Tally(b, count, 0); left != 0 {
			r.Errorf("%d receives had not ended", left)
		}
	}},
	{Name: "one connection ends and the others continue", Run: func(r *rig.Rig) {
		ha, hb := r.Host(), r.Host()
		var as, bs []*rig.Node
		for range 3 {
			a, b := ha.Node(rig.Shape{}), hb.Node(rig.Shape{})
			r.Join(a, b)
			as, bs = append(as, a), append(bs, b)
		}
		r.Must(bs[1].EP.Close())
		as[1].Event(fabric.EventShutdown)
		rig.StillWorks(r, as[0], bs[0])
		rig.StillWorks(r, bs[2], as[2])
	}},
}

func shutdown(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	src, dst := r.Patterned(64, 1), r.Alloc(64)
	b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 1}, fabric.Op{Kind: fabric.OpRecv, Ctx: 2})
	a.Submit(fabric.Op{Kind: fabric.OpRecv, Ctx: 3})
	a.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 4})
	r.Must(a.Conn.Shutdown())
	if left := rig.Tally(a, 1, 0); left != 0 {
		r.Error("shutdown left a receive behind")
	}
	e := b.Event(fabric.EventShutdown)
	r.Want("the peer's event", e.Err, fabric.ErrShutdown)
	b.OK(1) // stays readable
	r.Has(dst, 1, 0)
	if e := b.Read(); e.Err == 0 || e.Ctx != 2 {
		r.Errorf("a receive that got nothing: %v", &e)
	}
	for _, n := range []*rig.Node{a, b} {
		for _, kind := range rig.DataKinds {
			_, err := n.EP.Submit([]fabric.Op{{Kind: kind}})
			r.Want(kind.String()+" after shutdown", err, fabric.ErrNotConn)
		}
		if _, err := n.EP.Submit([]fabric.Op{{Kind: fabric.OpRecv}}); err == nil {
			r.Error("a receive after shutdown")
		}
		r.Must(n.Conn.Shutdown())
		n.Silent()
	}
}

func peerCloses(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	src, dst := r.Patterned(64, 1), r.Alloc(64)
	to := a.Imports(b.Reg(dst, rig.BothRights).Raw())
	a.Submit(fabric.Op{Kind: fabric.OpRecv, Ctx: 1})
	a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 64), Ctx: 2})
	r.Must(b.EP.Close())
	e := a.Event(fabric.EventShutdown)
	if !errors.Is(e.Err, fabric.ErrConnReset) && !errors.Is(e.Err, fabric.ErrShutdown) {
		r.Errorf("reported as %v", e.Err)
	}
	if e := a.Read(); e.Err == 0 || e.Ctx != 1 {
		r.Errorf("the receive: %v", &e)
	}
	_, err := a.EP.Submit([]fabric.Op{{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 64)}})
	r.Want("write after it", err, fabric.ErrNotConn)
	a.Silent()
}
