// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"

	"mori/core/fabric"
)

var endMsgCases = []testCase{
	{"shutdown in good order", shutdown},
	{"shutdown under load ends every op before it returns", func(r *rig) { endUnderLoad(r, func(n *node) error { return n.cn.Shutdown() }) }},
	{"a peer that closes is noticed", peerCloses},
	{"the event comes after the ops ended", func(r *rig) {
		a, b := r.pair(shape{})
		const count = 50
		for i := range uint64(count) {
			b.submit(fabric.Op{Kind: fabric.OpRecv, Ctx: i})
		}
		r.must(a.ep.Close())
		b.event(fabric.EventShutdown)
		if left := tally(b, count, 0); left != 0 {
			r.Errorf("%d receives had not ended", left)
		}
	}},
	{"one connection ends and the others continue", func(r *rig) {
		ha, hb := r.host(), r.host()
		var as, bs []*node
		for range 3 {
			a, b := ha.node(shape{}), hb.node(shape{})
			r.join(a, b)
			as, bs = append(as, a), append(bs, b)
		}
		r.must(bs[1].ep.Close())
		as[1].event(fabric.EventShutdown)
		stillWorks(r, as[0], bs[0])
		stillWorks(r, bs[2], as[2])
	}},
}

func shutdown(r *rig) {
	a, b := r.pair(shape{})
	src, dst := r.patterned(64, 1), r.alloc(64)
	b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 1}, fabric.Op{Kind: fabric.OpRecv, Ctx: 2})
	a.submit(fabric.Op{Kind: fabric.OpRecv, Ctx: 3})
	a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 4})
	r.must(a.cn.Shutdown())
	if left := tally(a, 1, 0); left != 0 {
		r.Error("shutdown left a receive behind")
	}
	e := b.event(fabric.EventShutdown)
	r.want("the peer's event", e.Err, fabric.ErrShutdown)
	b.ok(1) // stays readable
	r.has(dst, 1, 0)
	if e := b.read(); e.Err == 0 || e.Ctx != 2 {
		r.Errorf("a receive that got nothing: %v", &e)
	}
	for _, n := range []*node{a, b} {
		for _, kind := range dataKinds {
			_, err := n.ep.Submit([]fabric.Op{{Kind: kind}})
			r.want(kind.String()+" after shutdown", err, fabric.ErrNotConn)
		}
		if _, err := n.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}}); err == nil {
			r.Error("a receive after shutdown")
		}
		r.must(n.cn.Shutdown())
		n.silent()
	}
}

func peerCloses(r *rig) {
	a, b := r.pair(shape{})
	src, dst := r.patterned(64, 1), r.alloc(64)
	to := a.imports(b.reg(dst, bothRights).Raw())
	a.submit(fabric.Op{Kind: fabric.OpRecv, Ctx: 1})
	a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64), Ctx: 2})
	r.must(b.ep.Close())
	e := a.event(fabric.EventShutdown)
	if !errors.Is(e.Err, fabric.ErrConnReset) && !errors.Is(e.Err, fabric.ErrShutdown) {
		r.Errorf("told as %v", e.Err)
	}
	if e := a.read(); e.Err == 0 || e.Ctx != 1 {
		r.Errorf("the receive: %v", &e)
	}
	_, err := a.ep.Submit([]fabric.Op{{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64)}})
	r.want("write after it", err, fabric.ErrNotConn)
	a.silent()
}
