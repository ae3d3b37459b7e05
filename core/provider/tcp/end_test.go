// SPDX-License-Identifier: MIT

package tcp_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/tcp"
)

// TestPeerKilledInMidTransfer kills a process that is being written to and read from. Every op ends
// once, and its error names the peer.
func TestPeerKilledInMidTransfer(t *testing.T) {
	p := startPeer(t)
	s, key := p.join(t, tcp.Options{})
	buf := alloc(t, 64<<20)
	var ops []fabric.Op
	for i := range 40 {
		kind := fabric.OpWrite
		if i%2 == 1 {
			kind = fabric.OpRead
		}
		ops = append(ops, fabric.Op{Kind: kind, Seg: seg(buf), RSeg: fabric.RSeg{Len: 64 << 20, Key: key}, Ctx: uint64(i)})
	}
	submit(t, s, ops...)
	first := wait(t, s, 1)
	check(t, p.cmd.Process.Kill())
	seen := map[uint64]bool{first[0].Ctx: true}
	done := make([]fabric.Completion, 1)
	failed := 0
	for len(seen) < len(ops) {
		_, err := s.cq.Wait(s.ctx, done)
		c := done[0]
		if errors.Is(err, fabric.ErrAvail) {
			var e fabric.ErrEntry
			check(t, s.cq.ReadErr(&e))
			if e.Err != fabric.ErrConnReset || !strings.Contains(e.Error(), string(p.hello.Addr)) {
				t.Fatalf("error entry %v", &e)
			}
			c = e.Completion
			failed++
		} else {
			check(t, err)
		}
		if seen[c.Ctx] {
			t.Fatalf("op %d ended twice", c.Ctx)
		}
		seen[c.Ctx] = true
	}
	if failed == 0 {
		t.Error("everything was done before the peer was killed")
	}
	if e := must[fabric.Event](t)(s.eq.Wait(s.ctx)); e.Kind != fabric.EventShutdown || !errors.Is(e.Err, fabric.ErrConnReset) {
		t.Errorf("event %+v", e)
	}
}

// TestManyConnections connects many sides to a listener that accepts them concurrently, and uses
// each connection.
func TestManyConnections(t *testing.T) {
	p := tcp.New(tcp.Options{})
	hub := newSide(t, p)
	ln := listen(t, hub)
	mem := alloc(t, 4096)
	k := fabric.RegionKey{ID: 1 << 41}
	mr := must[fabric.MR](t)(hub.dom.Reg(fabric.Buffer{Addr: sys.AddrOf(mem), Len: 4096}, fabric.AccessRemoteWrite, k))
	t.Cleanup(func() { check(t, mr.Close()) })
	const count = 100
	var wg sync.WaitGroup
	for range count {
		wg.Add(1)
		go func() {
			defer wg.Done()
			req, err := ln.Accept(hub.ctx)
			if err != nil {
				t.Error(err)
				return
			}
			ep, err := hub.dom.Endpoint(nil)
			if err == nil {
				err = errors.Join(ep.BindCQ(hub.cq, fabric.DirTransmit|fabric.DirRecv, false), ep.Enable(), ep.(fabric.Connector).Accept(hub.ctx, req, nil))
				t.Cleanup(func() { check(t, ep.Close()) })
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	sides := make([]*side, count)
	for i := range sides {
		sides[i] = newSide(t, p)
		_, err := sides[i].ep.(fabric.Connector).Connect(sides[i].ctx, ln.Addr(), nil)
		check(t, err)
	}
	wg.Wait()
	for i, s := range sides {
		src := alloc(t, 8)
		pattern(src, i)
		key := imported(t, s, mr.Raw())
		submit(t, s, fabric.Op{Kind: fabric.OpWrite, Seg: seg(src), RSeg: fabric.RSeg{Addr: uint64(8 * i), Len: 8, Key: key}})
		wait(t, s, 1)
		if string(mem[8*i:8*i+8]) != string(src) {
			t.Fatalf("connection %d wrote %x for %x", i, mem[8*i:8*i+8], src)
		}
	}
}

// TestIdleConnectionsUseNoProcessor measures the CPU time of the process while connections idle.
// The bound is far above noise.
func TestIdleConnectionsUseNoProcessor(t *testing.T) {
	a, b := newPair(t, tcp.Options{})
	buf := alloc(t, 8)
	key := share(t, b, a, alloc(t, 8))
	submit(t, a, fabric.Op{Kind: fabric.OpWrite, Seg: seg(buf), RSeg: fabric.RSeg{Len: 8, Key: key}})
	wait(t, a, 1)
	time.Sleep(50 * time.Millisecond)
	used := func() time.Duration {
		var ru syscall.Rusage
		check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &ru))
		return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	before := used()
	time.Sleep(500 * time.Millisecond)
	if d := used() - before; d > 100*time.Millisecond {
		t.Errorf("%v of processor in 500 ms of rest", d)
	}
}

// TestMessagesAndAtomicsDoNotAllocate lets both sides poll their queues alternately.
func TestMessagesAndAtomicsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newPair(t, tcp.Options{})
	src, dst, res := alloc(t, 4096), alloc(t, 4096), alloc(t, 8)
	key := share(t, b, a, alloc(t, 64))
	recv := []fabric.Op{{Kind: fabric.OpRecv, Seg: seg(dst)}}
	ops := []fabric.Op{
		{Kind: fabric.OpSend, Seg: seg(src)},
		{Kind: fabric.OpAtomic, Seg: seg(src[:8]), RSeg: fabric.RSeg{Len: 8, Key: key}, Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64}},
		{Kind: fabric.OpFetchAtomic, Seg: seg(src[:8]), RSeg: fabric.RSeg{Len: 8, Key: key},
			Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64, Result: seg(res)}},
	}
	done := make([]fabric.Completion, 8)
	collect := func(s *side, left int) {
		for left > 0 {
			n, err := s.cq.Read(done)
			if err != nil && err != fabric.ErrAgain {
				t.Fatal(err)
			}
			left -= n
		}
	}
	round := func() {
		submit(t, b, recv...)
		submit(t, a, ops...)
		for range 100 { // enough polls to make either side a poller
			_, _ = b.cq.Read(nil)
			_, _ = a.cq.Read(nil)
		}
		collect(b, 1)
		collect(a, len(ops))
	}
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n > 0 {
		t.Errorf("%v allocations for a message and two atomics", n)
	}
}

func TestSubmitDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newPair(t, tcp.Options{})
	src := alloc(t, 64<<10)
	key := share(t, b, a, alloc(t, 64<<10))
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		op := fabric.Op{Kind: kind, RSeg: fabric.RSeg{Key: key}}
		for i := range 16 {
			s, r := fabric.Seg{Addr: sys.AddrOf(src) + uint64(i*4096), Len: 4096}, fabric.RSeg{Addr: uint64(i * 4096), Len: 4096, Key: key}
			if i == 0 {
				op.Seg, op.RSeg = s, r
			} else {
				op.More, op.RMore = append(op.More, s), append(op.RMore, r)
			}
		}
		ops, done := []fabric.Op{op, op, op}, make([]fabric.Completion, 8)
		round := func() {
			if n, err := a.ep.Submit(ops); n != len(ops) {
				t.Fatal(err)
			}
			for left := len(ops); left > 0; {
				n, err := a.cq.Wait(a.ctx, done)
				check(t, err)
				left -= n
			}
		}
		round()
		if n := testing.AllocsPerRun(200, round); n > 0 {
			t.Errorf("%v allocations for %d ops of kind %v", n, len(ops), kind)
		}
	}
}

// TestListenAddresses listens on both families and on a port that is taken.
func TestListenAddresses(t *testing.T) {
	s := newSide(t, tcp.New(tcp.Options{}))
	ln := listen(t, s)
	if !strings.HasPrefix(string(ln.Addr()), "127.0.0.1:") {
		t.Errorf("listens on %s unasked", ln.Addr())
	}
	_, err := s.fab.Listen(s.ctx, &fabric.Info{Src: ln.Addr()})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(fmt.Sprint(err), string(ln.Addr())) {
		t.Errorf("listen on a port that is taken: %v", err)
	}
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		t.Skip("no IPv6 here:", err)
	}
	six, err := s.fab.Listen(s.ctx, &fabric.Info{Src: "[::1]:0"})
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Skip("no IPv6 loopback here:", err)
	}
	check(t, err)
	if !strings.HasPrefix(string(six.Addr()), "[::1]:") {
		t.Errorf("listens on %s", six.Addr())
	}
	check(t, six.Close())
}
