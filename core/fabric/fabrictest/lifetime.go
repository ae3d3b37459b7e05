// SPDX-License-Identifier: MIT

package fabrictest

import "mori/core/fabric"

type closer interface{ Close() error }

var lifetimeCases = []testCase{
	{"it opens and closes in any number", func(r *rig) {
		for range 3 {
			h := r.host()
			for range 3 {
				dom, err := h.fab.Domain(r.ctx, r.info)
				r.must(err)
				r.must(dom.Close())
			}
		}
	}},
	{"queues of every size open", func(r *rig) {
		h := r.host()
		for size := 1; size <= 1024; size *= 2 {
			h.cq(size)
			q, err := h.fab.EQ(size)
			r.must(err)
			r.must(q.Close())
		}
		for _, size := range []int{0, -1} {
			if _, err := h.dom.CQ(size); err == nil {
				r.Errorf("a completion queue of size %d", size)
			}
			if _, err := h.fab.EQ(size); err == nil {
				r.Errorf("an event queue of size %d", size)
			}
		}
	}},
	{"a closed queue returns ErrClosed", closedQueues},
	{"a closed counter returns ErrClosed", closedCounter},
	{"a closed endpoint returns ErrClosed", closedEndpoint},
	{"a closed domain and a closed fabric return ErrClosed", closedParents},
	{"closed objects cannot be bound", boundClosed},
	{"a parent does not close before its children", busyParents},
	{"bound objects do not close before the endpoint", busyBound},
	{"closing again returns nil", func(r *rig) {
		n := r.host().node(shape{})
		m := r.alloc(8)
		mr, err := n.dom.Reg(fabric.Buffer{Addr: m.addr, Len: 8}, bothRights, newKey())
		r.must(err)
		rm, err := n.dom.Import(mr.Raw())
		r.must(err)
		for _, c := range []closer{n.ep, n.cq, rm, mr} {
			for range 3 {
				r.must(c.Close())
			}
		}
	}},
}

var lifetimeMsgCases = []testCase{
	{"a closed event queue returns ErrClosed", func(r *rig) {
		eq := r.host().eq()
		r.must(eq.Close())
		_, errRead := eq.Read()
		_, errWait := eq.Wait(r.ctx)
		_, errFD := eq.FD()
		r.allClosed(map[string]error{"read": errRead, "wait": errWait, "descriptor": errFD, "arm": eq.TryWait()})
	}},
	{"an event queue does not close before its endpoints", func(r *rig) {
		n := r.host().node(shape{})
		r.want("bound", n.eq.Close(), fabric.ErrBusy)
	}},
	{"a fabric does not close before its listener", func(r *rig) {
		fab, err := r.provider.Open(r.ctx, r.info)
		r.must(err)
		l, err := fab.Listen(r.ctx, r.info)
		r.must(err)
		r.want("fabric", fab.Close(), fabric.ErrBusy)
		r.must(l.Close())
		r.must(fab.Close())
		_, err = fab.Listen(r.ctx, r.info)
		r.want("listen on a closed fabric", err, fabric.ErrClosed)
	}},
	{"a closed endpoint does not connect", func(r *rig) {
		n, l := r.host().node(shape{}), r.host().listen()
		r.must(n.ep.Close())
		_, err := n.cn.Connect(r.ctx, l.Addr(), nil)
		r.allClosed(map[string]error{"connect": err, "shutdown": n.cn.Shutdown(), "bind events": n.ep.BindEQ(n.host.eq())})
	}},
}

var lifetimeRDMCases = []testCase{
	{"a closed address vector returns ErrClosed", func(r *rig) {
		h := r.host()
		av, name := h.av(4), h.node(shape{}).name
		number, err := av.Insert(name)
		r.must(err)
		r.must(av.Close())
		_, errInsert := av.Insert(name)
		_, errLookup := av.Lookup(number[0])
		r.allClosed(map[string]error{"insert": errInsert, "lookup": errLookup, "remove": av.Remove(number[0])})
	}},
	{"a closed datagram endpoint has no name", func(r *rig) {
		n := r.host().node(shape{})
		av := n.host.av(1)
		r.must(n.ep.Close())
		_, err := n.ep.Name()
		r.allClosed(map[string]error{"name": err, "bind addresses": n.ep.BindAV(av)})
	}},
}

// allClosed fails the case unless all errors are ErrClosed.
func (r *rig) allClosed(errs map[string]error) {
	r.Helper()
	for what, err := range errs {
		r.want(what, err, fabric.ErrClosed)
	}
}

func closedQueues(r *rig) {
	cq := r.host().cq(4)
	r.must(cq.Close())
	_, errRead := cq.Read(make([]fabric.Completion, 1))
	_, errWait := cq.Wait(r.ctx, make([]fabric.Completion, 1))
	_, errFD := cq.FD()
	r.allClosed(map[string]error{"read": errRead, "wait": errWait, "read error": cq.ReadErr(&fabric.ErrEntry{}), "signal": cq.Signal(),
		"descriptor": errFD, "arm": cq.TryWait()})
}

