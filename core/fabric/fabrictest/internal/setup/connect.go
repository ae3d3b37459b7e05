// SPDX-License-Identifier: MIT

package setup

import (
	"bytes"
	"context"
	"errors"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// ConnectCases are the cases of connecting.
var ConnectCases = []rig.Case{
	{Name: "private data of every size reaches the other side", Run: privateData},
	{Name: "private data that is too long is refused whole", Run: longPrivateData},
	{Name: "a rejection carries its data", Run: reject},
	{Name: "nobody listens", Run: func(r *rig.Rig) {
		a, hb := r.Host().Node(rig.Shape{}), r.Host()
		l := hb.Listen()
		addr := l.Addr()
		r.Must(l.Close())
		_, err := a.Conn.Connect(r.Ctx, addr, nil)
		r.Want("connect to a closed listener", err, fabric.ErrConnRefused)
	}},
	{Name: "accept ends with its context and with the listener", Run: acceptEnds},
	{Name: "connect ends with its context", Run: func(r *rig.Rig) {
		a, l := r.Host().Node(rig.Shape{}), r.Host().Listen()
		ctx, cancel := context.WithTimeout(r.Ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := a.Conn.Connect(ctx, l.Addr(), nil); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, fabric.ErrTimeout) {
			r.Errorf("nobody answered: %v", err)
		}
	}},
	{Name: "connect ends with its endpoint", Run: func(r *rig.Rig) {
		a, l := r.Host().Node(rig.Shape{}), r.Host().Listen()
		done := make(chan error, 1)
		go func() {
			_, err := a.Conn.Connect(r.Ctx, l.Addr(), nil)
			done <- err
		}()
		if _, err := l.Accept(r.Ctx); err != nil {
			r.Fatal(err)
		}
		r.Must(a.EP.Close())
		if err := <-done; err == nil {
			r.Error("a closed endpoint is connected")
		}
	}},
	{Name: "a listener that closes refuses waiting requests", Run: func(r *rig.Rig) {
		a, l := r.Host().Node(rig.Shape{}), r.Host().Listen()
		time.AfterFunc(20*time.Millisecond, func() { _ = l.Close() })
		if _, err := a.Conn.Connect(r.Ctx, l.Addr(), nil); !errors.Is(err, fabric.ErrConnRefused) && !errors.Is(err, fabric.ErrConnReset) {
			r.Errorf("connect: %v", err)
		}
	}},
	{Name: "two listeners have two addresses", Run: func(r *rig.Rig) {
		h := r.Host()
		if l, m := h.Listen(), h.Listen(); l.Addr() == m.Addr() || l.Addr() == "" {
			r.Errorf("%q and %q", l.Addr(), m.Addr())
		}
	}},
	{Name: "both sides get the event and the peer's address", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{}) // waits for the events
		if a.Conn.Peer() == "" || b.Conn.Peer() == "" {
			r.Errorf("peers %q and %q", a.Conn.Peer(), b.Conn.Peer())
		}
		c := a.Host.Node(rig.Shape{})
		if c.Conn.Peer() != "" {
			r.Errorf("a peer before connect: %q", c.Conn.Peer())
		}
	}},
	{Name: "one request is answered once", Run: func(r *rig.Rig) {
		a, hb := r.Host().Node(rig.Shape{}), r.Host()
		b, c, l := hb.Node(rig.Shape{}), hb.Node(rig.Shape{}), hb.Listen()
		go func() { _, _ = a.Conn.Connect(r.Ctx, l.Addr(), nil) }()
		req, err := l.Accept(r.Ctx)
		r.Must(err)
		r.Must(b.Conn.Accept(r.Ctx, req, nil))
		if err := c.Conn.Accept(r.Ctx, req, nil); err == nil {
			r.Error("accepted twice")
		}
		if err := req.Reject(nil); err == nil {
			r.Error("accepted and rejected")
		}
		a.Event(fabric.EventConnected)
	}},
	{Name: "connect again and again", Run: func(r *rig.Rig) {
		ha, hb := r.Host(), r.Host()
		src, dst := r.Patterned(64, 1), r.Alloc(64)
		to := ha.Imports(hb.Reg(dst, rig.BothRights).Raw())
		for range 10 {
			a, b := ha.Node(rig.Shape{}), hb.Node(rig.Shape{})
			r.Join(a, b)
			clear(dst.B)
			a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 64)})
			r.Has(dst, 1, 0)
			r.Must(a.EP.Close())
			r.Must(b.EP.Close())
		}
	}},
}

