// SPDX-License-Identifier: MIT

package ending

import (
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// DatagramEndCases are the cases of datagrams to peers that end.
var DatagramEndCases = []rig.Case{
	{Name: "a peer that closes and returns is reachable again", Run: comeBack},
	{Name: "an unused address fails its own ops only", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		gone := a.Insert(goneName(r))
		src, far := r.Patterned(64, 1), r.Alloc(64)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		for round := range uint64(3) {
			a.Submit(fabric.Op{Kind: fabric.OpSend, Dest: gone, Seg: src.Seg(), Ctx: 100 + round})
			for i := range uint64(10) {
				a.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 64), Ctx: i})
			}
			for range 11 {
				e := a.Read()
				if lost := e.Ctx == 100+round; lost != (e.Err != 0) {
					r.Fatalf("round %d: op %d: %v", round, e.Ctx, &e)
				}
			}
			r.Has(far, 1, 0)
		}
		a.Silent()
	}},
	{Name: "a failed op frees its slot", Run: func(r *rig.Rig) {
		a := r.Host().Node(rig.Shape{CQSize: 8})
		a.Dest = a.Insert(goneName(r))
		src := r.Patterned(64, 1)
		for i := range uint64(100) {
			a.Submit(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: i})
			if e := a.Read(); e.Err == 0 || e.Ctx != i || e.Kind != fabric.OpSend {
				r.Fatalf("op %d: %+v", i, e)
			}
		}
		a.Silent()
	}},
	{Name: "the receiver outlives its senders", Run: func(r *rig.Rig) {
		b := r.Host().Node(rig.Shape{})
		src, dst := r.Patterned(64, 1), r.Alloc(64)
		for range 10 {
			clear(dst.B)
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 5})
			a := r.Host().Node(rig.Shape{})
			a.Dest = a.Insert(b.Address)
			a.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg()})
			b.OK(5)
			r.Has(dst, 1, 0)
			r.Must(a.EP.Close())
		}
		b.Silent()
	}},
}

// comeBack replaces the peer ten times, each under the name of the first if the provider gives
// names again, else under one of its own.
func comeBack(r *rig.Rig) {
	a := r.Host().Node(rig.Shape{})
	b := r.Host().Node(rig.Shape{})
	src, name := r.Patterned(64, 1), b.Address
	for round := range uint64(10) {
		dst := r.Alloc(64)
		a.Dest = a.Insert(b.Address)
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 7})
		untilSent(r, a, fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: round})
		b.OK(7)
		r.Has(dst, 1, 0)
		r.Must(b.EP.Close())
		b = named(r, name)
	}
}

// untilSent submits op until it succeeds: one that finds the connection of the peer that was may
// fail.
func untilSent(r *rig.Rig, n *rig.Node, op fabric.Op) {
	r.Helper()
	for r.Ctx.Err() == nil {
		n.Submit(op)
		if e := n.Read(); e.Err == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	r.Fatal("the peer is not reached")
}

// named makes a node with this name, or with another if the provider refuses.
func named(r *rig.Rig, name fabric.Addr) *rig.Node {
	r.Helper()
	h := r.Host()
	in := r.Info.Clone()
	in.Src = name
	cq, av := h.CQ(64), h.AV(4)
	ep, err := h.Dom.Endpoint(in)
	if err != nil {
		r.Logf("an endpoint named %s: %v", name, err)
		return h.Node(rig.Shape{})
	}
	n := &rig.Node{Host: h, EP: ep, CQ: cq, AV: av}
	r.Cleanup(func() { r.Closed(ep) })
	r.Must(ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false))
	r.Must(ep.BindAV(av))
	if err := ep.Enable(); err != nil {
		r.Logf("enable an endpoint named %s: %v", name, err)
		return h.Node(rig.Shape{})
	}
	n.Address, err = ep.Name()
	r.Must(err)
	if n.Address != name {
		r.Errorf("an endpoint at %s has the name %s", name, n.Address)
	}
	return n
}