func closedCounter(r *rig) {
	c := r.host().counter()
	r.must(c.Close())
	_, errFD := c.FD()
	r.allClosed(map[string]error{"add": c.Add(1), "add errors": c.AddErr(1), "set": c.Set(1), "set errors": c.SetErr(1),
		"wait": c.Wait(r.ctx, 100), "descriptor": errFD, "arm": c.TryWait()})
}

func closedEndpoint(r *rig) {
	n := r.host().node(shape{})
	cq, c := n.host.cq(1), n.counter()
	r.must(n.ep.Close())
	_, errSend := n.ep.Submit([]fabric.Op{{Kind: fabric.OpSend}})
	_, errRecv := n.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}})
	r.allClosed(map[string]error{"send": errSend, "receive": errRecv, "bind": n.ep.BindCQ(cq, fabric.DirRecv, false),
		"bind a counter": n.ep.BindCounter(c, fabric.CountAll), "enable": n.ep.Enable(), "cancel": n.ep.Cancel(1)})
}

func closedParents(r *rig) {
	fab, err := r.provider.Open(r.ctx, r.info)
	r.must(err)
	dom, err := fab.Domain(r.ctx, r.info)
	r.must(err)
	for _, c := range []closer{dom, dom, fab, fab} {
		r.must(c.Close())
	}
	m := r.alloc(8)
	raw := r.host().reg(m, bothRights).Raw()
	_, errEP := dom.Endpoint(r.info)
	_, errCQ := dom.CQ(1)
	_, errCounter := dom.Counter(fabric.CountOps)
	_, errAV := dom.AV(1)
	_, errReg := dom.Reg(fabric.Buffer{Addr: m.addr, Len: 8}, bothRights, newKey())
	_, errImport := dom.Import(raw)
	_, errDomain := fab.Domain(r.ctx, r.info)
	_, errEQ := fab.EQ(1)
	r.allClosed(map[string]error{"endpoint": errEP, "completion queue": errCQ, "counter": errCounter, "address vector": errAV,
		"register": errReg, "import": errImport, "domain": errDomain, "event queue": errEQ})
}

func boundClosed(r *rig) {
	h := r.host()
	cq, c, av := h.cq(4), h.counter(), h.av(1)
	for _, o := range []closer{cq, c, av} {
		r.must(o.Close())
	}
	n := h.idle()
	errs := map[string]error{"queue": n.ep.BindCQ(cq, fabric.DirRecv, false), "counter": n.ep.BindCounter(c, fabric.CountSend)}
	if r.rdm() {
		errs["address vector"] = n.ep.BindAV(av)
	}
	r.allClosed(errs)
}

func busyParents(r *rig) {
	h := r.host()
	fab, err := r.provider.Open(r.ctx, r.info)
	r.must(err)
	m := r.alloc(8)
	raw := r.host().reg(m, bothRights).Raw()
	child := func(c closer, err error) closer {
		r.Helper()
		r.must(err)
		return c
	}
	for _, c := range []struct {
		name   string
		parent closer
		open   func() closer
	}{
		{"domain with an endpoint", h.dom, func() closer { return child(h.dom.Endpoint(r.info)) }},
		{"domain with a queue", h.dom, func() closer { return child(h.dom.CQ(1)) }},
		{"domain with a counter", h.dom, func() closer { return child(h.dom.Counter(fabric.CountOps)) }},
		{"domain with an address vector", h.dom, func() closer { return child(h.dom.AV(1)) }},
		{"domain with a region", h.dom, func() closer {
			return child(h.dom.Reg(fabric.Buffer{Addr: m.addr, Len: 8}, bothRights, newKey()))
		}},
		{"domain with a peer's region", h.dom, func() closer { return child(h.dom.Import(raw)) }},
		{"fabric with a domain", fab, func() closer { return child(fab.Domain(r.ctx, r.info)) }},
		{"fabric with an event queue", fab, func() closer { return child(fab.EQ(1)) }},
	} {
		kid := c.open()
		r.want(c.name, c.parent.Close(), fabric.ErrBusy)
		r.must(kid.Close())
	}
	r.must(fab.Close())
	r.must(h.dom.Close())
}

// busyBound looks at endpoints that are idle, and at such that are enabled.
func busyBound(r *rig) {
	for _, enabled := range []bool{false, true} {
		h := r.host()
		tx, rx, c := h.cq(4), h.cq(4), h.counter()
		bound := map[string]closer{"queue of sends": tx, "queue of receives": rx, "counter": c}
		var av fabric.AV
		if r.rdm() {
			av = h.av(1)
			bound["address vector"] = av
		}
		n := h.idle()
		r.must(n.ep.BindCQ(tx, fabric.DirTransmit, false))
		r.must(n.ep.BindCQ(rx, fabric.DirRecv, false))
		r.must(n.ep.BindCounter(c, fabric.CountSend))
		if r.rdm() {
			r.must(n.ep.BindAV(av))
		}
		if enabled {
			n.enable()
		}
		for what, o := range bound {
			r.want(what, o.Close(), fabric.ErrBusy)
		}
		r.must(n.ep.Close())
		for _, o := range bound {
			r.must(o.Close())
		}
	}
}
