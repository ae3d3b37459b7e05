// SPDX-License-Identifier: MIT

package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core"
	"mori/core/fabric"
	"mori/io/internal/control"
	"mori/io/internal/errs"
)

// What relay can do with a connection instead of forwarding it.
const (
	refuse = "refuse"
	ignore = "ignore"
)

// relay listens and forwards each connection to the address that to returns, or does what to
// returns.
func relay(t *testing.T, to func() string) (addr string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			where := to()
			switch where {
			case refuse:
				_ = c.Close()
				continue
			case ignore:
				t.Cleanup(func() { _ = c.Close() })
				continue
			}
			out, err := net.Dial("tcp", where)
			if err != nil {
				_ = c.Close()
				return
			}
			go func() { _, _ = io.Copy(out, c); _ = out.Close() }()
			go func() { _, _ = io.Copy(c, out); _ = c.Close() }()
		}
	}()
	return lis.Addr().String()
}

const mostSockets = 8 // sockets of one attempt, at most

// A data connection that the peer closes without an answer is retried, up to a number of attempts.
func TestADataConnectionThatWasEvictedIsTriedAgain(t *testing.T) {
	far := newFar(t)
	for _, closes := range []int64{3, 1000} {
		var sockets atomic.Int64
		p, r, w := far.offering(t, relay(t, func() string {
			if sockets.Add(1) <= closes {
				return refuse
			}
			return far.addr()
		}))
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		q, err := p.dialer.open(ctx, r, w)
		if (err == nil) != (closes == 3) {
			t.Errorf("%d closed: %v after %d sockets", closes, err, sockets.Load())
		}
		if err == nil {
			q.Close(errs.ErrClosed)
		} else if n := sockets.Load(); n > control.MaxEvictions*mostSockets || ctx.Err() != nil {
			t.Errorf("%d sockets, want at most %d: %v", n, control.MaxEvictions*mostSockets, err)
		}
	}
}

// A data connection that gets no answer fails at the time limit of the control plane, and the error
// names the peer.
func TestADataConnectionWithoutAnAnswerEndsInTime(t *testing.T) {
	far := newFar(t)
	p, r, w := far.offering(t, relay(t, func() string { return ignore }))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := p.dialer.open(ctx, r, w)
	if !errors.Is(err, fabric.ErrTimeout) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("%v, want a timeout that names the peer", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %v, the limit is 100 ms", took)
	}
}

// crowded returns the address of a TCP listener that accepts nothing and whose queue of requests is
// full.
func crowded(t *testing.T) string {
	t.Helper()
	ctx := context.Background()
	r, err := core.Registry(core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	infos, err := r.GetInfo(ctx, "", "", &fabric.Info{Provider: "tcp", EPType: fabric.EPMsg, Caps: fabric.CapMSG | fabric.CapRMA})
	if err != nil {
		t.Fatal(err)
	}
	at := infos[0].Clone()
	at.Src = "127.0.0.1:0"
	fab, err := r.Open(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	dom, err := fab.Domain(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	eq, err := fab.EQ(64)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := fab.Listen(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _, _ = lis.Close(), eq.Close(), dom.Close(), fab.Close() })
	var full atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 16 {
		cq, err := dom.CQ(64)
		if err != nil {
			t.Fatal(err)
		}
		ep, err := dom.Endpoint(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, true), ep.BindEQ(eq), ep.Enable()); err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; i < 200 && !full.Load(); i++ {
				ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				if _, err := ep.(fabric.Connector).Connect(ctx, lis.Addr(), nil); errors.Is(err, fabric.ErrBusy) {
					full.Store(true)
				}
				cancel()
			}
			_, _ = ep.Close(), cq.Close()
		}()
	}
	return string(lis.Addr())
}

// A data connection to a busy peer is retried for as long as the deadline allows.
func TestADataConnectionToABusyPeerIsTriedAgain(t *testing.T) {
	far := newFar(t)
	busy := crowded(t)
	var sockets atomic.Int64
	p, r, w := far.offering(t, relay(t, func() string {
		if sockets.Add(1) <= 28 { // of 7 attempts: more than control.MaxEvictions
			return busy
		}
		return far.addr()
	}))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	q, err := p.dialer.open(ctx, r, w)
	if err != nil {
		t.Fatalf("after %d sockets: %v", sockets.Load(), err)
	}
	q.Close(errs.ErrClosed)
	if p, r, w = far.offering(t, busy); p != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := p.dialer.open(ctx, r, w); !errors.Is(err, fabric.ErrBusy) && !errors.Is(err, fabric.ErrTimeout) {
			t.Errorf("a peer that stays busy: %v", err)
		}
	}
}
