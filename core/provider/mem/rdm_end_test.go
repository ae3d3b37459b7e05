// SPDX-License-Identifier: MIT

package mem_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"mori/core/fabric"
)

// TestPeerWhoReturnsIsReached closes a peer and opens another under its name, with ops of either
// side's connection.
func TestPeerWhoReturnsIsReached(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	to := a.knows("b")
	for round := range uint64(20) {
		b := w.node("b")
		if round%2 == 1 { // b's connection serves a
			b.send(b.knows("a"), "hi", 1)
			b.ok(fabric.OpSend, 1)
			a.recv(2, 2)
			a.ok(fabric.OpRecv, 2)
		}
		got := b.recv(8, 3)
		for a.send(to, fmt.Sprint(round), 4); ; a.send(to, fmt.Sprint(round), 4) {
			e := a.read()
			if e.Err == 0 {
				break
			}
			if e.Kind != fabric.OpSend || e.Err != fabric.ErrConnReset {
				t.Fatalf("round %d: %v", round, &e)
			}
		}
		if c := b.ok(fabric.OpRecv, 3); string(got[:c.Len]) != fmt.Sprint(round) {
			t.Fatalf("round %d: got %q", round, got)
		}
		b.close()
	}
}

// TestNobodyThere fails ops to a name where nobody listens, and those alone.
func TestNobodyThere(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	toB, toC := a.knows("b"), a.knows("c")
	for range 10 {
		b.recv(1, 1)
		a.send(toC, "x", 2)
		a.send(toB, "y", 3)
		ended := make(map[uint64]fabric.Errno)
		for range 2 {
			e := a.read()
			ended[e.Ctx] = e.Err
			if e.Ctx == 2 && (e.Err != fabric.ErrConnRefused || !strings.Contains(e.Detail, "reach c") || !strings.Contains(e.Detail, "nobody listens")) {
				t.Fatalf("%+v", e)
			}
		}
		if err, ok := ended[3]; len(ended) != 2 || !ok || err != 0 {
			t.Fatalf("ended as %v", ended)
		}
		b.ok(fabric.OpRecv, 1)
	}
	c := w.node("c")
	a.send(toC, "z", 4)
	a.ok(fabric.OpSend, 4)
	c.recv(1, 5)
	c.ok(fabric.OpRecv, 5)
}

// TestOpsOfAConnectionThatEndsEndOnce has ops that wait for receives, for a fence, and for their
// turn.
func TestOpsOfAConnectionThatEndsEndOnce(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	for range 20 {
		b := w.node("b")
		to := a.knows("b")
		for ctx := range uint64(8) { // of which b takes two
			a.submit(fabric.Op{Kind: fabric.OpSend, Dest: to, Seg: a.buffer([]byte("m")), Ctx: ctx, Flags: fabric.OpDeliveryComplete})
		}
		a.submit(fabric.Op{Kind: fabric.OpSend, Dest: to, Ctx: 8, Flags: fabric.OpFence})
		for i := range uint64(2) {
			b.recv(1, i)
			b.ok(fabric.OpRecv, i)
			a.ok(fabric.OpSend, i)
		}
		go b.close()
		ended := make(map[uint64]bool)
		for range 7 {
			e := a.read()
			if e.Ctx < 2 || ended[e.Ctx] || e.Err != fabric.ErrConnReset || !strings.Contains(e.Detail, "connection to b ended") {
				t.Fatalf("%+v, after %v", e, ended)
			}
			ended[e.Ctx] = true
		}
		for { // b has gone
			l, err := w.fab.Listen(w.ctx, &fabric.Info{Src: "b"})
			if err == nil {
				w.must(l.Close())
				break
			}
			runtime.Gosched()
		}
	}
	var dst [1]fabric.Completion
	if n, err := a.cq.Read(dst[:]); n != 0 || !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("one entry more: %+v, %v", dst, err)
	}
}

// TestCloseInEveryState closes an endpoint wherever it is in its life, twice and from two
// goroutines, and then calls it.
func TestCloseInEveryState(t *testing.T) {
	for _, c := range []struct {
		name  string
		reach func(w *world) *node
	}{
		{"idle", func(w *world) *node { return w.idle("") }},
		{"enabled", func(w *world) *node { return w.node("") }},
		{"with receives", func(w *world) *node {
			n := w.node("")
			n.recv(4, 1)
			return n
		}},
		{"dialing one who does not answer", func(w *world) *node {
			w.listens("silent")
			n := w.node("")
			n.send(n.knows("silent"), "x", 1)
			return n
		}},
		{"dialing nobody", func(w *world) *node {
			n := w.node("")
			n.send(n.knows("nobody"), "x", 1)
			return n
		}},
		{"connected", func(w *world) *node {
			a, b := w.node(""), w.node("b")
			a.send(a.knows("b"), "x", 1)
			b.recv(1, 1)
			b.ok(fabric.OpRecv, 1)
			return a
		}},
		{"with a send that waits for a receive", func(w *world) *node {
			w.node("b")
			n := w.node("")
			n.submit(fabric.Op{Kind: fabric.OpSend, Dest: n.knows("b"), Flags: fabric.OpDeliveryComplete})
			return n
		}},
		{"dialed by others", func(w *world) *node {
			n := w.node("a")
			for range 8 {
				b := w.node("")
				b.send(b.knows("a"), "x", 1)
			}
			return n
		}},
		{"connected to itself", func(w *world) *node {
			n := w.node("a")
			n.send(n.knows("a"), "x", 1)
			return n
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 10 {
				t.Run("", func(t *testing.T) {
					n := c.reach(newWorld(t))
					done := make(chan struct{})
					go func() {
						_ = n.ep.Close()
						close(done)
					}()
					n.must(n.ep.Close())
					<-done
					isClosed(n)
				})
			}
		})
	}
}

