// SPDX-License-Identifier: MIT

package mem_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// listens is a listener that nobody serves unless the test does.
func (w *world) listens(at fabric.Addr) fabric.Listener {
	w.Helper()
	l, err := w.fab.Listen(w.ctx, &fabric.Info{Src: at})
	w.must(err)
	w.Cleanup(func() { _ = l.Close() })
	return l
}

// A stranger is a connected endpoint that speaks to datagram endpoints by hand.
type stranger struct {
	*node
	cn fabric.Connector
	eq fabric.EQ
}

func (w *world) stranger() *stranger {
	w.Helper()
	n := w.idle("")
	ep, err := n.dom.Endpoint(nil)
	w.must(err)
	eq, err := w.fab.EQ(4)
	w.must(err)
	w.must(errors.Join(ep.BindCQ(n.cq, fabric.DirTransmit|fabric.DirRecv, false), ep.BindEQ(eq), ep.Enable()))
	w.must(n.ep.Close())
	n.ep = ep
	w.Cleanup(func() { // before n closes
		w.must(errors.Join(ep.Close(), eq.Close()))
	})
	return &stranger{n, ep.(fabric.Connector), eq}
}

// TestOpsWaitForASlowPeer submits while the peer's answer is out, more than its queue takes.
func TestOpsWaitForASlowPeer(t *testing.T) {
	w := newWorld(t)
	l := w.listens("slow")
	a := w.node("a")
	to, msg := a.knows("slow"), a.buffer([]byte("abcdefgh"))
	var taken uint64
	for {
		op := fabric.Op{Kind: fabric.OpSend, Dest: to, Seg: msg, Ctx: taken}
		op.Seg.Len = taken % 9
		if _, err := a.ep.Submit([]fabric.Op{op}); err != nil {
			if !errors.Is(err, fabric.ErrAgain) {
				t.Fatal(err)
			}
			break
		}
		taken++
	}
	if taken < 100 {
		t.Errorf("%d ops may wait for a connection", taken)
	}
	req, err := l.Accept(w.ctx)
	w.must(err)
	if string(req.Private()) != "rdm\x01a" {
		t.Errorf("hello %q", req.Private())
	}
	s := w.stranger()
	w.must(s.cn.Accept(w.ctx, req, nil))
	for i := range taken {
		s.recv(8, i)
		if c := s.ok(fabric.OpRecv, i); c.Len != i%9 {
			t.Fatalf("message %d has %d bytes", i, c.Len)
		}
		a.ok(fabric.OpSend, i)
	}
}

// TestRejectionReachesTheOps ends the ops that wait for a peer with its own words.
func TestRejectionReachesTheOps(t *testing.T) {
	w := newWorld(t)
	l := w.listens("b")
	a := w.node("a")
	to := a.knows("b")
	for i := range uint64(3) {
		a.send(to, "x", i)
		req, err := l.Accept(w.ctx)
		w.must(err)
		w.must(req.Reject([]byte("not today")))
		if e := a.read(); e.Ctx != i || e.Err != fabric.ErrConnRefused || !strings.Contains(e.Detail, "reach b") || !strings.Contains(e.Detail, "not today") {
			t.Fatalf("%+v", e)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	for _, hello := range []string{"", "rdm", "rdm\x01", "rdm\x02a", "RDM\x01a", "rdm\x01a\x00b", "rdm\x01\xff\xfe", strings.Repeat("r", 256)} {
		s := w.stranger()
		_, err := s.cn.Connect(w.ctx, "a", []byte(hello))
		var rejected *fabric.RejectError
		if !errors.As(err, &rejected) || len(rejected.Data) == 0 {
			t.Errorf("hello %q: %v", hello, err)
		}
	}
	b := w.node("b")
	b.send(b.knows("a"), "x", 1)
	b.ok(fabric.OpSend, 1)
	a.recv(1, 2)
	a.ok(fabric.OpRecv, 2)
}

// TestMessagesOfTheDeadAreBounded connects, sends and goes, until the endpoint takes no more before
// it has posted receives.
func TestMessagesOfTheDeadAreBounded(t *testing.T) {
	const size, most = 1 << 20, 16 << 20
	w := newWorld(t)
	a := w.node("a")
	msg := make([]byte, size)
	var left int
	for {
		s := w.stranger()
		_, err := s.cn.Connect(w.ctx, "a", []byte("rdm\x01stranger"))
		var rejected *fabric.RejectError
		if errors.As(err, &rejected) {
			if !strings.Contains(string(rejected.Data), "wait for receives") {
				t.Errorf("refused: %q", rejected.Data)
			}
			break
		}
		w.must(err)
		for range 3 {
			s.submit(fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: sys.AddrOf(msg), Len: size}})
			s.ok(fabric.OpSend, 0)
			left++
		}
		w.must(s.cn.Shutdown())
		if left > 2*most/size {
			t.Fatalf("%d messages of %d bytes wait", left, size)
		}
		// a has seen the end when it connects anew.
		a.settled("stranger")
	}
	if left < most/size {
		t.Errorf("refused after %d messages of %d bytes", left, size)
	}
	for i := range left {
		a.recv(size, uint64(i))
		a.ok(fabric.OpRecv, uint64(i))
	}
	s := w.stranger()
	_, err := s.cn.Connect(w.ctx, "a", []byte("rdm\x01stranger"))
	w.must(err)
}

// settled waits until n has no connection to a peer where nobody listens.
func (n *node) settled(peer fabric.Addr) {
	n.Helper()
	for {
		n.send(n.knows(peer), "", 1<<32)
		if e := n.read(); e.Err == fabric.ErrConnRefused && strings.Contains(e.Detail, fmt.Sprintf("reach %s", peer)) {
			return
		}
	}
}
