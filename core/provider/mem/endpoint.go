// SPDX-License-Identifier: MIT

package mem

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
)

// An endpoint is a fabric.Endpoint and Connector.
type endpoint struct {
	domain *domain
	name   fabric.Addr
	state  util.State
	queues util.Queues
	recv   *util.RecvQueue

	work  chan task
	cur   task          // what run executes
	space chan struct{} // the peer's CQ has a place again; holds one

	setup     sync.Mutex // held by Connect and Accept
	closeOnce sync.Once
	closing   chan struct{} // closed when Close begins
	quiet     chan struct{} // closed when run touches the peer's memory no more
	gone      chan struct{} // closed when run has ended everything

	mu       sync.Mutex
	link     *link // set once
	peerName fabric.Addr
	ended    bool // no more work is taken
}

var (
	_ fabric.Endpoint  = (*endpoint)(nil)
	_ fabric.Connector = (*endpoint)(nil)
	_ fabric.Prober    = (*endpoint)(nil)
)

// A task is an op in flight.
type task struct {
	op     fabric.Op
	inject [64]byte // what an OpInject op moves
}

func (d *domain) Endpoint(*fabric.Info) (fabric.Endpoint, error) {
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("open endpoint: %w", err)
	}
	e := &endpoint{
		domain:  d,
		name:    d.network.provider.name(),
		work:    make(chan task, limits.TxSize),
		space:   make(chan struct{}, 1),
		closing: make(chan struct{}),
		quiet:   make(chan struct{}),
		gone:    make(chan struct{}),
	}
	e.recv = util.NewRecvQueue(&e.queues, limits.RxSize, earlyRoom)
	return e, nil
}

func (e *endpoint) BindCQ(cq fabric.CQ, dir fabric.Dir, selective bool) error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	return e.queues.BindCQ(cq, dir, selective)
}

func (e *endpoint) BindEQ(eq fabric.EQ) error {
	if err := e.state.Configure(); err != nil {
		return err
	}
	return e.queues.BindEQ(eq)
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

func (e *endpoint) Submit(ops []fabric.Op) (int, error) {
	for i := range ops {
		if err := e.submit(&ops[i]); err != nil {
			return i, err
		}
	}
	return len(ops), nil
}

func (e *endpoint) submit(op *fabric.Op) error {
	if err := e.state.Submit(op.Kind); err != nil {
		return err
	}
	if err := util.CheckOp(op, &limits); err != nil {
		return err
	}
	if op.Kind == fabric.OpRecv {
		return e.recv.Post(op)
	}
	t := task{op: *op}
	if op.Flags&fabric.OpInject != 0 {
		t.gather()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return fabric.ErrNotConn
	}
	if len(e.work) == cap(e.work) {
		return fabric.ErrAgain
	}
	if err := e.queues.Tx.Reserve(1); err != nil {
		return err
	}
	e.work <- t // has room: only submit sends, with mu held
	return nil
}

// gather takes the op's local bytes along, since the caller will reuse them.
func (t *task) gather() {
	n := copy(t.inject[:], sys.Bytes(t.op.Seg.Addr, int(t.op.Seg.Len)))
	for _, s := range t.op.More {
		n += copy(t.inject[n:], sys.Bytes(s.Addr, int(s.Len)))
	}
	t.op.Seg, t.op.More = fabric.Seg{Len: uint64(n)}, nil
}

func (e *endpoint) Cancel(ctx uint64) error {
	if isClosed(e.closing) {
		return fabric.ErrClosed
	}
	e.recv.Cancel(ctx)
	return nil
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
	}
	e.state.Close()
	if e.queues.Rx != nil {
		e.recv.End(fabric.ErrCanceled, "endpoint closed")
	}
	e.queues.Unbind()
	e.domain.Leave()
}

// Path tells that bytes move by one copy.
func (e *endpoint) Path() (name, reason string) { return "memmove", "both ends are in this process" }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
