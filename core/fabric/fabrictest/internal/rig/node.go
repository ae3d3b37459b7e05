// SPDX-License-Identifier: MIT

package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
)

// A Node is an endpoint with its queues.
type Node struct {
	*Host
	EP fabric.Endpoint
	CQ fabric.CQ

	// EPMsg:
	Conn fabric.Connector
	EQ   fabric.EQ

	// EPRDM:
	AV      fabric.AV
	Address fabric.Addr
	Dest    fabric.AVAddr // of the peer that Join named

	dispatcher *Dispatcher // nil until dispatch
}

// A Shape says how a node is made. Zero fields have defaults.
type Shape struct {
	CQSize    int
	CQ        fabric.CQ // shared by several nodes
	AV        fabric.AV // shared by several nodes
	Selective bool
	Bind      func(*Node) // called before Enable
}

// Idle makes an endpoint that is not bound.
func (h *Host) Idle() *Node {
	h.Helper()
	ep, err := h.Dom.Endpoint(h.Info)
	h.Must(err)
	h.Cleanup(func() { h.Closed(ep) })
	cn, ok := ep.(fabric.Connector)
	if !ok && !h.RDM() {
		h.Fatalf("%T does not connect", ep)
	}
	return &Node{Host: h, EP: ep, Conn: cn}
}

// Node makes an enabled endpoint.
func (h *Host) Node(s Shape) *Node {
	h.Helper()
	if s.CQSize == 0 {
		s.CQSize = 1024
	}
	if s.CQ == nil {
		s.CQ = h.CQ(s.CQSize)
	}
	var eq fabric.EQ
	if !h.RDM() {
		eq = h.EQ()
	} else if s.AV == nil {
		s.AV = h.AV(16)
	}
	n := h.Idle() // closes before its queues
	n.CQ, n.EQ, n.AV = s.CQ, eq, s.AV
	h.Must(n.EP.BindCQ(s.CQ, fabric.DirTransmit|fabric.DirRecv, s.Selective))
	if h.RDM() {
		h.Must(n.EP.BindAV(s.AV))
	} else {
		h.Must(n.EP.BindEQ(eq))
	}
	if s.Bind != nil {
		s.Bind(n)
	}
	n.Enable()
	return n
}

// Enable enables n and asks an EPRDM for its name.
func (n *Node) Enable() {
	n.Helper()
	n.Must(n.EP.Enable())
	if n.RDM() {
		var err error
		n.Address, err = n.EP.Name()
		n.Must(err)
	}
}

// Pair makes two nodes on two hosts that know one another.
func (r *Rig) Pair(s Shape) (a, b *Node) {
	r.Helper()
	return r.PairOf(s, s)
}

// PairOf is Pair with two shapes.
func (r *Rig) PairOf(sa, sb Shape) (a, b *Node) {
	r.Helper()
	ha, hb := r.Host(), r.Host()
	a, b = ha.Node(sa), hb.Node(sb)
	r.Join(a, b)
	return a, b
}

// Join connects a to b, or makes each the other's dest.
func (r *Rig) Join(a, b *Node) {
	r.Helper()
	if r.RDM() {
		a.Dest, b.Dest = a.Insert(b.Address), b.Insert(a.Address)
		return
	}
	r.Connect(a, b)
	a.Event(fabric.EventConnected)
	b.Event(fabric.EventConnected)
}

// Connect connects a to b, and leaves the events to the caller.
func (r *Rig) Connect(a, b *Node) {
	r.Helper()
	if b.door == nil {
		b.door = b.Listen()
	}
	done := make(chan error, 1)
	go func() { done <- accept(r.Ctx, b.door, b) }()
	_, err := a.Conn.Connect(r.Ctx, b.door.Addr(), nil)
	r.Must(errors.Join(err, <-done))
}

func accept(ctx context.Context, l fabric.Listener, n *Node) error {
	req, err := l.Accept(ctx)
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	return n.Conn.Accept(ctx, req, nil)
}

// Insert makes an address known to n.
func (n *Node) Insert(addr fabric.Addr) fabric.AVAddr {
	n.Helper()
	got, err := n.AV.Insert(addr)
	n.Must(err)
	if len(got) != 1 || got[0] == 0 {
		n.Fatalf("%s was inserted as %v", addr, got)
	}
	return got[0]
}

// Event waits for the next event of n, which is of this kind.
func (n *Node) Event(kind fabric.EventKind) fabric.Event {
	n.Helper()
	e, err := n.EQ.Wait(n.Ctx)
	n.Must(err)
	if e.Kind != kind || e.EP != n.EP {
		n.Fatalf("event %d of %p: %v; want %d of %p", e.Kind, e.EP, e.Err, kind, n.EP)
	}
	return e
}

// Try is Submit of ops that go to n's peer unless they name another.
func (n *Node) Try(ops ...fabric.Op) (int, error) {
	for i := range ops {
		if ops[i].Dest == 0 && ops[i].Kind != fabric.OpRecv {
			ops[i].Dest = n.Dest
		}
	}
	return n.EP.Submit(ops)
}

