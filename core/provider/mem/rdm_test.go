// SPDX-License-Identifier: MIT

package mem_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

func TestMessagesTellTheirSource(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("")
	toB, toA := a.knows(b.name), b.knows("a")
	got := b.recv(8, 1)
	a.send(toB, "hello", 2)
	a.ok(fabric.OpSend, 2)
	if c := b.ok(fabric.OpRecv, 1); c.Src != toA || c.Len != 5 || string(got[:5]) != "hello" {
		t.Errorf("%+v, %q", c, got)
	}
	got = a.recv(8, 3)
	b.send(toA, "back", 4)
	b.ok(fabric.OpSend, 4)
	if c := a.ok(fabric.OpRecv, 3); c.Src != toB || string(got[:4]) != "back" {
		t.Errorf("%+v, %q", c, got)
	}
	w.must(b.av.Remove(toA))
	b.recv(8, 5)
	a.send(toB, "who?", 6)
	a.ok(fabric.OpSend, 6)
	if c := b.ok(fabric.OpRecv, 5); c.Src != 0 {
		t.Errorf("from %d, who is not in the vector", c.Src)
	}
}

func TestSendToOneself(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	self := a.knows("a")
	for i := range uint64(3) {
		a.send(self, fmt.Sprint(i), i)
		a.ok(fabric.OpSend, i)
	}
	for i := range uint64(3) {
		got := a.recv(1, i)
		if c := a.ok(fabric.OpRecv, i); c.Src != self || string(got) != fmt.Sprint(i) {
			t.Errorf("%+v, %q", c, got)
		}
	}
}

// TestGlare lets two endpoints send their first messages at the same moment.
func TestGlare(t *testing.T) {
	const rounds, count = 100, 4
	for range rounds {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		start := make(chan struct{})
		var both sync.WaitGroup
		for n, to := range map[*node]fabric.AVAddr{a: a.knows("b"), b: b.knows("a")} {
			both.Add(1)
			go func() {
				defer both.Done()
				<-start
				if err := n.burst(to, count); err != nil {
					t.Error(err)
				}
			}()
		}
		close(start)
		both.Wait()
		for _, n := range []*node{a, b} {
			n.gather(count, count)
		}
		b.close()
		a.close()
	}
}

// burst sends count numbers.
func (n *node) burst(to fabric.AVAddr, count int) error {
	b := make([]byte, 8*count)
	n.buffer(b)
	for i := range count {
		at := b[8*i : 8*i+8]
		binary.LittleEndian.PutUint64(at, uint64(i))
		err := n.trySubmit(fabric.Op{Kind: fabric.OpSend, Dest: to, Seg: fabric.Seg{Addr: sys.AddrOf(at), Len: 8}})
		if err != nil {
			return err
		}
	}
	return nil
}

// gather receives so many numbers, those of each peer in order, and waits for the success of so
// many sends.
func (n *node) gather(receives, sends int) {
	n.Helper()
	b := make([]byte, 8*receives)
	n.buffer(b)
	for i := range receives {
		n.submit(fabric.Op{Kind: fabric.OpRecv, Seg: fabric.Seg{Addr: sys.AddrOf(b[8*i:]), Len: 8}, Ctx: uint64(i)})
	}
	next := make(map[fabric.AVAddr]uint64)
	for receives+sends > 0 {
		e := n.read()
		switch {
		case e.Err != 0:
			n.Fatalf("%s: %v", n.name, &e)
		case e.Kind == fabric.OpSend:
			sends--
		default:
			receives--
			if got := binary.LittleEndian.Uint64(b[8*e.Ctx:]); e.Src == 0 || got != next[e.Src] {
				n.Fatalf("%s: message %d of peer %d came as %d", n.name, got, e.Src, next[e.Src])
			}
			next[e.Src]++
		}
	}
}

