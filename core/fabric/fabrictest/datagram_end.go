// SPDX-License-Identifier: MIT

package fabrictest

import (
	"time"

	"mori/core/fabric"
)

var datagramEndCases = []testCase{
	{"a peer that closes and returns is reachable again", comeBack},
	{"an unused address fails its own ops only", func(r *rig) {
		a, b := r.pair(shape{})
		gone := a.insert(r.goneName())
		src, far := r.patterned(64, 1), r.alloc(64)
		to := a.imports(b.reg(far, bothRights).Raw())
		for round := range uint64(3) {
			a.submit(fabric.Op{Kind: fabric.OpSend, Dest: gone, Seg: src.seg(), Ctx: 100 + round})
			for i := range uint64(10) {
				a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64), Ctx: i})
			}
			for range 11 {
				e := a.read()
				if lost := e.Ctx == 100+round; lost != (e.Err != 0) {
					r.Fatalf("round %d: op %d: %v", round, e.Ctx, &e)
				}
			}
			r.has(far, 1, 0)
		}
		a.silent()
	}},
	{"a failed op frees its slot", func(r *rig) {
		a := r.host().node(shape{cqSize: 8})
		a.dest = a.insert(r.goneName())
		src := r.patterned(64, 1)
		for i := range uint64(100) {
			a.submit(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: i})
			if e := a.read(); e.Err == 0 || e.Ctx != i || e.Kind != fabric.OpSend {
				r.Fatalf("op %d: %+v", i, e)
			}
		}
		a.silent()
	}},
	{"the receiver outlives its senders", func(r *rig) {
		b := r.host().node(shape{})
		src, dst := r.patterned(64, 1), r.alloc(64)
		for range 10 {
			clear(dst.b)
			b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 5})
			a := r.host().node(shape{})
			a.dest = a.insert(b.name)
			a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg()})
			b.ok(5)
			r.has(dst, 1, 0)
			r.must(a.ep.Close())
		}
		b.silent()
	}},
}

// comeBack replaces the peer ten times, each under the name of the first if the provider gives
// names again, else under one of its own.
func comeBack(r *rig) {
	a := r.host().node(shape{})
	b := r.host().node(shape{})
	src, name := r.patterned(64, 1), b.name
	for round := range uint64(10) {
		dst := r.alloc(64)
		a.dest = a.insert(b.name)
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 7})
		r.untilSent(a, fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: round})
		b.ok(7)
		r.has(dst, 1, 0)
		r.must(b.ep.Close())
		b = r.named(name)
	}
}

// untilSent submits op until it succeeds: one that finds the connection of the peer that was may
// fail.
func (r *rig) untilSent(n *node, op fabric.Op) {
	r.Helper()
	for r.ctx.Err() == nil {
		n.submit(op)
		if e := n.read(); e.Err == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	r.Fatal("the peer is not reached")
}

// named makes a node with this name, or with another if the provider refuses.
func (r *rig) named(name fabric.Addr) *node {
	r.Helper()
	h := r.host()
	in := r.info.Clone()
	in.Src = name
	cq, av := h.cq(64), h.av(4)
	ep, err := h.dom.Endpoint(in)
	if err != nil {
		r.Logf("an endpoint named %s: %v", name, err)
		return h.node(shape{})
	}
	n := &node{host: h, ep: ep, cq: cq, av: av}
	r.Cleanup(func() { r.closed(ep) })
	r.must(ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false))
	r.must(ep.BindAV(av))
	if err := ep.Enable(); err != nil {
		r.Logf("enable an endpoint named %s: %v", name, err)
		return h.node(shape{})
	}
	n.name, err = ep.Name()
	r.must(err)
	if n.name != name {
		r.Errorf("an endpoint at %s has the name %s", name, n.name)
	}
	return n
}
