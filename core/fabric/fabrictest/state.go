// SPDX-License-Identifier: MIT

package fabrictest

import "mori/core/fabric"

var stateCases = []testCase{
	{"an idle endpoint is configured and nothing else", idleEndpoint},
	{"an enabled endpoint takes receives only", func(r *rig) {
		n := r.host().node(shape{})
		cq := n.host.cq(1)
		buf := r.alloc(8)
		r.want("bind", n.ep.BindCQ(cq, fabric.DirRecv, false), fabric.ErrOpBadState)
		r.want("bind events", n.ep.BindEQ(n.host.eq()), fabric.ErrOpBadState)
		r.want("enable", n.ep.Enable(), fabric.ErrOpBadState)
		r.want("shutdown", n.cn.Shutdown(), fabric.ErrNotConn)
		for _, kind := range []fabric.OpKind{fabric.OpSend, fabric.OpWrite, fabric.OpRead} {
			_, err := n.ep.Submit([]fabric.Op{{Kind: kind}})
			r.want(kind.String(), err, fabric.ErrNotConn)
		}
		n.submit(fabric.Op{Kind: fabric.OpRecv, Seg: buf.seg(), Ctx: 7})
		r.must(n.ep.Close())
		if e := n.read(); e.Ctx != 7 || e.Err != fabric.ErrCanceled {
			r.Errorf("a receive of a closed endpoint: %v", &e)
		}
	}},
	{"receives may be posted before connect", func(r *rig) {
		ha, hb := r.host(), r.host()
		a, b := ha.node(shape{}), hb.node(shape{})
		src, dst := r.patterned(100, 1), r.alloc(100)
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 7})
		r.join(a, b, hb.listen())
		a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg()})
		b.ok(7)
		r.has(dst, 1, 0)
	}},
	{"an endpoint connects once", func(r *rig) {
		a, b := r.pair(shape{})
		_, err := a.cn.Connect(r.ctx, b.host.listen().Addr(), nil)
		r.want("second connect", err, fabric.ErrIsConn)
		r.must(a.cn.Shutdown())
		_, err = a.cn.Connect(r.ctx, b.host.listen().Addr(), nil)
		r.want("connect after shutdown", err, fabric.ErrIsConn)
	}},
	{"ops that mean nothing are refused and those before them taken", badOps},
	{"everything closed says so", closedObjects},
	{"a parent does not close before its children", busyParents},
	{"a key is taken once", func(r *rig) {
		h := r.host()
		m := r.alloc(64)
		buf := fabric.Buffer{Addr: m.addr, Len: 64}
		key := newKey()
		mr, err := h.dom.Reg(buf, bothRights, key)
		r.must(err)
		_, err = h.dom.Reg(buf, bothRights, key)
		r.want("the same id", err, fabric.ErrNoKey)
		r.must(mr.Close())
		r.must(mr.Close())
		again, err := h.dom.Reg(buf, bothRights, key)
		r.must(err)
		r.must(again.Close())
		for _, raw := range [][]byte{nil, {1, 2, 3}, make([]byte, 4096)} {
			if _, err := h.dom.Import(raw); err == nil {
				r.Errorf("imported %d bytes of nothing", len(raw))
			}
		}
	}},
}

