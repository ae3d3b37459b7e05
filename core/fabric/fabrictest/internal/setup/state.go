// SPDX-License-Identifier: MIT

package setup

import (
	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// StateCases are the cases of an endpoint's states and of invalid ops.
var StateCases = []rig.Case{
	{Name: "an idle endpoint is configured and nothing else", Run: idleEndpoint},
	{Name: "an enabled endpoint is not configured any more", Run: func(r *rig.Rig) {
		n := r.Host().Node(rig.Shape{})
		r.Want("bind", n.EP.BindCQ(n.CQ, fabric.DirRecv, false), fabric.ErrOpBadState)
		r.Want("bind events", n.EP.BindEQ(n.Host.EQ()), fabric.ErrOpBadState)
		r.Want("bind a counter", n.EP.BindCounter(n.Counter(), fabric.CountAll), fabric.ErrOpBadState)
		r.Want("enable", n.EP.Enable(), fabric.ErrOpBadState)
	}},
	{Name: "receives that are posted before there is a peer", Run: func(r *rig.Rig) {
		a, b := r.Host().Node(rig.Shape{}), r.Host().Node(rig.Shape{})
		src, dst := r.Patterned(100, 1), r.Alloc(100)
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 7})
		r.Join(a, b)
		a.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg()})
		b.OK(7)
		r.Has(dst, 1, 0)
	}},
	{Name: "receives of an endpoint that never has a peer end with it", Run: func(r *rig.Rig) {
		n := r.Host().Node(rig.Shape{})
		n.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.Alloc(8).Seg(), Ctx: 7})
		r.Must(n.EP.Close())
		if e := n.Read(); e.Ctx != 7 || e.Err != fabric.ErrCanceled {
			r.Errorf("a receive of a closed endpoint: %v", &e)
		}
	}},
	{Name: "invalid ops are refused, the ones before them accepted", Run: badOps},
	{Name: "a key can be used once", Run: keyOnce},
	{Name: "an invalid key is not imported", Run: func(r *rig.Rig) {
		h := r.Host()
		for _, raw := range [][]byte{nil, {1, 2, 3}, make([]byte, 4096)} {
			if _, err := h.Dom.Import(raw); err == nil {
				r.Errorf("imported %d bytes of nothing", len(raw))
			}
		}
	}},
}

// StateMsgCases are the cases of an endpoint's states and of invalid ops, for EPMsg only.
var StateMsgCases = []rig.Case{
	{Name: "an endpoint without a peer accepts only receives", Run: func(r *rig.Rig) {
		n := r.Host().Node(rig.Shape{})
		r.Want("shutdown", n.Conn.Shutdown(), fabric.ErrNotConn)
		for _, kind := range rig.DataKinds {
			_, err := n.EP.Submit([]fabric.Op{{Kind: kind}})
			r.Want(kind.String(), err, fabric.ErrNotConn)
		}
	}},
	{Name: "an endpoint connects once", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		_, err := a.Conn.Connect(r.Ctx, b.Host.Listen().Addr(), nil)
		r.Want("second connect", err, fabric.ErrIsConn)
		r.Must(a.Conn.Shutdown())
		_, err = a.Conn.Connect(r.Ctx, b.Host.Listen().Addr(), nil)
		r.Want("connect after shutdown", err, fabric.ErrIsConn)
	}},
	{Name: "an idle endpoint does not connect", Run: func(r *rig.Rig) {
		_, err := r.Host().Idle().Conn.Connect(r.Ctx, r.Host().Listen().Addr(), nil)
		r.Want("connect", err, fabric.ErrOpBadState)
	}},
	{Name: "an endpoint that connects has no name and no address vector", Run: func(r *rig.Rig) {
		h := r.Host()
		av, n := h.AV(1), h.Idle()
		r.Want("bind", n.EP.BindAV(av), fabric.ErrInvalid)
		_, err := h.Node(rig.Shape{}).EP.Name()
		r.Want("name", err, fabric.ErrNoSys)
	}},
}

// StateRDMCases are the cases of an endpoint's states and of invalid ops, for EPRDM only.
var StateRDMCases = []rig.Case{
	{Name: "a name needs an enabled endpoint", Run: func(r *rig.Rig) {
		h := r.Host()
		cq, av := h.CQ(16), h.AV(1)
		n := h.Idle()
		_, err := n.EP.Name()
		r.Want("idle", err, fabric.ErrOpBadState)
		r.Must(n.EP.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false))
		r.Want("without an address vector", n.EP.Enable(), fabric.ErrNoAV)
		r.Must(n.EP.BindAV(av))
		if err := n.EP.BindAV(av); err == nil {
			r.Error("a second address vector was bound")
		}
		n.Enable()
		if n.Address == "" {
			r.Error("an endpoint without a name")
		}
		if again, err := n.EP.Name(); again != n.Address || err != nil {
			r.Errorf("the name was %q and is %q, %v", n.Address, again, err)
		}
		r.Want("bind to an enabled endpoint", n.EP.BindAV(av), fabric.ErrOpBadState)
	}},
	{Name: "two endpoints have two names", Run: func(r *rig.Rig) {
		h := r.Host()
		if a, b := h.Node(rig.Shape{}), h.Node(rig.Shape{}); a.Address == b.Address {
			r.Errorf("%q twice", a.Address)
		}
	}},
	{Name: "an event queue is taken and stays empty", Run: func(r *rig.Rig) {
		h, b := r.Host(), r.Host().Node(rig.Shape{})
		eq := h.EQ()
		a := h.Node(rig.Shape{Bind: func(n *rig.Node) { n.Must(n.EP.BindEQ(eq)) }})
		r.Join(a, b)
		rig.StillWorks(r, a, b)
		_, err := eq.Read()
		r.Want("event", err, fabric.ErrAgain)
	}},
}