// TestAllToAll lets everybody send to everybody, themselves too, at once.
func TestAllToAll(t *testing.T) {
	const nodes, count = 16, 20
	w := newWorld(t)
	var all []*node
	for range nodes {
		all = append(all, w.node(""))
	}
	for _, n := range all {
		for _, peer := range all {
			n.knows(peer.name)
		}
	}
	var senders sync.WaitGroup
	for _, n := range all {
		senders.Add(1)
		go func() {
			defer senders.Done()
			for to := range fabric.AVAddr(nodes) {
				if err := n.burst(to+1, count); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	senders.Wait()
	for _, n := range all {
		n.gather(nodes*count, nodes*count)
	}
}

func TestNumbersOfPeersAreUsedAgain(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.node("a"), w.node("b"), w.node("c")
	to := a.knows("b")
	a.send(to, "to b", 1)
	a.ok(fabric.OpSend, 1)
	w.must(a.av.Remove(to))
	if n, err := a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Dest: to}}); n != 0 || !errors.Is(err, fabric.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprint(to)) {
		t.Fatalf("a number that was removed: %d, %v", n, err)
	}
	if again := a.knows("c"); again != to {
		t.Fatalf("number %d, want %d again", again, to)
	}
	a.send(to, "to c", 2)
	a.ok(fabric.OpSend, 2)
	for _, n := range []*node{b, c} {
		got := n.recv(4, 3)
		n.ok(fabric.OpRecv, 3)
		if string(got) != "to "+string(n.name) {
			t.Errorf("%s got %q", n.name, got)
		}
	}
}

// TestSubmitTakesAPrefix mixes peers, receives and nonsense in one batch.
func TestSubmitTakesAPrefix(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	toB, toC := a.knows("b"), a.knows("nobody is here")
	msg := a.buffer([]byte("x"))
	for _, c := range []struct {
		name string
		bad  fabric.Op
		want error
	}{
		{"nobody", fabric.Op{Kind: fabric.OpSend, Ctx: 9}, fabric.ErrInvalid},
		{"an unknown peer", fabric.Op{Kind: fabric.OpSend, Dest: 99, Ctx: 9}, fabric.ErrInvalid},
		{"a kind that is none, to a peer who would have to be dialed", fabric.Op{Kind: 77, Dest: toC}, fabric.ErrInvalid},
		{"a flag that is none", fabric.Op{Kind: fabric.OpSend, Dest: toB, Flags: 1 << 15}, fabric.ErrBadFlags},
		{"a receive that is none", fabric.Op{Kind: fabric.OpRecv, Seg: fabric.Seg{Len: 5}}, fabric.ErrInvalid},
	} {
		send := fabric.Op{Kind: fabric.OpSend, Dest: toB, Seg: msg, Ctx: 1}
		got := make([]byte, 1)
		n, err := a.ep.Submit([]fabric.Op{send, {Kind: fabric.OpRecv, Ctx: 2, Seg: a.buffer(got)}, send, c.bad, send})
		if n != 3 || !errors.Is(err, c.want) {
			t.Fatalf("%s: %d, %v", c.name, n, err)
		}
		for range 2 {
			a.ok(fabric.OpSend, 1)
			b.recv(1, 3)
			b.ok(fabric.OpRecv, 3)
		}
		w.must(a.ep.Cancel(2))
		if e := a.read(); e.Err != fabric.ErrCanceled || e.Ctx != 2 {
			t.Fatalf("%s: %+v", c.name, e)
		}
	}
}

func TestSubmitDoesNotAllocate(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	op := []fabric.Op{{Kind: fabric.OpSend, Dest: a.knows("b"), Seg: a.buffer([]byte("x"))}}
	got := []fabric.Op{{Kind: fabric.OpRecv, Seg: b.buffer(make([]byte, 1))}}
	var dst [4]fabric.Completion
	once := func() {
		b.submit(got...)
		a.submit(op...)
		if _, err := a.cq.Wait(w.ctx, dst[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := b.cq.Wait(w.ctx, dst[:]); err != nil {
			t.Fatal(err)
		}
	}
	once()
	if n := testing.AllocsPerRun(200, once); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