func idleEndpoint(r *rig) {
	h := r.host()
	cq := h.cq(16)
	n := h.idle()
	for _, kind := range []fabric.OpKind{fabric.OpSend, fabric.OpRecv, fabric.OpWrite, fabric.OpRead} {
		_, err := n.ep.Submit([]fabric.Op{{Kind: kind}})
		r.want(kind.String(), err, fabric.ErrOpBadState)
	}
	_, err := n.cn.Connect(r.ctx, r.host().listen().Addr(), nil)
	r.want("connect", err, fabric.ErrOpBadState)
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
	r.must(n.ep.Enable())
	for _, size := range []int{0, -1} {
		if _, err := h.dom.CQ(size); err == nil {
			r.Errorf("a completion queue of size %d", size)
		}
	}
	for size := 1; size <= 1024; size *= 2 {
		h.cq(size)
	}
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
		good := fabric.Op{Kind: fabric.OpWrite, Seg: seg, RSeg: to.at(uint64(64*i), 64), Ctx: uint64(i)}
		n, err := a.ep.Submit([]fabric.Op{good, c.op, good})
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

func closedObjects(r *rig) {
	h := r.host()
	cq, eq, n := h.cq(4), h.eq(), h.node(shape{})
	for range 2 {
		r.must(n.ep.Close())
		r.must(cq.Close())
		r.must(eq.Close())
	}
	_, errSubmit := n.ep.Submit([]fabric.Op{{Kind: fabric.OpSend}})
	_, errRecv := n.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}})
	_, errConnect := n.cn.Connect(r.ctx, "nowhere", nil)
	_, errRead := cq.Read(make([]fabric.Completion, 1))
	_, errWait := cq.Wait(r.ctx, make([]fabric.Completion, 1))
	_, errEvent := eq.Read()
	_, errEventWait := eq.Wait(r.ctx)
	for what, err := range map[string]error{
		"submit": errSubmit, "receive": errRecv, "connect": errConnect, "bind": n.ep.BindCQ(h.cq(1), fabric.DirRecv, false),
		"bind events": n.ep.BindEQ(h.eq()), "enable": n.ep.Enable(), "cancel": n.ep.Cancel(1), "shutdown": n.cn.Shutdown(),
		"read": errRead, "wait": errWait, "read error": cq.ReadErr(&fabric.ErrEntry{}), "signal": cq.Signal(),
		"read event": errEvent, "wait event": errEventWait,
	} {
		r.want(what, err, fabric.ErrClosed)
	}
	r.want("bind a closed queue", h.idle().ep.BindCQ(cq, fabric.DirRecv, false), fabric.ErrClosed)
	closedParents(r)
}

func closedParents(r *rig) {
	fab, err := r.provider.Open(r.ctx, r.info)
	r.must(err)
	dom, err := fab.Domain(r.ctx, r.info)
	r.must(err)
	for _, c := range []interface{ Close() error }{dom, dom, fab, fab} {
		r.must(c.Close())
	}
	m := r.alloc(8)
	_, errEP := dom.Endpoint(r.info)
	_, errCQ := dom.CQ(1)
	_, errReg := dom.Reg(fabric.Buffer{Addr: m.addr, Len: 8}, bothRights, newKey())
	_, errImport := dom.Import(newKey().Raw(8))
	_, errDomain := fab.Domain(r.ctx, r.info)
	_, errListen := fab.Listen(r.ctx, r.info)
	_, errEQ := fab.EQ(1)
	for what, err := range map[string]error{"endpoint": errEP, "completion queue": errCQ, "register": errReg, "import": errImport,
		"domain": errDomain, "listen": errListen, "event queue": errEQ} {
		r.want(what, err, fabric.ErrClosed)
	}
}

func busyParents(r *rig) {
	h := r.host()
	fab, err := r.provider.Open(r.ctx, r.info)
	r.must(err)
	m := r.alloc(8)
	child := func(c interface{ Close() error }, err error) interface{ Close() error } {
		r.Helper()
		r.must(err)
		return c
	}
	for _, c := range []struct {
		name   string
		parent interface{ Close() error }
		open   func() interface{ Close() error }
	}{
		{"domain with an endpoint", h.dom, func() interface{ Close() error } { return child(h.dom.Endpoint(r.info)) }},
		{"domain with a queue", h.dom, func() interface{ Close() error } { return child(h.dom.CQ(1)) }},
		{"domain with a region", h.dom, func() interface{ Close() error } {
			return child(h.dom.Reg(fabric.Buffer{Addr: m.addr, Len: 8}, bothRights, newKey()))
		}},
		{"fabric with a domain", fab, func() interface{ Close() error } { return child(fab.Domain(r.ctx, r.info)) }},
		{"fabric with a listener", fab, func() interface{ Close() error } { return child(fab.Listen(r.ctx, r.info)) }},
		{"fabric with an event queue", fab, func() interface{ Close() error } { return child(fab.EQ(1)) }},
	} {
		kid := c.open()
		r.want(c.name, c.parent.Close(), fabric.ErrBusy)
		r.must(kid.Close())
	}
	r.must(fab.Close())
	n := h.node(shape{})
	r.want("bound completion queue", n.cq.Close(), fabric.ErrBusy)
	r.want("bound event queue", n.eq.Close(), fabric.ErrBusy)
}
