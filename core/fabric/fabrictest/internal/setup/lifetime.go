// SPDX-License-Identifier: MIT

package setup

import (
	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

type closer interface{ Close() error }

// LifetimeCases are the cases of closing objects.
var LifetimeCases = []rig.Case{
	{Name: "it opens and closes in any number", Run: func(r *rig.Rig) {
		for range 3 {
			h := r.Host()
			for range 3 {
				dom, err := h.Fab.Domain(r.Ctx, r.Info)
				r.Must(err)
				r.Must(dom.Close())
			}
		}
	}},
	{Name: "queues of every size open", Run: func(r *rig.Rig) {
		h := r.Host()
		for size := 1; size <= 1024; size *= 2 {
			h.CQ(size)
			q, err := h.Fab.EQ(size)
			r.Must(err)
			r.Must(q.Close())
		}
		for _, size := range []int{0, -1} {
			if _, err := h.Dom.CQ(size); err == nil {
				r.Errorf("a completion queue of size %d", size)
			}
			if _, err := h.Fab.EQ(size); err == nil {
				r.Errorf("an event queue of size %d", size)
			}
		}
	}},
	{Name: "a closed queue returns ErrClosed", Run: closedQueues},
	{Name: "a closed counter returns ErrClosed", Run: closedCounter},
	{Name: "a closed endpoint returns ErrClosed", Run: closedEndpoint},
	{Name: "a closed domain and a closed fabric return ErrClosed", Run: closedParents},
	{Name: "closed objects cannot be bound", Run: boundClosed},
	{Name: "a parent does not close before its children", Run: busyParents},
	{Name: "bound objects do not close before the endpoint", Run: busyBound},
	{Name: "closing again returns nil", Run: func(r *rig.Rig) {
		n := r.Host().Node(rig.Shape{})
		m := r.Alloc(8)
		mr, err := n.Dom.Reg(fabric.Buffer{Addr: m.Addr, Len: 8}, rig.BothRights, rig.NewKey())
		r.Must(err)
		rm, err := n.Dom.Import(mr.Raw())
		r.Must(err)
		for _, c := range []closer{n.EP, n.CQ, rm, mr} {
			for range 3 {
				r.Must(c.Close())
			}
		}
	}},
}

// LifetimeMsgCases are the cases of closing objects, for EPMsg only.
var LifetimeMsgCases = []rig.Case{
	{Name: "a closed event queue returns ErrClosed", Run: func(r *rig.Rig) {
		eq := r.Host().EQ()
		r.Must(eq.Close())
		_, errRead := eq.Read()
		_, errWait := eq.Wait(r.Ctx)
		_, errFD := eq.FD()
		allClosed(r, map[string]error{"read": errRead, "wait": errWait, "descriptor": errFD, "arm": eq.TryWait()})
	}},
	{Name: "an event queue does not close before its endpoints", Run: func(r *rig.Rig) {
		n := r.Host().Node(rig.Shape{})
		r.Want("bound", n.EQ.Close(), fabric.ErrBusy)
	}},
	{Name: "a fabric does not close before its listener", Run: func(r *rig.Rig) {
		fab, err := r.Provider.Open(r.Ctx, r.Info)
		r.Must(err)
		l, err := fab.Listen(r.Ctx, r.Info)
		r.Must(err)
		r.Want("fabric", fab.Close(), fabric.ErrBusy)
		r.Must(l.Close())
		r.Must(fab.Close())
		_, err = fab.Listen(r.Ctx, r.Info)
		r.Want("listen on a closed fabric", err, fabric.ErrClosed)
	}},
	{Name: "a closed endpoint does not connect", Run: func(r *rig.Rig) {
		n, l := r.Host().Node(rig.Shape{}), r.Host().Listen()
		r.Must(n.EP.Close())
		_, err := n.Conn.Connect(r.Ctx, l.Addr(), nil)
		allClosed(r, map[string]error{"connect": err, "shutdown": n.Conn.Shutdown(), "bind events": n.EP.BindEQ(n.Host.EQ())})
	}},
}

// LifetimeRDMCases are the cases of closing objects, for EPRDM only.
var LifetimeRDMCases = []rig.Case{
	{Name: "a closed address vector returns ErrClosed", Run: func(r *rig.Rig) {
		h := r.Host()
		av, name := h.AV(4), h.Node(rig.Shape{}).Address
		number, err := av.Insert(name)
		r.Must(err)
		r.Must(av.Close())
		_, errInsert := av.Insert(name)
		_, errLookup := av.Lookup(number[0])
		allClosed(r, map[string]error{"insert": errInsert, "lookup": errLookup, "remove": av.Remove(number[0])})
	}},
	{Name: "a closed datagram endpoint has no name", Run: func(r *rig.Rig) {
		n := r.Host().Node(rig.Shape{})
		av := n.Host.AV(1)
		r.Must(n.EP.Close())
		_, err := n.EP.Name()
		allClosed(r, map[string]error{"name": err, "bind addresses": n.EP.BindAV(av)})
	}},
}

// allClosed fails the case unless all errors are ErrClosed.
func allClosed(r *rig.Rig, errs map[string]error) {
	r.Helper()
	for what, err := range errs {
		r.Want(what, err, fabric.ErrClosed)
	}
}

func closedQueues(r *rig.Rig) {
	cq := r.Host().CQ(4)
	r.Must(cq.Close())
	_, errRead := cq.Read(make([]fabric.Completion, 1))
	_, errWait := cq.Wait(r.Ctx, make([]fabric.Completion, 1))
	_, errFD := cq.FD()
	allClosed(r, map[string]error{"read": errRead, "wait": errWait, "read error": cq.ReadErr(&fabric.ErrEntry{}), "signal": cq.Signal(),
		"descriptor": errFD, "arm": cq.TryWait()})
}

func closedCounter(r *rig.Rig) {
	c := r.Host().Counter()
	r.Must(c.Close())
	_, errFD := c.FD()
	allClosed(r, map[string]error{"add": c.Add(1), "add errors": c.AddErr(1), "set": c.Set(1), "set errors": c.SetErr(1),
		"wait": c.Wait(r.Ctx, 100), "descriptor": errFD, "arm": c.TryWait()})
}

func closedEndpoint(r *rig.Rig) {
	n := r.Host().Node(rig.Shape{})
	cq, c := n.Host.CQ(1), n.Counter()
	r.Must(n.EP.Close())
	_, errSend := n.EP.Submit([]fabric.Op{{Kind: fabric.OpSend}})
	_, errRecv := n.EP.Submit([]fabric.Op{{Kind: fabric.OpRecv}})
	allClosed(r, map[string]error{"send": errSend, "receive": errRecv, "bind": n.EP.BindCQ(cq, fabric.DirRecv, false),
		"bind a counter": n.EP.BindCounter(c, fabric.CountAll), "enable": n.EP.Enable(), "cancel": n.EP.Cancel(1)})
}

func closedParents(r *rig.Rig) {
	fab, err := r.Provider.Open(r.Ctx, r.Info)
	r.Must(err)
	dom, err := fab.Domain(r.Ctx, r.Info)
	r.Must(err)
	for _, c := range []closer{dom, dom, fab, fab} {
		r.Must(c.Close())
	}
	m := r.Alloc(8)
	raw := r.Host().Reg(m, rig.BothRights).Raw()
	_, errEP := dom.Endpoint(r.Info)
	_, errCQ := dom.CQ(1)
	_, errCounter := dom.Counter(fabric.CountOps)
	_, errAV := dom.AV(1)
	_, errReg := dom.Reg(fabric.Buffer{Addr: m.Addr, Len: 8}, rig.BothRights, rig.NewKey())
	_, errImport := dom.Import(raw)
	_, errDomain := fab.Domain(r.Ctx, r.Info)
	_, errEQ := fab.EQ(1)
	allClosed(r, map[string]error{"endpoint": errEP, "completion queue": errCQ, "counter": errCounter, "address vector": errAV,
		"register": errReg, "import": errImport, "domain": errDomain, "event queue": errEQ})
}

func boundClosed(r *rig.Rig) {
	h := r.Host()
	cq, c, av := h.CQ(4), h.Counter(), h.AV(1)
	for _, o := range []closer{cq, c, av} {
		r.Must(o.Close())
	}
	n := h.Idle()
	errs := map[string]error{"queue": n.EP.BindCQ(cq, fabric.DirRecv, false), "counter": n.EP.BindCounter(c, fabric.CountSend)}
	if r.RDM() {
		errs["address vector"] = n.EP.BindAV(av)
	}
	allClosed(r, errs)
}

func busyParents(r *rig.Rig) {
	h := r.Host()
	fab, err := r.Provider.Open(r.Ctx, r.Info)
	r.Must(err)
	m := r.Alloc(8)
	raw := r.Host().Reg(m, rig.BothRights).Raw()
	child := func(c closer, err error) closer {
		r.Helper()
		r.Must(err)
		return c
	}
	for _, c := range []struct {
		name   string
		parent closer
		open   func() closer
	}{
		{"domain with an endpoint", h.Dom, func() closer { return child(h.Dom.Endpoint(r.Info)) }},
		{"domain with a queue", h.Dom, func() closer { return child(h.Dom.CQ(1)) }},
		{"domain with a counter", h.Dom, func() closer { return child(h.Dom.Counter(fabric.CountOps)) }},
		{"domain with an address vector", h.Dom, func() closer { return child(h.Dom.AV(1)) }},
		{"domain with a region", h.Dom, func() closer {
			return child(h.Dom.Reg(fabric.Buffer{Addr: m.Addr, Len: 8}, rig.BothRights, rig.NewKey()))
		}},
		{"domain with a peer's region", h.Dom, func() closer { return child(h.Dom.Import(raw)) }},
		{"fabric with a domain", fab, func() closer { return child(fab.Domain(r.Ctx, r.Info)) }},
		{"fabric with an event queue", fab, func() closer { return child(fab.EQ(1)) }},
	} {
		kid := c.open()
		r.Want(c.name, c.parent.Close(), fabric.ErrBusy)
		r.Must(kid.Close())
	}
	r.Must(fab.Close())
	r.Must(h.Dom.Close())
}

// busyBound looks at endpoints that are idle, and at such that are enabled.
func busyBound(r *rig.Rig) {
	for _, enabled := range []bool{false, true} {
		h := r.Host()
		tx, rx, c := h.CQ(4), h.CQ(4), h.Counter()
		bound := map[string]closer{"queue of sends": tx, "queue of receives": rx, "counter": c}
		var av fabric.AV
		if r.RDM() {
			av = h.AV(1)
			bound["address vector"] = av
		}
		n := h.Idle()
		r.Must(n.EP.BindCQ(tx, fabric.DirTransmit, false))
		r.Must(n.EP.BindCQ(rx, fabric.DirRecv, false))
		r.Must(n.EP.BindCounter(c, fabric.CountSend))
		if r.RDM() {
			r.Must(n.EP.BindAV(av))
		}
		if enabled {
			n.Enable()
		}
		for what, o := range bound {
			r.Want(what, o.Close(), fabric.ErrBusy)
		}
		r.Must(n.EP.Close())
		for _, o := range bound {
			r.Must(o.Close())
		}
	}
}
