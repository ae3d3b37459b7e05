// SPDX-License-Identifier: MIT

package fabrictest

import (
	"mori/core/fabric"
)

// A host is a fabric with a domain, which the provider cannot distinguish from another process.
type host struct {
	*rig
	fab  fabric.Fabric
	dom  fabric.Domain
	door fabric.Listener // made by join
}

func (r *rig) host() *host {
	r.Helper()
	fab, err := r.provider.Open(r.ctx, r.info)
	r.must(err)
	r.Cleanup(func() { r.closed(fab) })
	dom, err := fab.Domain(r.ctx, r.info)
	r.must(err)
	r.Cleanup(func() { r.closed(dom) })
	return &host{rig: r, fab: fab, dom: dom}
}

// closed fails the case unless c closes.
func (r *rig) closed(c interface{ Close() error }) {
	r.Helper()
	if err := c.Close(); err != nil {
		r.Errorf("close %T: %v", c, err)
	}
}

// retired is closed for a queue or counter, which may have a waiter that is still to learn of it.
func (r *rig) retired(q interface {
	fabric.WaitObject
	Close() error
}) {
	r.Helper()
	r.closed(q)
	r.want("arm what is closed", q.TryWait(), fabric.ErrClosed)
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
	h.Cleanup(func() { h.retired(q) })
	return q
}

func (h *host) eq() fabric.EQ {
	h.Helper()
	q, err := h.fab.EQ(16)
	h.must(err)
	h.Cleanup(func() { h.retired(q) })
	return q
}

func (h *host) av(size int) fabric.AV {
	h.Helper()
	v, err := h.dom.AV(size)
	h.must(err)
	h.Cleanup(func() { h.closed(v) })
	return v
}

func (h *host) counter() fabric.Counter {
	h.Helper()
	c, err := h.dom.Counter(fabric.CountOps)
	h.must(err)
	h.Cleanup(func() { h.retired(c) })
	return c
}
