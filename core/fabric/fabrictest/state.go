// SPDX-License-Identifier: MIT

package fabrictest

import "mori/core/fabric"

// dataKinds are the kinds of ops that have a peer.
var dataKinds = []fabric.OpKind{fabric.OpSend, fabric.OpWrite, fabric.OpRead}

var stateCases = []testCase{
	{"an idle endpoint is configured and nothing else", idleEndpoint},
	{"an enabled endpoint is not configured any more", func(r *rig) {
		n := r.host().node(shape{})
		r.want("bind", n.ep.BindCQ(n.cq, fabric.DirRecv, false), fabric.ErrOpBadState)
		r.want("bind events", n.ep.BindEQ(n.host.eq()), fabric.ErrOpBadState)
		r.want("bind a counter", n.ep.BindCounter(n.counter(), fabric.CountAll), fabric.ErrOpBadState)
		r.want("enable", n.ep.Enable(), fabric.ErrOpBadState)
	}},
	{"receives that are posted before there is a peer", func(r *rig) {
		a, b := r.host().node(shape{}), r.host().node(shape{})
		src, dst := r.patterned(100, 1), r.alloc(100)
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 7})
		r.join(a, b)
		a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg()})
		b.ok(7)
		r.has(dst, 1, 0)
	}},
	{"receives of an endpoint that never has a peer end with it", func(r *rig) {
		n := r.host().node(shape{})
		n.submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.alloc(8).seg(), Ctx: 7})
		r.must(n.ep.Close())
		if e := n.read(); e.Ctx != 7 || e.Err != fabric.ErrCanceled {
			r.Errorf("a receive of a closed endpoint: %v", &e)
		}
	}},
	{"invalid ops are refused, the ones before them accepted", badOps},
	{"a key can be used once", keyOnce},
	{"an invalid key is not imported", func(r *rig) {
		h := r.host()
		for _, raw := range [][]byte{nil, {1, 2, 3}, make([]byte, 4096)} {
			if _, err := h.dom.Import(raw); err == nil {
				r.Errorf("imported %d bytes of nothing", len(raw))
			}
		}
	}},
}

var stateMsgCases = []testCase{
	{"an endpoint without a peer accepts only receives", func(r *rig) {
		n := r.host().node(shape{})
		r.want("shutdown", n.cn.Shutdown(), fabric.ErrNotConn)
		for _, kind := range dataKinds {
			_, err := n.ep.Submit([]fabric.Op{{Kind: kind}})
			r.want(kind.String(), err, fabric.ErrNotConn)
		}
	}},
	{"an endpoint connects once", func(r *rig) {
		a, b := r.pair(shape{})
		_, err := a.cn.Connect(r.ctx, b.host.listen().Addr(), nil)
		r.want("second connect", err, fabric.ErrIsConn)
		r.must(a.cn.Shutdown())
		_, err = a.cn.Connect(r.ctx, b.host.listen().Addr(), nil)
		r.want("connect after shutdown", err, fabric.ErrIsConn)
	}},
	{"an idle endpoint does not connect", func(r *rig) {
		_, err := r.host().idle().cn.Connect(r.ctx, r.host().listen().Addr(), nil)
		r.want("connect", err, fabric.ErrOpBadState)
	}},
	{"an endpoint that connects has no name and no address vector", func(r *rig) {
		h := r.host()
		av, n := h.av(1), h.idle()
		r.want("bind", n.ep.BindAV(av), fabric.ErrInvalid)
		_, err := h.node(shape{}).ep.Name()
		r.want("name", err, fabric.ErrNoSys)
	}},
}

var stateRDMCases = []testCase{
	{"a name needs an enabled endpoint", func(r *rig) {
		h := r.host()
		cq, av := h.cq(16), h.av(1)
		n := h.idle()
		_, err := n.ep.Name()
		r.want("idle", err, fabric.ErrOpBadState)
		r.must(n.ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false))
		r.want("without an address vector", n.ep.Enable(), fabric.ErrNoAV)
		r.must(n.ep.BindAV(av))
		if err := n.ep.BindAV(av); err == nil {
			r.Error("a second address vector was bound")
		}
		n.enable()
		if n.name == "" {
			r.Error("an endpoint without a name")
		}
		if again, err := n.ep.Name(); again != n.name || err != nil {
			r.Errorf("the name was %q and is %q, %v", n.name, again, err)
		}
		r.want("bind to an enabled endpoint", n.ep.BindAV(av), fabric.ErrOpBadState)
	}},
	{"two endpoints have two names", func(r *rig) {
		h := r.host()
		if a, b := h.node(shape{}), h.node(shape{}); a.name == b.name {
			r.Errorf("%q twice", a.name)
		}
	}},
	{"an event queue is taken and stays empty", func(r *rig) {
		h, b := r.host(), r.host().node(shape{})
		eq := h.eq()
		a := h.node(shape{bind: func(n *node) { n.must(n.ep.BindEQ(eq)) }})
		r.join(a, b)
		stillWorks(r, a, b)
		_, err := eq.Read()
		r.want("event", err, fabric.ErrAgain)
	}},
}

