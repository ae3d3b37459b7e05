// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
)

// newSideWithin is newSide with another limit of a handshake. It also listens on the local socket.
func newSideWithin(t *testing.T, key string, limit time.Duration) *side {
	t.Helper()
	e, err := NewEngine(key, EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	e.handshake = limit
	s := newSideOf(t, e, 64, BackendTCP, nil)
	if err := e.control.listenLocal(); err != nil {
		t.Fatal(err)
	}
	return s
}

// dialControlFrom is dialControl from an address of this host, or over the local socket if that is
// empty.
func dialControlFrom(t *testing.T, e *Engine, ip string) net.Conn {
	t.Helper()
	d, network, to := net.Dialer{}, "unix", localControl(e.incarnation)
	if ip != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(ip)}
		network, to = "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(e.Desc().Port))
	}
	c, err := d.Dial(network, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// An unfinished handshake ends at its limit, wherever it stands; bytes that trickle in do not
// extend it. A finished one stays.
func TestUnfinishedHandshakesEndAtTheirLimit(t *testing.T) {
	a := newSideWithin(t, "a", 300*time.Millisecond)
	for network, ip := range map[string]string{"tcp": "127.0.0.1", "unix": ""} {
		x := newCaller(t, "x", 5, a)
		finished := dialControlFrom(t, a.Engine, ip)
		welcomed(t, finished, x)
		silent, challenged, trickling := dialControlFrom(t, a.Engine, ip), dialControlFrom(t, a.Engine, ip), dialControlFrom(t, a.Engine, ip)
		if kind, _ := converse(t, challenged, controlHello, &x.hello); kind != controlChallenge {
			t.Fatalf("%s: a hello is answered with type %d", network, kind)
		}
		go func() {
			for _, err := trickling.Write([]byte{byte(controlHello)}); err == nil; _, err = trickling.Write([]byte{0}) {
				time.Sleep(40 * time.Millisecond)
			}
		}()
		for name, c := range map[string]net.Conn{"silent": silent, "challenged": challenged, "trickling": trickling} {
			if _, err := io.ReadAll(c); isTimeout(err) {
				t.Errorf("%s: the %s connection is open after 20 s", network, name)
			}
		}
		if kind, _ := converse(t, finished, controlBeat, &heartbeat{}); kind != controlBeat {
			t.Errorf("%s: after its handshake a connection is answered with type %d", network, kind)
		}
	}
}

// Silent connections and strangers from the network take no slot of the local socket, and the other
// way round.
func TestTheNetworkTakesNoSlotOfTheLocalSocket(t *testing.T) {
	a := newSideWithin(t, "a", time.Minute)
	x := newCaller(t, "x", 5, a)
	early := map[string]net.Conn{"tcp": dialControlFrom(t, a.Engine, "127.0.0.9"), "unix": dialControlFrom(t, a.Engine, "")}
	beating := dialControlFrom(t, a.Engine, "")
	welcomed(t, beating, x)
	flood := func(n int, ip string) (first net.Conn) {
		for i := range n {
			c := dialControlFrom(t, a.Engine, ip)
			if i == 0 {
				first = c
			}
		}
		return first
	}
	evicted := func(c net.Conn, what string) {
		t.Helper()
		if _, _, err := readControl(c); err == nil || isTimeout(err) {
			t.Errorf("the first %s reads %v, want the end of its connection", what, err)
		}
	}
	evicted(flood(maxUnfinishedUnix+1, ""), "silent connection to the local socket")
	welcomed(t, early["tcp"], x) // older than all of them
	early["unix"] = dialControlFrom(t, a.Engine, "")
	first := flood(maxUnfinishedHost, "127.0.0.2")
	flood(maxUnfinished-maxUnfinishedHost, "127.0.0.3")
	flood(1, "127.0.0.4")
	evicted(first, "silent connection from the network")
	welcomed(t, early["unix"], x)
	for i := range maxStrangers + 1 {
		welcomed(t, dialControlFrom(t, a.Engine, []string{"127.0.0.2", "127.0.0.3"}[i%2]), x)
	}
	if kind, _ := converse(t, beating, controlBeat, &heartbeat{}); kind != controlBeat {
		t.Errorf("a client of the local socket is answered with type %d", kind)
	}
}

// offering is a peer of b's that offers its data plane over TCP at addr, and what it says of
// itself.
func offering(t *testing.T, a, b *side, addr string) (*peer, *route, *welcome) {
	t.Helper()
	p := newPeer(b.Engine, a.Desc())
	t.Cleanup(func() { p.close(ErrClosed) })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w, err := p.ctl.greet(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Endpoints {
		if w.Endpoints[i].Name == "tcp" {
			w.Endpoints[i].Addr = addr
		}
	}
	return p, b.backends[BackendTCP].host, w
}

// What relay does with a connection but pass it on.
const (
	refuse = "refuse"
	ignore = "ignore"
)

// relay listens and passes each connection on to the address that to returns, or does what that
// says.
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

// dataAddr is where e's data plane listens over TCP.
func dataAddr(e *Engine) string {
	for _, tr := range e.openTransports() {
		if tr.name == "tcp" {
			return string(tr.lis.Addr())
		}
	}
	return ""
}

const mostSockets = 8 // sockets of one attempt, at most

// A data connection that the peer closes without an answer is tried again, and after a number of
// attempts no more.
func TestADataConnectionThatWasEvictedIsTriedAgain(t *testing.T) {
	a, b := newSide(t, "a", 64, BackendTCP, nil), newSide(t, "b", 64, BackendTCP, nil)
	for _, closes := range []int64{3, 1000} {
		var sockets atomic.Int64
		p, r, w := offering(t, a, b, relay(t, func() string {
			if sockets.Add(1) <= closes {
				return refuse
			}
			return dataAddr(a.Engine)
		}))
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		q, err := p.open(ctx, r, w)
		if (err == nil) != (closes == 3) {
			t.Errorf("%d closed: %v after %d sockets", closes, err, sockets.Load())
		}
		if err == nil {
			q.close(ErrClosed)
		} else if n := sockets.Load(); n > maxEvictions*mostSockets || ctx.Err() != nil {
			t.Errorf("%d sockets, want at most %d: %v", n, maxEvictions*mostSockets, err)
		}
	}
}

// A data connection that gets no answer ends with the limit of the control plane, and the error
// names the peer.
func TestADataConnectionWithoutAnAnswerEndsInTime(t *testing.T) {
	a, b := newSide(t, "a", 64, BackendTCP, nil), newSide(t, "b", 64, BackendTCP, nil)
	p, r, w := offering(t, a, b, relay(t, func() string { return ignore }))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := p.open(ctx, r, w)
	if !errors.Is(err, fabric.ErrTimeout) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("%v, want a timeout that names the peer", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %v, the limit is 100 ms", took)
	}
}

// crowded is the address of a listener that nobody accepts from, and whose queue of requests is
// full.
func crowded(t *testing.T, e *Engine) string {
	t.Helper()
	tr := e.openTransports()[0]
	at := tr.info.Clone()
	at.Src = "127.0.0.1:0"
	lis, err := tr.fab.Listen(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	var full atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 16 {
		ep, cq, err := tr.endpoint(func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; i < 200 && !full.Load(); i++ {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				if _, err := ep.(fabric.Connector).Connect(ctx, lis.Addr(), nil); errors.Is(err, fabric.ErrBusy) {
					full.Store(true)
				}
				cancel()
			}
			tr.forget(ep)
			_, _ = ep.Close(), cq.Close()
		}()
	}
	return string(lis.Addr())
}

// A data connection to a peer that says that it is busy is tried again for as long as the deadline
// allows.
func TestADataConnectionToABusyPeerIsTriedAgain(t *testing.T) {
	a, b := newSide(t, "a", 64, BackendTCP, nil), newSide(t, "b", 64, BackendTCP, nil)
	busy := crowded(t, a.Engine)
	var sockets atomic.Int64
	p, r, w := offering(t, a, b, relay(t, func() string {
		if sockets.Add(1) <= 28 { // of 7 attempts: more than maxEvictions
			return busy
		}
		return dataAddr(a.Engine)
	}))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	q, err := p.open(ctx, r, w)
	if err != nil {
		t.Fatalf("after %d sockets: %v", sockets.Load(), err)
	}
	q.close(ErrClosed)
	if p, r, w = offering(t, a, b, busy); p != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := p.open(ctx, r, w); !errors.Is(err, fabric.ErrBusy) && !errors.Is(err, fabric.ErrTimeout) {
			t.Errorf("a peer that stays busy: %v", err)
		}
	}
}