func privateData(r *rig.Rig) {
	limit := r.Info.Limits.MaxPrivate
	ha, hb := r.Host(), r.Host()
	l := hb.Listen()
	for _, n := range []int{0, 1, limit / 2, limit} {
		there, back := r.Patterned(n, uint64(n)).B, r.Patterned(n, uint64(n+1)).B
		a, b := ha.Node(rig.Shape{}), hb.Node(rig.Shape{})
		done := make(chan error, 1)
		go func() {
			req, err := l.Accept(r.Ctx)
			if err == nil && !bytes.Equal(req.Private(), there) {
				r.Errorf("%d bytes arrived as %d: %x", n, len(req.Private()), req.Private())
			}
			if err == nil {
				err = b.Conn.Accept(r.Ctx, req, back)
			}
			done <- err
		}()
		reply, err := a.Conn.Connect(r.Ctx, l.Addr(), there)
		r.Must(errors.Join(err, <-done))
		if !bytes.Equal(reply, back) {
			r.Errorf("%d bytes came back as %d: %x", n, len(reply), reply)
		}
	}
}

func longPrivateData(r *rig.Rig) {
	long := make([]byte, r.Info.Limits.MaxPrivate+1)
	a, hb := r.Host().Node(rig.Shape{}), r.Host()
	b, l := hb.Node(rig.Shape{}), hb.Listen()
	_, err := a.Conn.Connect(r.Ctx, l.Addr(), long)
	r.Want("connect", err, fabric.ErrTooSmall)
	done := make(chan error, 1)
	go func() {
		_, err := a.Conn.Connect(r.Ctx, l.Addr(), nil)
		done <- err
	}()
	req, err := l.Accept(r.Ctx)
	r.Must(err)
	r.Want("accept", b.Conn.Accept(r.Ctx, req, long), fabric.ErrTooSmall)
	r.Want("reject", req.Reject(long), fabric.ErrTooSmall)
	r.Must(b.Conn.Accept(r.Ctx, req, nil)) // still there
	r.Must(<-done)
}

func reject(r *rig.Rig) {
	ha, hb := r.Host(), r.Host()
	l := hb.Listen()
	for _, n := range []int{0, 1, r.Info.Limits.MaxPrivate} {
		why := r.Patterned(n, 5).B
		done := make(chan error, 1)
		go func() {
			req, err := l.Accept(r.Ctx)
			if err == nil {
				err = req.Reject(why)
			}
			done <- err
		}()
		_, err := ha.Node(rig.Shape{}).Conn.Connect(r.Ctx, l.Addr(), nil)
		r.Want("connect", err, fabric.ErrConnRefused)
		var rejected *fabric.RejectError
		if !errors.As(err, &rejected) || !bytes.Equal(rejected.Data, why) {
			r.Errorf("%d bytes of reason arrived as %+v", n, rejected)
		}
		r.Must(<-done)
	}
}

func acceptEnds(r *rig.Rig) {
	l := r.Host().Listen()
	ctx, cancel := context.WithCancel(r.Ctx)
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := l.Accept(ctx)
	r.Want("canceled", err, context.Canceled)
	done := make(chan error, 1)
	go func() {
		_, err := l.Accept(r.Ctx)
		done <- err
	}()
	time.Sleep(5 * time.Millisecond)
	r.Must(l.Close())
	r.Want("closed under it", <-done, fabric.ErrClosed)
	_, err = l.Accept(r.Ctx)
	r.Want("closed before it", err, fabric.ErrClosed)
	r.Must(l.Close())
}
