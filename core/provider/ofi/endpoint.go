// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	lf "mori/native/libfabric"
)

// An endpoint is the common part of both types. Enable makes its libfabric endpoint. For an EPMsg,
// Connect or Accept does, since libfabric makes a passive endpoint from the request.
type endpoint struct {
	util.MsgBase
	domain *domain
	limits fabric.Limits

	closeOnce sync.Once
	closing   chan struct{} // closed when Close begins
	forget    func()        // removes the OnSpace function

	mu      sync.Mutex
	queue   lf.Queue
	ops     ops
	peers   *peers              // of an EPRDM, else nil
	only    lane                // of an EPMsg
	backlog []fabric.Completion // remote writes for which the CQ had no place
	retries retries
}

// Endpoint makes an endpoint of the domain's type; see fabric.Domain.
func (d *domain) Endpoint(in *fabric.Info) (fabric.Endpoint, error) {
	typ, src := fabric.EPMsg, fabric.Addr("")
	if in != nil {
		src = in.Src
		if in.EPType != 0 {
			typ = in.EPType
		}
	}
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("open endpoint: %w", err)
	}
	if typ != d.offer.info.EPType {
		d.Leave()
		return nil, fmt.Errorf("open endpoint of type %d in a domain for type %d: %w", typ, d.offer.info.EPType, fabric.ErrNotSupported)
	}
	e := &endpoint{domain: d, limits: d.offer.info.Limits, closing: make(chan struct{})}
	e.retries.engine = d.network.engine
	e.ops.init(&e.Queues, &d.offer, &e.retries)
	if err := e.ops.table.open(e.limits); err != nil {
		d.Leave()
		return nil, err
	}
	e.only.reset(lf.NoPeer)
	if typ == fabric.EPRDM {
		return newDatagram(e, src), nil
	}
	return &connected{endpoint: e, news: make(chan lf.Event, 1)}, nil
}

// Enable ends the configuration; see fabric.Endpoint.
func (e *endpoint) Enable() error { return e.enableWith(func() error { return nil }) }

// enableWith is Enable with an open function.
func (e *endpoint) enableWith(open func() error) error {
	return e.EnableWith(func() error {
		if err := open(); err != nil {
			return err
		}
		e.forget = e.Queues.Rx.OnSpace(e.domain.network.engine.kick)
		return nil
	})
}

// Cancel asks libfabric to cancel the receives that it has, and ends the others.
func (e *endpoint) Cancel(ctx uint64) error {
	if isClosed(e.closing) {
		return fabric.ErrClosed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ops.cancel(ctx)
	return nil
}

// Close ends every op; see fabric.Endpoint.
func (e *endpoint) Close() error {
	e.closeOnce.Do(func() {
		close(e.closing)
		e.close()
	})
	return nil
}

// close ends everything. No Connect or Accept is running any more.
func (e *endpoint) close() {
	e.State.Close()
	g := e.domain.network.engine
	g.polling.Lock()
	e.backlog = nil
	e.shut(fabric.ErrCanceled, "endpoint closed", nil)
	delete(g.owners, e.queue.Owner)
	g.polling.Unlock()
	if e.forget != nil {
		e.forget()
	}
	e.Queues.Unbind()
	e.ops.table.close()
	e.domain.Leave()
}

// Path returns the name of the libfabric provider.
func (e *endpoint) Path() (name, reason string) { return e.domain.offer.fi.Provider, "libfabric" }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
