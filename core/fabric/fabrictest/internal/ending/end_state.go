// SPDX-License-Identifier: MIT

package ending

import (
	"context"
	"errors"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// EndStateCases close an endpoint in each state, and look at what it leaves behind: nothing.
var EndStateCases = []rig.Case{
	{Name: "an idle endpoint closes", Run: func(r *rig.Rig) { r.Must(r.Host().Idle().EP.Close()) }},
	{Name: "an endpoint with some bindings closes", Run: func(r *rig.Rig) {
		h := r.Host()
		cq, n := h.CQ(4), h.Idle()
		r.Must(n.EP.BindCQ(cq, fabric.DirRecv, false))
		r.Must(n.EP.Close())
		r.Must(cq.Close())
	}},
	{Name: "an endpoint without a peer closes", Run: func(r *rig.Rig) { r.Must(r.Host().Node(rig.Shape{}).EP.Close()) }},
	{Name: "an endpoint closes with receives pending", Run: func(r *rig.Rig) {
		for _, connected := range []bool{false, true} {
			a, b := r.Host().Node(rig.Shape{}), r.Host().Node(rig.Shape{})
			if connected {
				r.Join(a, b)
				rig.StillWorks(r, a, b)
			}
			dst := r.Alloc(100 * 8)
			for i := range 100 {
				a.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.At(8*i, 8).Seg(), Ctx: uint64(i)})
			}
			r.Must(a.EP.Close())
			for range 100 {
				if e := a.Read(); e.Err != fabric.ErrCanceled && e.Err != fabric.ErrConnAborted {
					r.Fatalf("receive %d ended with %v", e.Ctx, &e)
				}
			}
			a.Silent()
		}
	}},
	{Name: "an endpoint closes whose peer closed before", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		rig.StillWorks(r, a, b)
		r.Must(b.EP.Close())
		r.Must(a.EP.Close())
	}},
}

// EndRDMCases are the cases of connections that end, for EPRDM only.
var EndRDMCases = []rig.Case{
	{Name: "an endpoint closes while it looks for a peer", Run: func(r *rig.Rig) {
		a := r.Host().Node(rig.Shape{})
		a.Dest = a.Insert(goneName(r))
		src := r.Patterned(64, 1)
		for i := range uint64(8) {
			a.Submit(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: i})
		}
		r.Must(a.EP.Close())
		if left := rig.Tally(a, 8, 0); left != 0 {
			r.Errorf("%d ops had not ended", left)
		}
	}},
	{Name: "ops to a closed peer end, others continue", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		c := r.Host().Node(rig.Shape{})
		rig.StillWorks(r, a, b)
		toC, dst := a.Insert(c.Address), r.Alloc(64)
		a.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 9})
		r.Must(b.EP.Close())
		src := r.Patterned(64, 1)
		fails(r, a, fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 1})
		a.Dest = toC
		c.Dest = c.Insert(a.Address)
		c.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 2})
		a.OK(9)
		r.Has(dst, 1, 0)
		rig.StillWorks(r, a, c)
	}},
	{Name: "a peer that closes under load ends its ops and no receives", Run: peerClosesUnderLoad},
}

// fails submits op until it fails: one that was on its way when the peer went may have ended well.
func fails(r *rig.Rig, n *rig.Node, op fabric.Op) fabric.ErrEntry {
	r.Helper()
	for r.Ctx.Err() == nil {
		n.Submit(op)
		e := n.Read()
		if e.Ctx != op.Ctx || e.Kind != op.Kind {
			r.Fatalf("%v, op %d, ended as %+v", op.Kind, op.Ctx, e)
		}
		if e.Err != 0 {
			return e
		}
		time.Sleep(time.Millisecond)
	}
	r.Fatalf("%v to a peer that is gone does not fail", op.Kind)
	return fabric.ErrEntry{}
}

// goneName is the name of an endpoint that was.
func goneName(r *rig.Rig) fabric.Addr {
	r.Helper()
	n := r.Host().Node(rig.Shape{})
	r.Must(n.EP.Close())
	return n.Address
}

func peerClosesUnderLoad(r *rig.Rig) {
	for _, size := range []int{64, 2 << 20} {
		a, b := r.Pair(rig.Shape{})
		c := r.Host().Node(rig.Shape{})
		c.Dest = c.Insert(a.Address)
		local := r.Alloc(size)
		to := a.Imports(b.Reg(r.Alloc(size), rig.BothRights).Raw())
		dst, src := r.Alloc(64), r.Patterned(64, 5)
		a.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 1000})
		count := 0
		for ; count < 60; count++ {
			op := fabric.Op{Kind: fabric.OpWrite, Seg: local.Seg(), RSeg: to.At(0, uint64(size)), Ctx: uint64(count)}
			if count%2 == 1 {
				op.Kind = fabric.OpRead
			}
			if k, err := a.Try(op); k == 0 {
				r.Want("submit", err, fabric.ErrAgain)
				break
			}
		}
		r.Must(b.EP.Close())
		if left := rig.Tally(a, count, 20*time.Second); left != 0 {
			r.Fatalf("%d of %d ops of %d bytes did not end", left, count, size)
		}
		c.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 1})
		a.OK(1000)
		r.Has(dst, 5, 0)
	}
}

// EndConnectCases close an endpoint that connects.
var EndConnectCases = []rig.Case{
	{Name: "an endpoint closes while it connects and while it accepts", Run: func(r *rig.Rig) {
		a, hb := r.Host().Node(rig.Shape{}), r.Host()
		b, l := hb.Node(rig.Shape{}), hb.Listen()
		done := make(chan error, 1)
		go func() {
			_, err := a.Conn.Connect(r.Ctx, l.Addr(), nil)
			done <- err
		}()
		req, err := l.Accept(r.Ctx)
		r.Must(err)
		r.Must(a.EP.Close())
		if err := <-done; err == nil {
			r.Error("a closed endpoint is connected")
		}
		ctx, cancel := context.WithTimeout(r.Ctx, 5*time.Second)
		defer cancel()
		_ = b.Conn.Accept(ctx, req, nil) // it may find out later
		r.Must(b.EP.Close())
	}},
	{Name: "an endpoint closes after its shutdown and after its peer's", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		r.Must(a.Conn.Shutdown())
		r.Must(a.EP.Close())
		e := b.Event(fabric.EventShutdown)
		if !errors.Is(e.Err, fabric.ErrShutdown) && !errors.Is(e.Err, fabric.ErrConnReset) {
			r.Errorf("reported as %v", e.Err)
		}
		r.Must(b.EP.Close())
	}},
}
