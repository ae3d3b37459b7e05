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

// An endpoint is what both types have in common, and all of an EPRDM. Its libfabric endpoint is
// made by Enable, or, for an EPMsg, by Connect or Accept, since libfabric makes a passive one of
// the request.
type endpoint struct {
	domain *domain
	limits fabric.Limits
	src    fabric.Addr // of Endpoint's info
	state  util.State
	queues util.Queues
	av     *vector // nil in an EPMsg
	name   fabric.Addr

	enabling  sync.Mutex // held by Enable
	closeOnce sync.Once
	closing   chan struct{} // closed when Close begins

	mu    sync.Mutex
	fid   lf.FID // 0: not open
	queue lf.Queue
	fiAV  lf.FID
	table table
	lanes map[fabric.Addr]*lane // of an EPRDM
	peers map[uint64]*lane      // the same by libfabric's number
	only  lane                  // of an EPMsg
	recvs lane                  // receives that libfabric does not have yet

	backlog []fabric.Completion // remote writes for which the CQ had no place
	forget  func()              // ends OnSpace
	stalled bool                // counts in engine.stalled
	post    [postBatch]lf.Op
}

var _ fabric.Endpoint = (*endpoint)(nil)

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
	e := &endpoint{domain: d, limits: d.offer.info.Limits, src: src, closing: make(chan struct{}),
		lanes: make(map[fabric.Addr]*lane), peers: make(map[uint64]*lane)}
	if err := e.table.open(e.limits); err != nil {
		d.Leave()
		return nil, err
	}
	e.only.reset(lf.NoPeer)
	e.recvs.reset(lf.NoPeer)
	if typ == fabric.EPRDM {
		return e, nil
	}
	return &connected{endpoint: e, news: make(chan lf.Event, 1)}, nil
}

func (e *endpoint) BindCQ(cq fabric.CQ, dir fabric.Dir, selective bool) error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	return e.queues.BindCQ(cq, dir, selective)
}

func (e *endpoint) BindCounter(c fabric.Counter, events fabric.CountEvents) error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	return e.queues.BindCounter(c, events)
}

func (e *endpoint) BindEQ(eq fabric.EQ) error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	return e.queues.BindEQ(eq)
}

func (e *endpoint) BindAV(av fabric.AV) error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	v, ok := av.(*vector)
	switch {
	case e.domain.offer.info.EPType != fabric.EPRDM:
		return fmt.Errorf("bind an address vector to a connected endpoint: %w", fabric.ErrInvalid)
	case !ok || v == nil:
		return fmt.Errorf("bind an address vector of another kind (%T): %w", av, fabric.ErrInvalid)
	case e.av != nil:
		return fmt.Errorf("bind a second address vector: %w", fabric.ErrOpBadState)
	}
	if err := v.Bind(); err != nil {
		return err
	}
	e.av = v
	return nil
}

func (e *endpoint) Enable() error {
	e.enabling.Lock()
	defer e.enabling.Unlock()
	if err := e.state.Configure(); err != nil {
		return err
	}
	if err := e.queues.Complete(); err != nil {
		return err
	}
	rdm := e.domain.offer.info.EPType == fabric.EPRDM
	if rdm && e.av == nil {
		return fmt.Errorf("enable endpoint without an address vector: %w", fabric.ErrNoAV)
	}
	if rdm {
		if err := e.openDatagram(); err != nil {
			return err
		}
	}
	e.forget = e.queues.Rx.OnSpace(e.domain.network.engine.kick)
	if err := e.state.Enable(); err != nil {
		return err
	}
	if rdm {
		e.av.join(e)
		e.state.Connect()
		e.state.Connected()
	}
	return nil
}

func (e *endpoint) Name() (fabric.Addr, error) {
	switch {
	case e.domain.offer.info.EPType != fabric.EPRDM:
		return "", fmt.Errorf("name of a connected endpoint: %w", fabric.ErrNoSys)
	case isClosed(e.closing):
		return "", fabric.ErrClosed
	case e.state.Configure() == nil:
		return "", fmt.Errorf("name of an endpoint that is %v: %w", &e.state, fabric.ErrOpBadState)
	}
	return e.name, nil
}

// Cancel asks libfabric to end receives that it has, and ends those that it has not.
func (e *endpoint) Cancel(ctx uint64) error {
	if isClosed(e.closing) {
		return fabric.ErrClosed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.each(func(i int32, s *slot) {
		if s.op.Kind != fabric.OpRecv || s.op.Ctx != ctx {
			return
		}
		if s.state == slotPosted {
			e.fid.Cancel(e.table.context(i))
			return
		}
		e.recvs.remove(&e.table, i)
		e.failed(i, fabric.ErrCanceled, "")
	})
	return nil
}

func (e *endpoint) Close() error {
	e.closeOnce.Do(func() {
		close(e.closing)
		e.close()
	})
	return nil
}

// close ends everything. Nobody connects any more.
func (e *endpoint) close() {
	e.state.Close()
	g := e.domain.network.engine
	g.polling.Lock()
	e.backlog = nil
	e.shut(fabric.ErrCanceled, "endpoint closed", nil)
	delete(g.owners, e.queue.Owner)
	g.polling.Unlock()
	if e.forget != nil {
		e.forget()
	}
	if e.av != nil {
		e.av.leave(e)
		e.av.Unbind()
	}
	e.queues.Unbind()
	e.table.close()
	e.domain.Leave()
}

// Path is the name of the libfabric provider.
func (e *endpoint) Path() (name, reason string) { return e.domain.offer.fi.Provider, "libfabric" }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
