// SPDX-License-Identifier: MIT

package mem

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/layer/rdm"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
)

// An endpoint is a fabric.Endpoint and Connector, and may be the carrier of an EPRDM endpoint. An
// executor moves the bytes of its pending ops.
type endpoint struct {
	util.MsgBase
	domain  *domain
	name    fabric.Addr
	pending pendingOps
	recv    *receive.Queue
	shared  bool                 // recv belongs to an EPRDM endpoint
	source  func() fabric.AVAddr // returns the peer's number there; nil if not shared
	feed    *receive.Feed        // the peer's messages; set when connected

	connecting sync.Mutex // held by Connect, Accept, Abort and Close
	closeOnce  sync.Once
	closing    chan struct{} // closed when Close begins
	quiet      chan struct{} // closed once the executor does not access the peer's memory any more
	gone       chan struct{} // closed when every op has ended

	mu       sync.Mutex
	link     *link // set once
	peerName fabric.Addr
}

var (
	_ fabric.Endpoint = (*endpoint)(nil)
	_ rdm.Carrier     = (*endpoint)(nil)
	_ fabric.Prober   = (*endpoint)(nil)
)

// connector makes an EPMsg endpoint.
func (d *domain) connector() (*endpoint, error) {
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("open endpoint: %w", err)
	}
	e := &endpoint{
		domain:  d,
		name:    d.network.provider.name(),
		closing: make(chan struct{}),
		quiet:   make(chan struct{}),
		gone:    make(chan struct{}),
	}
	e.pending.init(&e.Queues)
	e.recv = receive.NewQueue(&e.Queues, limits.RxSize)
	return e, nil
}

// Carry makes the endpoint a carrier of an EPRDM endpoint; see rdm.Carrier.
func (e *endpoint) Carry(recv *receive.Queue, source func() fabric.AVAddr) {
	e.recv, e.source, e.shared = recv, source, true
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
	if err := e.admits(op.Kind); err != nil {
		return err
	}
	if err := util.CheckOp(op, &limits); err != nil {
		return err
	}
	if op.Kind == fabric.OpRecv {
		return e.recv.Post(op)
	}
	return e.pending.add(op)
}

func (e *endpoint) admits(kind fabric.OpKind) error {
	if e.shared {
		return e.State.SubmitEarly()
	}
	return e.State.Submit(kind)
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
	e.connecting.Lock()
	defer e.connecting.Unlock()
	if e.link == nil {
		e.pending.flush(fabric.ErrnoOf(cause), cause.Error())
	}
}

func (e *endpoint) Close() error {
	e.closeOnce.Do(e.close)
	return nil
}

func (e *endpoint) close() {
	close(e.closing)
	e.connecting.Lock()
	defer e.connecting.Unlock()
	if e.link != nil {
		e.link.end(e, fabric.ErrCanceled, fabric.ErrConnReset)
		<-e.gone
	} else {
		e.pending.flush(fabric.ErrCanceled, "endpoint closed")
	}
	e.State.Close()
	if e.Queues.Rx != nil && !e.shared {
		e.recv.End(fabric.ErrCanceled, "endpoint closed")
	}
	e.Queues.Unbind()
	e.domain.Leave()
}

// Path reports that one copy moves the bytes.
func (e *endpoint) Path() (name, reason string) { return "memmove", "both ends are in this process" }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
