// SPDX-License-Identifier: MIT

package tcp_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/tcp"
)

const deadline = 60 * time.Second

// A side is one end of a connection with all its objects.
type side struct {
	fab fabric.Fabric
	dom fabric.Domain
	cq  fabric.CQ
	eq  fabric.EQ
	ep  fabric.Endpoint
	ctx context.Context
}

func must[T any](tb testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func testContext(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	tb.Cleanup(cancel)
	return ctx
}

// newSide makes an enabled endpoint.
func newSide(tb testing.TB, p *tcp.Provider) *side {
	tb.Helper()
	return newSideQueue(tb, p, 4096)
}

// newSideQueue makes a side whose completion queue holds size entries.
func newSideQueue(tb testing.TB, p *tcp.Provider, size int) *side {
	tb.Helper()
	ctx := testContext(tb)
	return newSideAs(tb, p, must[[]*fabric.Info](tb)(p.GetInfo(ctx, "", "", nil))[0], size)
}

// newSideAs makes a side on a domain opened with in.
func newSideAs(tb testing.TB, p *tcp.Provider, in *fabric.Info, size int) *side {
	tb.Helper()
	ctx := testContext(tb)
	s := &side{fab: must[fabric.Fabric](tb)(p.Open(ctx, in)), ctx: ctx}
	s.dom = must[fabric.Domain](tb)(s.fab.Domain(ctx, in))
	s.cq = must[fabric.CQ](tb)(s.dom.CQ(size))
	s.eq = must[fabric.EQ](tb)(s.fab.EQ(16))
	s.ep = must[fabric.Endpoint](tb)(s.dom.Endpoint(in))
	check(tb, s.ep.BindCQ(s.cq, fabric.DirTransmit|fabric.DirRecv, false))
	check(tb, s.ep.BindEQ(s.eq))
	check(tb, s.ep.Enable())
	tb.Cleanup(func() {
		for _, c := range []interface{ Close() error }{s.ep, s.cq, s.eq, s.dom, s.fab} {
			if err := c.Close(); err != nil {
				tb.Errorf("close %T: %v", c, err)
			}
		}
	})
	return s
}

func listen(tb testing.TB, s *side) fabric.Listener {
	tb.Helper()
	ln := must[fabric.Listener](tb)(s.fab.Listen(testContext(tb), &fabric.Info{}))
	tb.Cleanup(func() { check(tb, ln.Close()) })
	return ln
}

// connect connects a to b; b accepts.
func connect(tb testing.TB, a, b *side) {
	tb.Helper()
	ctx := testContext(tb)
	ln := listen(tb, b)
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			err = b.ep.(fabric.Connector).Accept(ctx, req, nil)
		}
		accepted <- err
	}()
	_, err := a.ep.(fabric.Connector).Connect(ctx, ln.Addr(), nil)
	check(tb, err)
	check(tb, <-accepted)
	for _, s := range []*side{a, b} {
		if e := must[fabric.Event](tb)(s.eq.Wait(ctx)); e.Kind != fabric.EventConnected {
			tb.Fatalf("event %+v, want connected", e)
		}
	}
}

func newPair(tb testing.TB, opts tcp.Options) (a, b *side) {
	tb.Helper()
	p := tcp.New(opts)
	a, b = newSide(tb, p), newSide(tb, p)
	connect(tb, a, b)
	return a, b
}

func alloc(tb testing.TB, n int) []byte {
	tb.Helper()
	b := must[[]byte](tb)(sys.Alloc(n))
	tb.Cleanup(func() { check(tb, sys.Free(b)) })
	return b
}

var nextID uint64

// share registers buf at owner and imports it at user.
func share(tb testing.TB, owner, user *side, buf []byte) (key uint64) {
	tb.Helper()
	nextID++
	k := fabric.RegionKey{ID: nextID}
	_, err := rand.Read(k.Secret[:])
	check(tb, err)
	mr := must[fabric.MR](tb)(owner.dom.Reg(fabric.Buffer{Addr: sys.AddrOf(buf), Len: uint64(len(buf))},
		fabric.AccessRemoteRead|fabric.AccessRemoteWrite, k))
	tb.Cleanup(func() { check(tb, mr.Close()) })
	return imported(tb, user, mr.Raw())
}

// imported imports a peer's region at s.
func imported(tb testing.TB, s *side, raw []byte) (key uint64) {
	tb.Helper()
	r := must[fabric.RemoteMR](tb)(s.dom.Import(raw))
	tb.Cleanup(func() { check(tb, r.Close()) })
	return r.Key()
}

func seg(b []byte) fabric.Seg { return fabric.Seg{Addr: sys.AddrOf(b), Len: uint64(len(b))} }

// submit submits all ops, waiting for room while the queue is full.
func submit(tb testing.TB, s *side, ops ...fabric.Op) {
	tb.Helper()
	for len(ops) > 0 {
		n, err := s.ep.Submit(ops)
		if err != nil && !errors.Is(err, fabric.ErrAgain) {
			tb.Fatal(err)
		}
		ops = ops[n:]
	}
}

// wait returns the next n completions; an error entry fails the test.
func wait(tb testing.TB, s *side, n int) []fabric.Completion {
	tb.Helper()
	done, buf := make([]fabric.Completion, 0, n), make([]fabric.Completion, 64)
	for len(done) < n {
		m, err := s.cq.Wait(s.ctx, buf[:min(64, n-len(done))])
		if errors.Is(err, fabric.ErrAvail) {
			var e fabric.ErrEntry
			check(tb, s.cq.ReadErr(&e))
			tb.Fatal(&e)
		}
		check(tb, err)
		done = append(done, buf[:m]...)
	}
	return done
}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}
