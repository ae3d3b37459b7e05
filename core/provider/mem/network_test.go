// SPDX-License-Identifier: MIT

package mem

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func openDomain(t *testing.T, p *Provider) (fabric.Fabric, fabric.Domain) {
	t.Helper()
	f, err := p.Open(testContext(t), &fabric.Info{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Domain(testContext(t), &fabric.Info{})
	if err != nil {
		t.Fatal(err)
	}
	return f, d
}

func TestGetInfoNamesTheDestination(t *testing.T) {
	p := New(Options{})
	for _, c := range []struct {
		node, service string
		want          fabric.Addr
	}{{"", "", ""}, {"a", "", "a"}, {"a", "1", "a:1"}} {
		infos, err := p.GetInfo(testContext(t), c.node, c.service, nil)
		if err != nil || infos[0].Dest != c.want {
			t.Errorf("%q, %q: %v, %v", c.node, c.service, infos, err)
		}
	}
	if _, err := p.Open(testContext(t), &fabric.Info{Provider: "tcp"}); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("open another provider's info: %v", err)
	}
}

func TestListenersHaveNames(t *testing.T) {
	p := New(Options{})
	f, _ := openDomain(t, p)
	at := func(addr fabric.Addr) (fabric.Listener, error) {
		return f.Listen(testContext(t), &fabric.Info{Src: addr})
	}
	taken, err := at("@mem-4")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at("@mem-4"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a name twice: %v", err)
	}
	for range 5 {
		if l, err := at(""); err != nil || l.Addr() == taken.Addr() || l.Addr() == "" {
			t.Errorf("a fresh name: %v, %v", l, err)
		}
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := at("@mem-4"); err != nil {
		t.Errorf("a name that is free again: %v", err)
	}
}

func TestProvidersAreApart(t *testing.T) {
	f, _ := openDomain(t, New(Options{}))
	if _, err := f.Listen(testContext(t), &fabric.Info{Src: "here"}); err != nil {
		t.Fatal(err)
	}
	_, d := openDomain(t, New(Options{}))
	ep := enabled(t, d)
	if _, err := ep.Connect(testContext(t), "here", nil); !errors.Is(err, fabric.ErrConnRefused) {
		t.Errorf("connect into another network: %v", err)
	}
}

// A testEP is an endpoint with one queue for everything.
type testEP struct {
	*endpoint
	cq fabric.CQ
	eq fabric.EQ
}

func enabled(t *testing.T, d fabric.Domain) *testEP {
	t.Helper()
	ep, err := d.Endpoint(&fabric.Info{})
	if err != nil {
		t.Fatal(err)
	}
	cq, errCQ := d.CQ(64)
	eq, errEQ := d.(*domain).network.EQ(4)
	if err := errors.Join(errCQ, errEQ, ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false), ep.BindEQ(eq), ep.Enable()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testEP{ep.(*endpoint), cq, eq}
}

func connected(t *testing.T, p *Provider) (a, b *testEP) {
	t.Helper()
	f, da := openDomain(t, p)
	_, db := openDomain(t, p)
	a, b = enabled(t, da), enabled(t, db)
	l, err := f.Listen(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if req, err := l.Accept(testContext(t)); err == nil {
			_ = b.Accept(testContext(t), req, nil)
		}
	}()
	if _, err := a.Connect(testContext(t), l.Addr(), nil); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// TestFault breaks the connection at the third op, which is not executed.
func TestFault(t *testing.T) {
	broken := errors.New("cable cut")
	var seen atomic.Int32
	a, b := connected(t, New(Options{Fault: func(op *fabric.Op) error {
		if seen.Add(1) == 3 {
			return broken
		}
		return nil
	}}))
	far := make([]byte, 8)
	mr, err := b.domain.Reg(fabric.Buffer{Addr: sys.AddrOf(far), Len: 8}, fabric.AccessRemoteWrite, fabric.RegionKey{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	to, err := a.domain.Import(mr.Raw())
	if err != nil {
		t.Fatal(err)
	}
	one := []byte{1}
	defer runtime.KeepAlive(one)
	var ops []fabric.Op
	for i := range uint64(5) {
		ops = append(ops, fabric.Op{Kind: fabric.OpWrite, Ctx: i, Seg: fabric.Seg{Addr: sys.AddrOf(one), Len: 1},
			RSeg: fabric.RSeg{Addr: i, Len: 1, Key: to.Key()}})
	}
	taken, err := a.Submit(ops)
	if taken < 3 || err != nil && !errors.Is(err, fabric.ErrNotConn) {
		t.Fatalf("submit: %d, %v", taken, err)
	}
	for i := range uint64(taken) {
		var dst [1]fabric.Completion
		n, err := a.cq.Wait(testContext(t), dst[:])
		if i < 2 && (n != 1 || dst[0].Ctx != i) {
			t.Fatalf("op %d: %v, %v", i, dst, err)
		}
		var e fabric.ErrEntry
		if i >= 2 && (a.cq.ReadErr(&e) != nil || e.Err != fabric.ErrConnReset || e.Ctx != i) {
			t.Fatalf("op %d: %v, %+v", i, err, e)
		}
	}
	if string(far) != "\x01\x01\x00\x00\x00\x00\x00\x00" {
		t.Errorf("memory is %v", far)
	}
	for _, ep := range []*testEP{a, b} {
		for {
			e, err := ep.eq.Wait(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == fabric.EventShutdown {
				if !errors.Is(e.Err, fabric.ErrConnReset) {
					t.Errorf("reported as %v", e.Err)
				}
				break
			}
		}
	}
}

func TestPath(t *testing.T) {
	a, _ := connected(t, New(Options{}))
	if name, reason := a.Path(); name != "memmove" || reason == "" {
		t.Errorf("%q, %q", name, reason)
	}
}
