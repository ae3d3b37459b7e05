// SPDX-License-Identifier: MIT

package conn

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
	"mori/core/provider/internal/frame"
)

// carrier replaces r's endpoint by one that serves a receive queue of the test.
func (r *rig) carrier(from fabric.AVAddr) (*Endpoint, *receive.Queue) {
	r.Helper()
	q := &util.Queues{}
	r.must(q.BindCQ(r.cq, fabric.DirRecv, false))
	r.Cleanup(q.Unbind)
	recv := receive.NewQueue(q, 16)
	return r.carrierOf(recv, from), recv
}

func (r *rig) carrierOf(recv *receive.Queue, from fabric.AVAddr) *Endpoint {
	r.Helper()
	e, err := r.dom.Endpoint(nil)
	r.must(err)
	ep := e.(*Endpoint)
	ep.Carry(recv, func() fabric.AVAddr { return from })
	r.must(ep.BindCQ(r.cq, fabric.DirTransmit|fabric.DirRecv, false))
	r.must(ep.BindEQ(r.eq))
	r.must(ep.Enable())
	r.Cleanup(func() { r.must(ep.Close()) })
	return ep
}

// connectAs connects ep, an endpoint of a, to b's endpoint.
func connectAs(a, b *rig, ep *Endpoint) {
	a.Helper()
	old := a.ep
	a.ep = ep
	join(a, b)
	a.ep = old
}

func TestOpsThatComeBeforeTheConnectionWaitForIt(t *testing.T) {
	a, b := newRig(t, nil), newRig(t, nil)
	ep, _ := a.carrier(0)
	far, k := b.share(4096)
	key := a.imported(k, 4096)
	mem, seg := a.memory(8)
	copy(mem, "early op")
	n, err := ep.Submit([]fabric.Op{
		{Kind: fabric.OpSend, Seg: seg, Ctx: 1},
		{Kind: fabric.OpWrite, Seg: seg, RSeg: fabric.RSeg{Len: 8, Key: key}, Flags: fabric.OpFence, Ctx: 2},
		{Kind: fabric.OpSend, Seg: seg, Flags: fabric.OpFence, Ctx: 3},
	})
	if n != 3 || err != nil {
		t.Fatalf("%d ops before the connection: %v", n, err)
	}
	if _, err := ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}}); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("receive: %v", err)
	}
	var done [1]fabric.Completion
	if _, err := a.cq.Read(done[:]); !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("before the connection: %+v, %v", done, err)
	}
	connectAs(a, b, ep)
	for want := uint64(1); want <= 3; want++ {
		if c, err := a.next(); err != nil || c.Ctx != want {
			t.Fatalf("op %d: %+v, %v", want, c, err)
		}
	}
	if string(far[:8]) != "early op" {
		t.Error("the write did not arrive")
	}
}

func TestEarlyOpsAreBoundedAndEndWithAbort(t *testing.T) {
	r := newRig(t, nil)
	ep, _ := r.carrier(0)
	ops := make([]fabric.Op, ep.limits.TxSize+1)
	for i := range ops {
		ops[i] = fabric.Op{Kind: fabric.OpSend, Ctx: uint64(i)}
	}
	n, err := ep.Submit(ops)
	if n != len(ops)-1 || !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("took %d of %d ops: %v", n, len(ops), err)
	}
	ep.Abort(fmt.Errorf("nobody is there: %w", fabric.ErrConnRefused))
	seen := map[uint64]bool{}
	for range n {
		c, err := r.next()
		if !errors.Is(err, fabric.ErrConnRefused) || !strings.Contains(err.Error(), "nobody is there") || seen[c.Ctx] {
			t.Fatalf("op %d: %v", c.Ctx, err)
		}
		seen[c.Ctx] = true
	}
	if _, err := ep.Submit(ops[:1]); !errors.Is(err, fabric.ErrNotConn) {
		t.Errorf("submit afterwards: %v", err)
	}
	if _, err := ep.Connect(r.ctx, r.ln.Addr(), nil); err == nil {
		t.Error("connected afterwards")
	}
	r.must(ep.Close())
}

func TestCloseEndsEarlyOps(t *testing.T) {
	r := newRig(t, nil)
	ep, _ := r.carrier(0)
	_, err := ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Ctx: 5}})
	r.must(err)
	r.must(ep.Close())
	if c, err := r.next(); !errors.Is(err, fabric.ErrCanceled) || c.Ctx != 5 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestConnectionsShareAReceiveQueue lets two peers send to one queue. After one peer disconnects,
