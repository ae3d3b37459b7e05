// SPDX-License-Identifier: MIT

package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
)

// A node is an endpoint with its queues.
type node struct {
	*host
	ep fabric.Endpoint
	cq fabric.CQ

	// EPMsg:
	cn fabric.Connector
	eq fabric.EQ

	// EPRDM:
	av   fabric.AV
	name fabric.Addr
	dest fabric.AVAddr // of the peer that join named

	dispatcher *dispatcher // nil until dispatch
}

// A shape says how a node is made. Zero fields have defaults.
type shape struct {
	cqSize    int
	cq        fabric.CQ // shared by several nodes
	av        fabric.AV // shared by several nodes
	selective bool
	bind      func(*node) // called before Enable
}

// idle makes an endpoint that is not bound.
func (h *host) idle() *node {
	h.Helper()
	ep, err := h.dom.Endpoint(h.info)
	h.must(err)
	h.Cleanup(func() { h.closed(ep) })
	cn, ok := ep.(fabric.Connector)
	if !ok && !h.rdm() {
		h.Fatalf("%T does not connect", ep)
	}
	return &node{host: h, ep: ep, cn: cn}
}

// node makes an enabled endpoint.
func (h *host) node(s shape) *node {
	h.Helper()
	if s.cqSize == 0 {
		s.cqSize = 1024
	}
	if s.cq == nil {
		s.cq = h.cq(s.cqSize)
	}
	var eq fabric.EQ
	if !h.rdm() {
		eq = h.eq()
	} else if s.av == nil {
		s.av = h.av(16)
	}
	n := h.idle() // closes before its queues
	n.cq, n.eq, n.av = s.cq, eq, s.av
	h.must(n.ep.BindCQ(s.cq, fabric.DirTransmit|fabric.DirRecv, s.selective))
	if h.rdm() {
		h.must(n.ep.BindAV(s.av))
	} else {
		h.must(n.ep.BindEQ(eq))
	}
	if s.bind != nil {
		s.bind(n)
	}
	n.enable()
	return n
}

// enable enables n and asks an EPRDM for its name.
func (n *node) enable() {
	n.Helper()
	n.must(n.ep.Enable())
	if n.rdm() {
		var err error
		n.name, err = n.ep.Name()
		n.must(err)
	}
}

// pair makes two nodes on two hosts that know one another.
func (r *rig) pair(s shape) (a, b *node) {
	r.Helper()
	return r.pairOf(s, s)
}

// pairOf is pair with two shapes.
func (r *rig) pairOf(sa, sb shape) (a, b *node) {
	r.Helper()
	ha, hb := r.host(), r.host()
	a, b = ha.node(sa), hb.node(sb)
	r.join(a, b)
	return a, b
}

// join connects a to b, or makes each the other's dest.
func (r *rig) join(a, b *node) {
	r.Helper()
	if r.rdm() {
		a.dest, b.dest = a.insert(b.name), b.insert(a.name)
		return
	}
	r.connect(a, b)
	a.event(fabric.EventConnected)
	b.event(fabric.EventConnected)
}

// connect connects a to b, and leaves the events to the caller.
func (r *rig) connect(a, b *node) {
	r.Helper()
	if b.door == nil {
		b.door = b.listen()
	}
	done := make(chan error, 1)
	go func() { done <- accept(r.ctx, b.door, b) }()
	_, err := a.cn.Connect(r.ctx, b.door.Addr(), nil)
	r.must(errors.Join(err, <-done))
}

func accept(ctx context.Context, l fabric.Listener, n *node) error {
	req, err := l.Accept(ctx)
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	return n.cn.Accept(ctx, req, nil)
}

// insert makes an address known to n.
func (n *node) insert(addr fabric.Addr) fabric.AVAddr {
	n.Helper()
	got, err := n.av.Insert(addr)
	n.must(err)
	if len(got) != 1 || got[0] == 0 {
		n.Fatalf("%s was inserted as %v", addr, got)
	}
	return got[0]
}

// event waits for the next event of n, which is of this kind.
func (n *node) event(kind fabric.EventKind) fabric.Event {
	n.Helper()
	e, err := n.eq.Wait(n.ctx)
	n.must(err)
	if e.Kind != kind || e.EP != n.ep {
		n.Fatalf("event %d of %p: %v; want %d of %p", e.Kind, e.EP, e.Err, kind, n.ep)
	}
	return e
}

// try is Submit of ops that go to n's peer unless they name another.
func (n *node) try(ops ...fabric.Op) (int, error) {
	for i := range ops {
		if ops[i].Dest == 0 && ops[i].Kind != fabric.OpRecv {
			ops[i].Dest = n.dest
		}
	}
	return n.ep.Submit(ops)
}

// submit queues all ops.
func (n *node) submit(ops ...fabric.Op) {
	n.Helper()
	for deadline := time.Now().Add(caseDeadline / 3); len(ops) > 0; {
		k, err := n.try(ops...)
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

// read returns the next result of the queue; a failure has its Err set.
func (n *node) read() fabric.ErrEntry {
	n.Helper()
	e, err := next(n.ctx, n.cq)
	n.must(err)
	return e
}

// next waits for an entry of either kind.
func next(ctx context.Context, cq fabric.CQ) (fabric.ErrEntry, error) {
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

// ok waits for the success of the op with this context.
func (n *node) ok(ctx uint64) fabric.Completion {
	n.Helper()
	e := n.read()
	if e.Err != 0 || e.Ctx != ctx {
		n.Fatalf("op %d: %v; want success of op %d", e.Ctx, &e, ctx)
	}
	return e.Completion
}

// do submits op and waits for its success.
func (n *node) do(op fabric.Op) fabric.Completion {
	n.Helper()
	n.submit(op)
	c := n.ok(op.Ctx)
	if c.Kind != op.Kind || c.Len != op.Len() {
		n.Fatalf("%v of %d bytes completed as %v of %d", op.Kind, op.Len(), c.Kind, c.Len)
	}
	return c
}

// refused submits op, which fails with one of the causes, at once or with an entry.
func (n *node) refused(op fabric.Op, causes ...fabric.Errno) {
	n.Helper()
	k, err := n.try(op)
	if k == 1 {
		e := n.read()
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

// denial is what may be the cause of an access that the target refuses because of cause.
func (r *rig) denial(cause fabric.Errno) []fabric.Errno {
	if !r.fatal() {
		return []fabric.Errno{cause}
	}
	return []fabric.Errno{cause, fabric.ErrNoKey, fabric.ErrAccess, fabric.ErrRange, fabric.ErrConnReset}
}

// silent fails the case if an entry is in the queue.
func (n *node) silent() {
	n.Helper()
	var dst [1]fabric.Completion
	if k, err := n.cq.Read(dst[:]); k != 0 || !errors.Is(err, fabric.ErrAgain) {
		n.Fatalf("read %d entries, %v: %+v; want none", k, err, dst)
	}
}

// want fails the case unless err wraps cause.
func (r *rig) want(what string, err, cause error) {
	r.Helper()
	if !errors.Is(err, cause) {
		r.Errorf("%s: %v, want %v", what, err, cause)
	}
}
