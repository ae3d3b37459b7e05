// SPDX-License-Identifier: MIT

package rig

import (
	"mori/core/fabric"
)

// A Host is a fabric with a domain, which the provider cannot distinguish from another process.
type Host struct {
	*Rig
	Fab  fabric.Fabric
	Dom  fabric.Domain
	door fabric.Listener // made by join
}

// Host opens a host, which closes when the case ends.
func (r *Rig) Host() *Host {
	r.Helper()
	fab, err := r.Provider.Open(r.Ctx, r.Info)
	r.Must(err)
	r.Cleanup(func() { r.Closed(fab) })
	dom, err := fab.Domain(r.Ctx, r.Info)
	r.Must(err)
	r.Cleanup(func() { r.Closed(dom) })
	return &Host{Rig: r, Fab: fab, Dom: dom}
}

// Closed fails the case unless c closes.
func (r *Rig) Closed(c interface{ Close() error }) {
	r.Helper()
	if err := c.Close(); err != nil {
		r.Errorf("close %T: %v", c, err)
	}
}

// retired is closed for a queue or counter, which may have a waiter that is still to learn of it.
func (r *Rig) retired(q interface {
	fabric.WaitObject
	Close() error
}) {
	r.Helper()
	r.Closed(q)
	r.Want("arm what is closed", q.TryWait(), fabric.ErrClosed)
}

// Listen opens a listener.
func (h *Host) Listen() fabric.Listener {
	h.Helper()
	l, err := h.Fab.Listen(h.Ctx, h.Info)
	h.Must(err)
	h.Cleanup(func() { h.Closed(l) })
	return l
}

// CQ opens a completion queue.
func (h *Host) CQ(size int) fabric.CQ {
	h.Helper()
	q, err := h.Dom.CQ(size)
	h.Must(err)
	h.Cleanup(func() { h.retired(q) })
	return q
}

// EQ opens an event queue.
func (h *Host) EQ() fabric.EQ {
	h.Helper()
	q, err := h.Fab.EQ(16)
	h.Must(err)
	h.Cleanup(func() { h.retired(q) })
	return q
}

// AV opens an address vector.
func (h *Host) AV(size int) fabric.AV {
	h.Helper()
	v, err := h.Dom.AV(size)
	h.Must(err)
	h.Cleanup(func() { h.Closed(v) })
	return v
}

// Counter opens a counter of ops.
func (h *Host) Counter() fabric.Counter {
	h.Helper()
	c, err := h.Dom.Counter(fabric.CountOps)
	h.Must(err)
	h.Cleanup(func() { h.retired(c) })
	return c
}
