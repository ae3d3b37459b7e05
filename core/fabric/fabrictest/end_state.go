// SPDX-License-Identifier: MIT

package fabrictest

import (
	"context"
	"errors"
	"time"

	"mori/core/fabric"
)

// endStateCases close an endpoint in each state, and look at what it leaves behind: nothing.
var endStateCases = []testCase{
	{"an idle endpoint closes", func(r *rig) { r.must(r.host().idle().ep.Close()) }},
	{"an endpoint with some bindings closes", func(r *rig) {
		h := r.host()
		cq, n := h.cq(4), h.idle()
		r.must(n.ep.BindCQ(cq, fabric.DirRecv, false))
		r.must(n.ep.Close())
		r.must(cq.Close())
	}},
	{"an endpoint without a peer closes", func(r *rig) { r.must(r.host().node(shape{}).ep.Close()) }},
	{"an endpoint closes with receives pending", func(r *rig) {
		for _, connected := range []bool{false, true} {
			a, b := r.host().node(shape{}), r.host().node(shape{})
			if connected {
				r.join(a, b)
				stillWorks(r, a, b)
			}
			dst := r.alloc(100 * 8)
			for i := range 100 {
				a.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.at(8*i, 8).seg(), Ctx: uint64(i)})
			}
			r.must(a.ep.Close())
			for range 100 {
				if e := a.read(); e.Err != fabric.ErrCanceled && e.Err != fabric.ErrConnAborted {
					r.Fatalf("receive %d ended with %v", e.Ctx, &e)
				}
			}
			a.silent()
		}
	}},
	{"an endpoint closes whose peer closed before", func(r *rig) {
		a, b := r.pair(shape{})
		stillWorks(r, a, b)
		r.must(b.ep.Close())
		r.must(a.ep.Close())
	}},
}

var endRDMCases = []testCase{
	{"an endpoint closes while it looks for a peer", func(r *rig) {
		a := r.host().node(shape{})
		a.dest = a.insert(r.goneName())
		src := r.patterned(64, 1)
		for i := range uint64(8) {
			a.submit(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: i})
		}
		r.must(a.ep.Close())
		if left := tally(a, 8, 0); left != 0 {
			r.Errorf("%d ops had not ended", left)
		}
	}},
	{"ops to a closed peer end, others continue", func(r *rig) {
		a, b := r.pair(shape{})
		c := r.host().node(shape{})
		stillWorks(r, a, b)
		toC, dst := a.insert(c.name), r.alloc(64)
		a.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 9})
		r.must(b.ep.Close())
		src := r.patterned(64, 1)
		r.fails(a, fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 1})
		a.dest = toC
		c.dest = c.insert(a.name)
		c.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 2})
		a.ok(9)
		r.has(dst, 1, 0)
		stillWorks(r, a, c)
	}},
	{"a peer that closes under load ends its ops and no receives", peerClosesUnderLoad},
}

// fails submits op until it fails: one that was on its way when the peer went may have ended well.
func (r *rig) fails(n *node, op fabric.Op) fabric.ErrEntry {
	r.Helper()
	for r.ctx.Err() == nil {
		n.submit(op)
		e := n.read()
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
func (r *rig) goneName() fabric.Addr {
	r.Helper()
	n := r.host().node(shape{})
	r.must(n.ep.Close())
	return n.name
}

func peerClosesUnderLoad(r *rig) {
	for _, size := range []int{64, 2 << 20} {
		a, b := r.pair(shape{})
		c := r.host().node(shape{})
		c.dest = c.insert(a.name)
		local := r.alloc(size)
		to := a.imports(b.reg(r.alloc(size), bothRights).Raw())
		dst, src := r.alloc(64), r.patterned(64, 5)
		a.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 1000})
		count := 0
		for ; count < 60; count++ {
			op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(), RSeg: to.at(0, uint64(size)), Ctx: uint64(count)}
			if count%2 == 1 {
				op.Kind = fabric.OpRead
			}
			if k, err := a.try(op); k == 0 {
				r.want("submit", err, fabric.ErrAgain)
				break
			}
		}
		r.must(b.ep.Close())
		if left := tally(a, count, 20*time.Second); left != 0 {
			r.Fatalf("%d of %d ops of %d bytes did not end", left, count, size)
		}
		c.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 1})
		a.ok(1000)
		r.has(dst, 5, 0)
	}
}

// endConnectCases close an endpoint that connects.
var endConnectCases = []testCase{
	{"an endpoint closes while it connects and while it accepts", func(r *rig) {
		a, hb := r.host().node(shape{}), r.host()
		b, l := hb.node(shape{}), hb.listen()
		done := make(chan error, 1)
		go func() {
			_, err := a.cn.Connect(r.ctx, l.Addr(), nil)
			done <- err
		}()
		req, err := l.Accept(r.ctx)
		r.must(err)
		r.must(a.ep.Close())
		if err := <-done; err == nil {
			r.Error("a closed endpoint is connected")
		}
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		defer cancel()
		_ = b.cn.Accept(ctx, req, nil) // it may find out later
		r.must(b.ep.Close())
	}},
	{"an endpoint closes after its shutdown and after its peer's", func(r *rig) {
		a, b := r.pair(shape{})
		r.must(a.cn.Shutdown())
		r.must(a.ep.Close())
		e := b.event(fabric.EventShutdown)
		if !errors.Is(e.Err, fabric.ErrShutdown) && !errors.Is(e.Err, fabric.ErrConnReset) {
			r.Errorf("told as %v", e.Err)
		}
		r.must(b.ep.Close())
	}},
}