// its messages stay.
func TestConnectionsShareAReceiveQueue(t *testing.T) {
	r, a, b := newRig(t, nil), newRig(t, nil), newRig(t, nil)
	ea, recv := r.carrier(11)
	eb := r.carrierOf(recv, 22)
	connectAs(r, a, ea)
	connectAs(r, b, eb)
	send := func(s *rig, text string) {
		mem, seg := s.memory(len(text))
		copy(mem, text)
		_, err := s.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Seg: seg}})
		s.must(err)
		_, err = s.next()
		s.must(err)
	}
	want := func(text string, from fabric.AVAddr) {
		t.Helper()
		mem, seg := r.memory(64)
		r.must(recv.Post(&fabric.Op{Kind: fabric.OpRecv, Seg: seg}))
		if c, err := r.next(); err != nil || string(mem[:c.Len]) != text || c.Src != from {
			t.Fatalf("received %q of %d, %v; want %q of %d", mem[:c.Len], c.Src, err, text, from)
		}
	}
	send(a, "one of a")
	send(b, "one of b")
	want("one of a", 11)
	want("one of b", 22)
	send(a, "last of a")
	r.must(ea.Close())
	want("last of a", 11)
	send(b, "b goes on")
	want("b goes on", 22)
	recv.End(fabric.ErrCanceled, "the test ends")
	_, err := b.ep.Submit([]fabric.Op{{Kind: fabric.OpSend}})
	b.must(err)
	if e := b.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrShutdown) {
		t.Errorf("message for a queue that ended: connection ended by %v", e.Err)
	}
	r.event(fabric.EventShutdown)
	r.event(fabric.EventShutdown)
}

// TestSendsThatEndWhenTheyArePlaced sends each size with and without OpDeliveryComplete before a
// receive is posted.
func TestSendsThatEndWhenTheyArePlaced(t *testing.T) {
	for _, n := range []int{0, 8, 5000, frame.MaxEager} {
		t.Run(fmt.Sprint(n, " bytes"), func(t *testing.T) {
			a, b := newRig(t, nil), newRig(t, nil)
			join(a, b)
			_, out := a.memory(n + 1)
			out.Len = uint64(n)
			_, in := b.memory(n + 1)
			_, err := a.ep.Submit([]fabric.Op{
				{Kind: fabric.OpSend, Seg: out, Ctx: 1, Flags: fabric.OpDeliveryComplete},
				{Kind: fabric.OpSend, Seg: out, Ctx: 2},
				{Kind: fabric.OpSend, Seg: out, Ctx: 3, Flags: fabric.OpDeliveryComplete | fabric.OpFence},
			})
			a.must(err)
			for _, want := range []uint64{2, 1} {
				if c, err := a.next(); err != nil || c.Ctx != want {
					t.Fatalf("completion of %d: %+v, %v", want, c, err)
				}
				_, err := b.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv, Seg: in}})
				b.must(err)
				_, err = b.next()
				b.must(err)
			}
			_, err = b.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv, Seg: in}})
			b.must(err)
			if c, err := a.next(); err != nil || c.Ctx != 3 {
				t.Fatalf("behind the fence: %+v, %v", c, err)
			}
			b.next()
		})
	}
}

// TestAnswersThatWaitAreBounded lets a plain peer ask for answers once its messages are placed. The
// answers arrive then, and not before. More such messages than there is room for end the
// connection.
func TestAnswersThatWaitAreBounded(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1)[0]
	const ops = 7 // the rig's dialer announces that 8 may be pending
	one := encode(frame.Header{Kind: frame.KindSend, Ticket: 1, Flags: frame.FlagPlaced}, nil, nil)
	_, err := c.Write(bytes.Repeat(one, ops))
	r.must(err)
	_, err = c.Write(encode(frame.Header{Kind: frame.KindSend, Ticket: 2}, nil, nil))
	r.must(err)
	answers := func(n int, ticket uint32) {
		t.Helper()
		for n > 0 {
			h, body := readFrame(t, c)
			if h.Kind != frame.KindAck || frame.ParseAck(body).Ticket != ticket {
				t.Fatalf("%v frame for %d, want an ack for %d", h.Kind, frame.ParseAck(body).Ticket, ticket)
			}
			n -= len(body) / frame.AckLen
		}
	}
	answers(1, 2)
	recvs := make([]fabric.Op, ops)
	for i := range recvs {
		recvs[i].Kind = fabric.OpRecv
	}
	_, err = r.ep.Submit(recvs)
	r.must(err)
	answers(ops, 1)
	_, _ = c.Write(bytes.Repeat(one, 2*eagerRoom/eagerCost)) // the listener may close in the middle of it
	if e := r.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrProtocol) {
		t.Errorf("connection ended by %v", e.Err)
	}
}