func idleEndpoint(r *rig) {
	h := r.host()
	cq := h.cq(16)
	n := h.idle()
	for _, kind := range append([]fabric.OpKind{fabric.OpRecv}, dataKinds...) {
		_, err := n.ep.Submit([]fabric.Op{{Kind: kind}})
		r.want(kind.String(), err, fabric.ErrOpBadState)
	}
	r.want("enable without queues", n.ep.Enable(), fabric.ErrNoCQ)
	r.must(n.ep.BindCQ(cq, fabric.DirTransmit, false))
	r.want("enable with half of them", n.ep.Enable(), fabric.ErrNoCQ)
	if err := n.ep.BindCQ(cq, fabric.DirTransmit, false); err == nil {
		r.Error("a direction was bound twice")
	}
	if err := n.ep.BindCQ(nil, fabric.DirRecv, false); err == nil {
		r.Error("no queue was bound")
	}
	r.must(n.ep.BindCQ(cq, fabric.DirRecv, false))
	if r.rdm() {
		r.want("enable without addresses", n.ep.Enable(), fabric.ErrNoAV)
		return
	}
	r.must(n.ep.Enable())
}

func badOps(r *rig) {
	a, b := r.pair(shape{})
	buf, dst := r.patterned(4096, 1), r.alloc(4096)
	to := a.imports(b.reg(dst, bothRights).Raw())
	seg := buf.at(0, 64).seg()
	lim := r.info.Limits
	for i, c := range []struct {
		name string
		op   fabric.Op
		want fabric.Errno
	}{
		{"no kind", fabric.Op{}, fabric.ErrInvalid},
		{"the kind of a completion", fabric.Op{Kind: fabric.OpRemoteWrite}, fabric.ErrInvalid},
		{"unknown flag", fabric.Op{Kind: fabric.OpSend, Flags: 1 << 15}, fabric.ErrBadFlags},
		{"inject a read", fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpInject}, fabric.ErrBadFlags},
		{"more local than remote bytes", fabric.Op{Kind: fabric.OpWrite, Seg: seg, RSeg: to.at(0, 63)}, fabric.ErrInvalid},
		{"more remote than local bytes", fabric.Op{Kind: fabric.OpRead, Seg: seg, RSeg: to.at(0, 65)}, fabric.ErrInvalid},
		{"inject too much", fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpInject, Seg: fabric.Seg{Addr: buf.addr, Len: lim.MaxInject + 1}}, fabric.ErrMsgSize},
		{"too much", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: buf.addr, Len: lim.MaxMsg + 1}}, fabric.ErrMsgSize},
		{"too many segments", fabric.Op{Kind: fabric.OpSend, Seg: seg, More: make([]fabric.Seg, lim.SegLimit)}, fabric.ErrInvalid},
		{"too many remote segments", fabric.Op{Kind: fabric.OpWrite, RMore: make([]fabric.RSeg, lim.RSegLimit)}, fabric.ErrInvalid},
		{"no memory", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Len: 8}}, fabric.ErrInvalid},
		{"memory past the end", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: ^uint64(0) - 3, Len: 8}}, fabric.ErrInvalid},
	} {
		if c.name == "too much" && lim.MaxMsg == ^uint64(0) {
			continue // nothing is
		}
		good := fabric.Op{Kind: fabric.OpWrite, Seg: seg, RSeg: to.at(uint64(64*i), 64), Ctx: uint64(i)}
		n, err := a.try(good, c.op, good)
		if n != 1 {
			r.Fatalf("%s: took %d ops of which the second is bad", c.name, n)
		}
		r.want(c.name, err, c.want)
		a.ok(uint64(i))
		r.has(dst.at(64*i, 64), 1, 0)
	}
	a.silent()
	if n, err := a.ep.Submit(nil); n != 0 || err != nil {
		r.Errorf("an empty batch: %d, %v", n, err)
	}
}

func keyOnce(r *rig) {
	if r.info.MRMode&fabric.MRProvKey != 0 {
		r.Skip("the provider chooses keys by itself")
	}
	h := r.host()
	m := r.alloc(64)
	buf, key := fabric.Buffer{Addr: m.addr, Len: 64}, newKey()
	mr, err := h.dom.Reg(buf, bothRights, key)
	r.must(err)
	_, err = h.dom.Reg(buf, bothRights, key)
	r.want("the same id", err, fabric.ErrNoKey)
	r.must(mr.Close())
	r.must(mr.Close())
	again, err := h.dom.Reg(buf, bothRights, key)
	r.must(err)
	r.must(again.Close())
}
