// SPDX-License-Identifier: MIT

package mem

import (
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/layer/rdm"
	"mori/core/fabric/util"
)

// An endpoint is a fabric.Endpoint and Connector, and may carry an EPRDM endpoint.
type endpoint struct {
	domain *domain
	name   fabric.Addr
	state  util.State
	queues util.Queues
	recv   *util.RecvQueue
	shared bool                 // recv is an EPRDM endpoint's
	source func() fabric.AVAddr // the peer's number there; nil if not shared
	feed   *util.Feed           // the peer's messages; set when connected

	batch []task        // what run executes
	at    int           // the next of batch
	wake  chan struct{} // run has to look again; holds one
	open  atomic.Int32  // ops that have not ended

	setup     sync.Mutex // held by Connect, Accept, Abort and Close
	closeOnce sync.Once
	closing   chan struct{} // closed when Close begins
	quiet     chan struct{} // closed when run touches the peer's memory no more
	gone      chan struct{} // closed when run has ended everything

	mu       sync.Mutex
	link     *link // set once
	peerName fabric.Addr
	ended    bool // no more work is taken
	work     []task
	placing  []placing // sends that wait for the peer's receives
	tokens   uint64    // given out
}

var (
	_ fabric.Endpoint = (*endpoint)(nil)
	_ rdm.Carrier     = (*endpoint)(nil)
	_ fabric.Prober   = (*endpoint)(nil)
)

// A task is an op in flight.
type task struct {
	op     fabric.Op
	inject [64]byte      // what an OpInject op moves
	atomic fabric.Atomic // of an OpInject op
}

// connector makes an endpoint of type EPMsg.
func (d *domain) connector() (*endpoint, error) {
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("open endpoint: %w", err)
	}
	e := &endpoint{
		domain:  d,
		name:    d.network.provider.name(),
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		quiet:   make(chan struct{}),
		gone:    make(chan struct{}),
	}
	e.recv = util.NewRecvQueue(&e.queues, limits.RxSize)
	return e, nil
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

// BindAV is refused: a connection has no use for it.
func (e *endpoint) BindAV(fabric.AV) error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	return fmt.Errorf("bind an address vector to an endpoint that connects: %w", fabric.ErrInvalid)
}

func (e *endpoint) BindEQ(eq fabric.EQ) error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	return e.queues.BindEQ(eq)
}

// Carry makes the endpoint one of an EPRDM endpoint's; see rdm.Carrier.
func (e *endpoint) Carry(recv *util.RecvQueue, source func() fabric.AVAddr) {
	e.recv, e.source, e.shared = recv, source, true
}

func (e *endpoint) Enable() error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	if err := e.queues.Complete(); err != nil {
		return err
	}
	return e.state.Enable()
}

// Name is what only datagram endpoints have.
func (e *endpoint) Name() (fabric.Addr, error) {
	if isClosed(e.closing) {
		return "", fabric.ErrClosed
	}
	return "", fmt.Errorf("name an endpoint that connects: %w", fabric.ErrNoSys)
}

func (e *endpoint) Cancel(ctx uint64) error {
	if isClosed(e.closing) {
		return fabric.ErrClosed
	}
	e.recv.Cancel(ctx)
	return nil
}

// Abort ends the ops that wait for a connection; see rdm.Carrier.
func (e *endpoint) Abort(cause error) {
	e.setup.Lock()
	defer e.setup.Unlock()
	if e.link == nil {
		e.flush(fabric.ErrnoOf(cause), cause.Error())
	}
}

func (e *endpoint) Close() error {
	e.closeOnce.Do(e.close)
	return nil
}

func (e *endpoint) close() {
	close(e.closing)
	e.setup.Lock()
	defer e.setup.Unlock()
	if e.link != nil {
		e.link.end(e, fabric.ErrCanceled, fabric.ErrConnReset)
		<-e.gone
	} else {
		e.flush(fabric.ErrCanceled, "endpoint closed")
	}
	e.state.Close()
	if e.queues.Rx != nil && !e.shared {
		e.recv.End(fabric.ErrCanceled, "endpoint closed")
	}
	e.queues.Unbind()
	e.domain.Leave()
}

// Path reports that bytes move by one copy.
func (e *endpoint) Path() (name, reason string) { return "memmove", "both ends are in this process" }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// signal leaves a token in c, which holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