// isClosed fails the test unless every call but Close answers ErrClosed.
func isClosed(n *node) {
	n.Helper()
	_, errName := n.ep.Name()
	_, errSend := n.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Dest: 1}})
	_, errRecv := n.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}})
	for what, err := range map[string]error{"name": errName, "send": errSend, "receive": errRecv, "cancel": n.ep.Cancel(1), "enable": n.ep.Enable(),
		"bind cq": n.ep.BindCQ(n.cq, fabric.DirRecv, false), "bind av": n.ep.BindAV(n.av), "bind counter": n.ep.BindCounter(nil, 0), "bind eq": n.ep.BindEQ(nil)} {
		if !errors.Is(err, fabric.ErrClosed) {
			n.Errorf("%s after close: %v", what, err)
		}
	}
}

// TestCloseUnderLoad closes endpoints while goroutines submit on them and their peers come and go:
// each op that was taken ends once.
func TestCloseUnderLoad(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		nodes := []*node{w.node("a"), w.node("b"), w.node("c")}
		var submitting sync.WaitGroup
		taken := make([]int, len(nodes))
		for i, n := range nodes {
			peers := []fabric.AVAddr{n.knows("a"), n.knows("b"), n.knows("c"), n.knows("nobody")}
			submitting.Add(1)
			go func() {
				defer submitting.Done()
				for j := 0; ; j++ {
					batch := []fabric.Op{{Kind: fabric.OpSend, Dest: peers[j%len(peers)]}, {Kind: fabric.OpRecv}}
					k, err := n.ep.Submit(batch)
					taken[i] += k
					if err != nil && !errors.Is(err, fabric.ErrAgain) {
						if !errors.Is(err, fabric.ErrClosed) {
							t.Errorf("submit: %v", err)
						}
						return
					}
				}
			}()
		}
		ended := make([]int, len(nodes))
		for i, n := range nodes {
			for ended[i] < 500 {
				n.read()
				ended[i]++
			}
		}
		for _, n := range nodes {
			n.must(n.ep.Close())
		}
		submitting.Wait()
		for i, n := range nodes {
			for ended[i] < taken[i] {
				n.read()
				ended[i]++
			}
			var dst [1]fabric.Completion
			if k, err := n.cq.Read(dst[:]); k != 0 || !errors.Is(err, fabric.ErrAgain) {
				t.Fatalf("%s: an op ended twice: %+v, %v", n.name, dst, err)
			}
		}
	}
}

func TestEnableRefuses(t *testing.T) {
	w := newWorld(t)
	w.node("taken")
	for _, c := range []struct {
		name string
		at   fabric.Addr
		bind func(n *node, ep fabric.Endpoint) error
		want error
	}{
		{"no queue", "", func(n *node, ep fabric.Endpoint) error { return ep.BindAV(n.av) }, fabric.ErrNoCQ},
		{"a queue for one direction", "", func(n *node, ep fabric.Endpoint) error {
			return errors.Join(ep.BindAV(n.av), ep.BindCQ(n.cq, fabric.DirRecv, false))
		}, fabric.ErrNoCQ},
		{"no address vector", "", func(n *node, ep fabric.Endpoint) error {
			return ep.BindCQ(n.cq, fabric.DirTransmit|fabric.DirRecv, false)
		}, fabric.ErrNoAV},
		{"a name that is too long to send", fabric.Addr(strings.Repeat("n", 300)), bindBoth, fabric.ErrTooSmall},
		{"a name that another has", "taken", bindBoth, syscall.EADDRINUSE},
	} {
		n := w.idle("")
		ep, err := n.dom.Endpoint(&fabric.Info{EPType: fabric.EPRDM, Src: c.at})
		w.must(err)
		w.must(c.bind(n, ep))
		for range 2 {
			if err := ep.Enable(); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
		if _, err := ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}}); !errors.Is(err, fabric.ErrOpBadState) {
			t.Errorf("%s: submit: %v", c.name, err)
		}
		if _, err := ep.Name(); !errors.Is(err, fabric.ErrOpBadState) {
			t.Errorf("%s: name: %v", c.name, err)
		}
		w.must(ep.Close())
	}
}

func bindBoth(n *node, ep fabric.Endpoint) error {
	return errors.Join(ep.BindAV(n.av), ep.BindCQ(n.cq, fabric.DirTransmit|fabric.DirRecv, false))
}
