// SPDX-License-Identifier: MIT

package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"mori/core/fabric"
)

var connectCases = []testCase{
	{"private data of every size reaches the other side", privateData},
	{"private data that is too long is refused whole", longPrivateData},
	{"a rejection carries its data", reject},
	{"nobody listens", func(r *rig) {
		a, hb := r.host().node(shape{}), r.host()
		l := hb.listen()
		addr := l.Addr()
		r.must(l.Close())
		_, err := a.cn.Connect(r.ctx, addr, nil)
		r.want("connect to a closed listener", err, fabric.ErrConnRefused)
	}},
	{"accept ends with its context and with the listener", acceptEnds},
	{"connect ends with its context", func(r *rig) {
		a, l := r.host().node(shape{}), r.host().listen()
		ctx, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := a.cn.Connect(ctx, l.Addr(), nil); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, fabric.ErrTimeout) {
			r.Errorf("nobody answered: %v", err)
		}
	}},
	{"connect ends with its endpoint", func(r *rig) {
		a, l := r.host().node(shape{}), r.host().listen()
		done := make(chan error, 1)
		go func() {
			_, err := a.cn.Connect(r.ctx, l.Addr(), nil)
			done <- err
		}()
		if _, err := l.Accept(r.ctx); err != nil {
			r.Fatal(err)
		}
		r.must(a.ep.Close())
		if err := <-done; err == nil {
			r.Error("a closed endpoint is connected")
		}
	}},
	{"a listener that closes refuses waiting requests", func(r *rig) {
		a, l := r.host().node(shape{}), r.host().listen()
		time.AfterFunc(20*time.Millisecond, func() { _ = l.Close() })
		if _, err := a.cn.Connect(r.ctx, l.Addr(), nil); !errors.Is(err, fabric.ErrConnRefused) && !errors.Is(err, fabric.ErrConnReset) {
			r.Errorf("connect: %v", err)
		}
	}},
	{"two listeners have two addresses", func(r *rig) {
		h := r.host()
		if l, m := h.listen(), h.listen(); l.Addr() == m.Addr() || l.Addr() == "" {
			r.Errorf("%q and %q", l.Addr(), m.Addr())
		}
	}},
	{"both sides get the event and the peer's address", func(r *rig) {
		a, b := r.pair(shape{}) // waits for the events
		if a.cn.Peer() == "" || b.cn.Peer() == "" {
			r.Errorf("peers %q and %q", a.cn.Peer(), b.cn.Peer())
		}
		c := a.host.node(shape{})
		if c.cn.Peer() != "" {
			r.Errorf("a peer before connect: %q", c.cn.Peer())
		}
	}},
	{"one request is answered once", func(r *rig) {
		a, hb := r.host().node(shape{}), r.host()
		b, c, l := hb.node(shape{}), hb.node(shape{}), hb.listen()
		go func() { _, _ = a.cn.Connect(r.ctx, l.Addr(), nil) }()
		req, err := l.Accept(r.ctx)
		r.must(err)
		r.must(b.cn.Accept(r.ctx, req, nil))
		if err := c.cn.Accept(r.ctx, req, nil); err == nil {
			r.Error("accepted twice")
		}
		if err := req.Reject(nil); err == nil {
			r.Error("accepted and rejected")
		}
		a.event(fabric.EventConnected)
	}},
	{"connect again and again", func(r *rig) {
		ha, hb := r.host(), r.host()
		src, dst := r.patterned(64, 1), r.alloc(64)
		to := ha.imports(hb.reg(dst, bothRights).Raw())
		for range 10 {
			a, b := ha.node(shape{}), hb.node(shape{})
			r.join(a, b)
			clear(dst.b)
			a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64)})
			r.has(dst, 1, 0)
			r.must(a.ep.Close())
			r.must(b.ep.Close())
		}
	}},
}

func privateData(r *rig) {
	limit := r.info.Limits.MaxPrivate
	ha, hb := r.host(), r.host()
	l := hb.listen()
	for _, n := range []int{0, 1, limit / 2, limit} {
		there, back := r.patterned(n, uint64(n)).b, r.patterned(n, uint64(n+1)).b
		a, b := ha.node(shape{}), hb.node(shape{})
		done := make(chan error, 1)
		go func() {
			req, err := l.Accept(r.ctx)
			if err == nil && !bytes.Equal(req.Private(), there) {
				r.Errorf("%d bytes arrived as %d: %x", n, len(req.Private()), req.Private())
			}
			if err == nil {
				err = b.cn.Accept(r.ctx, req, back)
			}
			done <- err
		}()
		reply, err := a.cn.Connect(r.ctx, l.Addr(), there)
		r.must(errors.Join(err, <-done))
		if !bytes.Equal(reply, back) {
			r.Errorf("%d bytes came back as %d: %x", n, len(reply), reply)
		}
	}
}

func longPrivateData(r *rig) {
	long := make([]byte, r.info.Limits.MaxPrivate+1)
	a, hb := r.host().node(shape{}), r.host()
	b, l := hb.node(shape{}), hb.listen()
	_, err := a.cn.Connect(r.ctx, l.Addr(), long)
	r.want("connect", err, fabric.ErrTooSmall)
	done := make(chan error, 1)
	go func() {
		_, err := a.cn.Connect(r.ctx, l.Addr(), nil)
		done <- err
	}()
	req, err := l.Accept(r.ctx)
	r.must(err)
	r.want("accept", b.cn.Accept(r.ctx, req, long), fabric.ErrTooSmall)
	r.want("reject", req.Reject(long), fabric.ErrTooSmall)
	r.must(b.cn.Accept(r.ctx, req, nil)) // still there
	r.must(<-done)
}

func reject(r *rig) {
	ha, hb := r.host(), r.host()
	l := hb.listen()
	for _, n := range []int{0, 1, r.info.Limits.MaxPrivate} {
		why := r.patterned(n, 5).b
		done := make(chan error, 1)
		go func() {
			req, err := l.Accept(r.ctx)
			if err == nil {
				err = req.Reject(why)
			}
			done <- err
		}()
		_, err := ha.node(shape{}).cn.Connect(r.ctx, l.Addr(), nil)
		r.want("connect", err, fabric.ErrConnRefused)
		var rejected *fabric.RejectError
		if !errors.As(err, &rejected) || !bytes.Equal(rejected.Data, why) {
			r.Errorf("%d bytes of reason arrived as %+v", n, rejected)
		}
		r.must(<-done)
	}
}

func acceptEnds(r *rig) {
	l := r.host().listen()
	ctx, cancel := context.WithCancel(r.ctx)
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := l.Accept(ctx)
	r.want("canceled", err, context.Canceled)
	done := make(chan error, 1)
	go func() {
		_, err := l.Accept(r.ctx)
		done <- err
	}()
	time.Sleep(5 * time.Millisecond)
	r.must(l.Close())
	r.want("closed under it", <-done, fabric.ErrClosed)
	_, err = l.Accept(r.ctx)
	r.want("closed before it", err, fabric.ErrClosed)
	r.must(l.Close())
}
