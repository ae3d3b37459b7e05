// SPDX-License-Identifier: MIT

package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
)

// A host is a process of its own as far as the provider can tell: a fabric with a domain.
type host struct {
	*rig
	fab fabric.Fabric
	dom fabric.Domain
}

func (r *rig) host() *host {
	r.Helper()
	fab, err := r.provider.Open(r.ctx, r.info)
	r.must(err)
	r.Cleanup(func() { r.closed(fab) })
	dom, err := fab.Domain(r.ctx, r.info)
	r.must(err)
	r.Cleanup(func() { r.closed(dom) })
	return &host{r, fab, dom}
}

// closed fails the case unless c closes.
func (r *rig) closed(c interface{ Close() error }) {
	r.Helper()
	if err := c.Close(); err != nil {
		r.Errorf("close %T: %v", c, err)
	}
}

func (h *host) listen() fabric.Listener {
	h.Helper()
	l, err := h.fab.Listen(h.ctx, h.info)
	h.must(err)
	h.Cleanup(func() { h.closed(l) })
	return l
}

func (h *host) cq(size int) fabric.CQ {
	h.Helper()
	q, err := h.dom.CQ(size)
	h.must(err)
	h.Cleanup(func() { h.closed(q) })
	return q
}

func (h *host) eq() fabric.EQ {
	h.Helper()
	q, err := h.fab.EQ(16)
	h.must(err)
	h.Cleanup(func() { h.closed(q) })
	return q
}

// A node is an endpoint with its queues.
type node struct {
	*host
	ep fabric.Endpoint
	cn fabric.Connector
	cq fabric.CQ
	eq fabric.EQ
}

// A shape says how a node is made. Zero fields have defaults.
type shape struct {
	cqSize    int
	cq        fabric.CQ // shared by several nodes
	selective bool
}

// idle makes an endpoint that is not bound.
func (h *host) idle() *node {
	h.Helper()
	ep, err := h.dom.Endpoint(h.info)
	h.must(err)
	h.Cleanup(func() { h.closed(ep) })
	cn, ok := ep.(fabric.Connector)
	if !ok {
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
	cq, eq := s.cq, h.eq()
	if cq == nil {
		cq = h.cq(s.cqSize)
	}
	n := h.idle()
	n.cq, n.eq = cq, eq
	h.must(n.ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, s.selective))
	h.must(n.ep.BindEQ(eq))
	h.must(n.ep.Enable())
	return n
}

// pair makes two connected endpoints on two hosts.
func (r *rig) pair(s shape) (a, b *node) {
	r.Helper()
	ha, hb := r.host(), r.host()
	a, b = ha.node(s), hb.node(s)
	r.join(a, b, hb.listen())
	return a, b
}

// join connects a to b, which l belongs to.
func (r *rig) join(a, b *node, l fabric.Listener) {
	r.Helper()
	done := make(chan error, 1)
	go func() { done <- accept(r.ctx, l, b) }()
	_, err := a.cn.Connect(r.ctx, l.Addr(), nil)
	r.must(errors.Join(err, <-done))
	a.event(fabric.EventConnected)
	b.event(fabric.EventConnected)
}

func accept(ctx context.Context, l fabric.Listener, n *node) error {
	req, err := l.Accept(ctx)
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	return n.cn.Accept(ctx, req, nil)
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

// submit queues all ops.
func (n *node) submit(ops ...fabric.Op) {
	n.Helper()
	for deadline := time.Now().Add(caseDeadline / 3); len(ops) > 0; {
		k, err := n.ep.Submit(ops)
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
	k, err := n.ep.Submit([]fabric.Op{op})
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