// Submit queues all ops.
func (n *Node) Submit(ops ...fabric.Op) {
	n.Helper()
	for deadline := time.Now().Add(CaseDeadline / 3); len(ops) > 0; {
		k, err := n.Try(ops...)
		if ops = ops[k:]; err == nil && len(ops) > 0 {
			n.Fatalf("submit took %d of %d ops without an error", k, k+len(ops))
		}
		if err != nil && (!errors.Is(err, fabric.ErrAgain) || time.Now().After(deadline)) {
			n.Fatalf("submit: %v", err)
		}
		if err != nil {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// Read returns the next result of the queue; a failure has its Err set.
func (n *Node) Read() fabric.ErrEntry {
	n.Helper()
	e, err := Next(n.Ctx, n.CQ)
	n.Must(err)
	return e
}

// Next waits for an entry of either kind.
func Next(ctx context.Context, cq fabric.CQ) (fabric.ErrEntry, error) {
	var dst [1]fabric.Completion
	for {
		n, err := cq.Wait(ctx, dst[:])
		if n == 1 {
			return fabric.ErrEntry{Completion: dst[0]}, nil
		}
		if errors.Is(err, fabric.ErrAvail) {
			var e fabric.ErrEntry
			if err = cq.ReadErr(&e); err == nil {
				if e.Err == 0 {
					e.Err = fabric.ErrOther
				}
				return e, nil
			}
		}
		if err != nil && !errors.Is(err, fabric.ErrAgain) {
			return fabric.ErrEntry{}, fmt.Errorf("wait for a completion: %w", err)
		}
	}
}

// OK waits for the success of the op with this context.
func (n *Node) OK(ctx uint64) fabric.Completion {
	n.Helper()
	e := n.Read()
	if e.Err != 0 || e.Ctx != ctx {
		n.Fatalf("op %d: %v; want success of op %d", e.Ctx, &e, ctx)
	}
	return e.Completion
}

// Do submits op and waits for its success.
func (n *Node) Do(op fabric.Op) fabric.Completion {
	n.Helper()
	n.Submit(op)
	c := n.OK(op.Ctx)
	if c.Kind != op.Kind || c.Len != op.Len() {
		n.Fatalf("%v of %d bytes completed as %v of %d", op.Kind, op.Len(), c.Kind, c.Len)
	}
	return c
}

// Refused submits op, which fails with one of the causes, at once or with an entry.
func (n *Node) Refused(op fabric.Op, causes ...fabric.Errno) {
	n.Helper()
	k, err := n.Try(op)
	if k == 1 {
		e := n.Read()
		if e.Err == 0 || e.Ctx != op.Ctx || e.Kind != op.Kind {
			n.Fatalf("%v, op %d, succeeded or is another: %+v", op.Kind, op.Ctx, e)
		}
		err = &e
	}
	for _, c := range causes {
		if errors.Is(err, c) {
			return
		}
	}
	n.Fatalf("%v ended with %v, want one of %v", op.Kind, err, causes)
}

// Denial is what may be the cause of an access that the target refuses because of cause.
func (r *Rig) Denial(cause fabric.Errno) []fabric.Errno {
	if !r.DenialEnds() {
		return []fabric.Errno{cause}
	}
	return []fabric.Errno{cause, fabric.ErrNoKey, fabric.ErrAccess, fabric.ErrRange, fabric.ErrConnReset}
}

// Silent fails the case if an entry is in the queue.
func (n *Node) Silent() {
	n.Helper()
	var dst [1]fabric.Completion
	if k, err := n.CQ.Read(dst[:]); k != 0 || !errors.Is(err, fabric.ErrAgain) {
		n.Fatalf("read %d entries, %v: %+v; want none", k, err, dst)
	}
}

// Want fails the case unless err wraps cause.
func (r *Rig) Want(what string, err, cause error) {
	r.Helper()
	if !errors.Is(err, cause) {
		r.Errorf("%s: %v, want %v", what, err, cause)
	}
}

// StillWorks moves bytes in both directions.
func StillWorks(r *Rig, a, b *Node) {
	r.Helper()
	src, far, back := r.Patterned(1000, 8), r.Alloc(1000), r.Alloc(1000)
	to := a.Imports(b.Reg(far, BothRights).Raw())
	a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 1000), Ctx: 991})
	r.Has(far, 8, 0)
	a.Do(fabric.Op{Kind: fabric.OpRead, Seg: back.Seg(), RSeg: to.At(0, 1000), Ctx: 992})
	r.Has(back, 8, 0)
}

// Tally reads the entries of count ops, each of which has a context of its own, and returns how
// many are missing after patience. It fails the case if an op ends twice.
func Tally(n *Node, count int, patience time.Duration) (left int) {
	n.Helper()
	seen := make(map[uint64]int)
	deadline := time.Now().Add(patience)
	dst := make([]fabric.Completion, 16)
	for len(seen) < count {
		k, err := n.CQ.Read(dst)
		if errors.Is(err, fabric.ErrAvail) {
			var e fabric.ErrEntry
			if n.CQ.ReadErr(&e) == nil {
				dst[0], k = e.Completion, 1
			}
		} else if k == 0 && time.Now().After(deadline) {
			break
		} else if k == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		for _, c := range dst[:k] {
			if seen[c.Ctx]++; seen[c.Ctx] > 1 {
				n.Fatalf("op %d ended twice", c.Ctx)
			}
		}
	}
	n.Silent()
	return count - len(seen)
}

// DrainQueue reads all successes that are there and returns how many.
func DrainQueue(n *Node) (count int) {
	n.Helper()
	var dst [64]fabric.Completion
	for {
		k, err := n.CQ.Read(dst[:])
		if count += k; err != nil {
			if !errors.Is(err, fabric.ErrAgain) {
				n.Fatalf("read completions: %v", err)
			}
			return count
		}
	}
}