func idleEndpoint(r *rig.Rig) {
	h := r.Host()
	cq := h.CQ(16)
	n := h.Idle()
	for _, kind := range append([]fabric.OpKind{fabric.OpRecv}, rig.DataKinds...) {
		_, err := n.EP.Submit([]fabric.Op{{Kind: kind}})
		r.Want(kind.String(), err, fabric.ErrOpBadState)
	}
	r.Want("enable without queues", n.EP.Enable(), fabric.ErrNoCQ)
	r.Must(n.EP.BindCQ(cq, fabric.DirTransmit, false))
	r.Want("enable with half of them", n.EP.Enable(), fabric.ErrNoCQ)
	if err := n.EP.BindCQ(cq, fabric.DirTransmit, false); err == nil {
		r.Error("a direction was bound twice")
	}
	if err := n.EP.BindCQ(nil, fabric.DirRecv, false); err == nil {
		r.Error("no queue was bound")
	}
	r.Must(n.EP.BindCQ(cq, fabric.DirRecv, false))
	if r.RDM() {
		r.Want("enable without addresses", n.EP.Enable(), fabric.ErrNoAV)
		return
	}
	r.Must(n.EP.Enable())
}

func badOps(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	buf, dst := r.Patterned(4096, 1), r.Alloc(4096)
	to := a.Imports(b.Reg(dst, rig.BothRights).Raw())
	seg := buf.At(0, 64).Seg()
	lim := r.Info.Limits
	for i, c := range []struct {
		name string
		op   fabric.Op
		want fabric.Errno
	}{
		{"no kind", fabric.Op{}, fabric.ErrInvalid},
		{"the kind of a completion", fabric.Op{Kind: fabric.OpRemoteWrite}, fabric.ErrInvalid},
		{"unknown flag", fabric.Op{Kind: fabric.OpSend, Flags: 1 << 15}, fabric.ErrBadFlags},
		{"inject a read", fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpInject}, fabric.ErrBadFlags},
		{"more local than remote bytes", fabric.Op{Kind: fabric.OpWrite, Seg: seg, RSeg: to.At(0, 63)}, fabric.ErrInvalid},
		{"more remote than local bytes", fabric.Op{Kind: fabric.OpRead, Seg: seg, RSeg: to.At(0, 65)}, fabric.ErrInvalid},
		{"inject too much", fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpInject, Seg: fabric.Seg{Addr: buf.Addr, Len: lim.MaxInject + 1}}, fabric.ErrMsgSize},
		{"too much", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: buf.Addr, Len: lim.MaxMsg + 1}}, fabric.ErrMsgSize},
		{"too many segments", fabric.Op{Kind: fabric.OpSend, Seg: seg, More: make([]fabric.Seg, lim.SegLimit)}, fabric.ErrInvalid},
		{"too many remote segments", fabric.Op{Kind: fabric.OpWrite, RMore: make([]fabric.RSeg, lim.RSegLimit)}, fabric.ErrInvalid},
		{"no memory", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Len: 8}}, fabric.ErrInvalid},
		{"memory past the end", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: ^uint64(0) - 3, Len: 8}}, fabric.ErrInvalid},
	} {
		if c.name == "too much" && lim.MaxMsg == ^uint64(0) {
			continue // nothing is
		}
		good := fabric.Op{Kind: fabric.OpWrite, Seg: seg, RSeg: to.At(uint64(64*i), 64), Ctx: uint64(i)}
		n, err := a.Try(good, c.op, good)
		if n != 1 {
			r.Fatalf("%s: took %d ops of which the second is bad", c.name, n)
		}
		r.Want(c.name, err, c.want)
		a.OK(uint64(i))
		r.Has(dst.At(64*i, 64), 1, 0)
	}
	a.Silent()
	if n, err := a.EP.Submit(nil); n != 0 || err != nil {
		r.Errorf("an empty batch: %d, %v", n, err)
	}
}

func keyOnce(r *rig.Rig) {
	if r.Info.MRMode&fabric.MRProvKey != 0 {
		r.Skip("the provider chooses keys by itself")
	}
	h := r.Host()
	m := r.Alloc(64)
	buf, key := fabric.Buffer{Addr: m.Addr, Len: 64}, rig.NewKey()
	mr, err := h.Dom.Reg(buf, rig.BothRights, key)
	r.Must(err)
	_, err = h.Dom.Reg(buf, rig.BothRights, key)
	r.Want("the same id", err, fabric.ErrNoKey)
	r.Must(mr.Close())
	r.Must(mr.Close())
	again, err := h.Dom.Reg(buf, rig.BothRights, key)
	r.Must(err)
	r.Must(again.Close())
}
