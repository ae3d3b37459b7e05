// SPDX-License-Identifier: MIT

package util

import (
	"fmt"

	"mori/core/fabric"
)

// Queues are the queues that an endpoint is bound to. The zero value has none.
type Queues struct {
	Tx, Rx                   *CQ
	TxSelective, RxSelective bool
	EQ                       *EQ // may stay nil

	counters [fabric.OpRemoteWrite + 1]*Counter // by kind of op; nil: not counted
}

// BindCQ is Endpoint.BindCQ without the state check.
func (q *Queues) BindCQ(cq fabric.CQ, dir fabric.Dir, selective bool) error {
	c, ok := cq.(*CQ)
	switch {
	case !ok || c == nil:
		return fmt.Errorf("bind a completion queue of another provider (%T): %w", cq, fabric.ErrInvalid)
	case dir == 0 || dir&^(fabric.DirTransmit|fabric.DirRecv) != 0:
		return fmt.Errorf("bind completion queue to direction %#x: %w", dir, fabric.ErrBadFlags)
	case dir&fabric.DirTransmit != 0 && q.Tx != nil, dir&fabric.DirRecv != 0 && q.Rx != nil:
		return fmt.Errorf("bind a second completion queue to direction %#x: %w", dir, fabric.ErrOpBadState)
	}
	if dir&fabric.DirTransmit != 0 {
		if err := c.Bind(); err != nil {
			return err
		}
		q.Tx, q.TxSelective = c, selective
	}
	if dir&fabric.DirRecv != 0 {
		if err := c.Bind(); err != nil {
			return err
		}
		q.Rx, q.RxSelective = c, selective
	}
	return nil
}

// BindEQ is Endpoint.BindEQ without the state check.
func (q *Queues) BindEQ(eq fabric.EQ) error {
	e, ok := eq.(*EQ)
	switch {
	case !ok || e == nil:
		return fmt.Errorf("bind an event queue of another provider (%T): %w", eq, fabric.ErrInvalid)
	case q.EQ != nil:
		return fmt.Errorf("bind a second event queue: %w", fabric.ErrOpBadState)
	}
	if err := e.Bind(); err != nil {
		return err
	}
	q.EQ = e
	return nil
}

// BindCounter is Endpoint.BindCounter without the state check.
func (q *Queues) BindCounter(c fabric.Counter, events fabric.CountEvents) error {
	k, ok := c.(*Counter)
	switch {
	case !ok || k == nil:
		return fmt.Errorf("bind a counter of another provider (%T): %w", c, fabric.ErrInvalid)
	case events == 0 || events&^fabric.CountAll != 0:
		return fmt.Errorf("bind counter to events %#x: %w", events, fabric.ErrBadFlags)
	}
	for kind, other := range q.counters {
		if event := fabric.CountEventOf(fabric.OpKind(kind)); events&event != 0 && other != nil {
			return fmt.Errorf("bind a second counter to event %#x: %w", event, fabric.ErrOpBadState)
		}
	}
	for kind := range q.counters {
		if events&fabric.CountEventOf(fabric.OpKind(kind)) == 0 {
			continue
		}
		if err := k.Bind(); err != nil {
			return err
		}
		q.counters[kind] = k
	}
	return nil
}

// count counts a success of this kind of op, if a counter is bound for it.
func (q *Queues) count(kind fabric.OpKind, n uint64) {
	if c := q.counters[kind]; c != nil {
		c.Count(n)
	}
}

// countErr counts a failure.
func (q *Queues) countErr(kind fabric.OpKind) {
	if c := q.counters[kind]; c != nil {
		c.CountErr()
	}
}

// Complete returns nil if Enable may proceed, or ErrNoCQ unless both directions have a completion
// queue.
func (q *Queues) Complete() error {
	if q.Tx == nil || q.Rx == nil {
		return fmt.Errorf("enable endpoint without a completion queue for both directions: %w", fabric.ErrNoCQ)
	}
	return nil
}

// Unbind unbinds all queues. The endpoint must not add entries any more.
func (q *Queues) Unbind() {
	if q.Tx != nil {
		q.Tx.Unbind()
	}
	if q.Rx != nil {
		q.Rx.Unbind()
	}
	if q.EQ != nil {
		q.EQ.Unbind()
	}
	for _, c := range q.counters {
		if c != nil {
			c.Unbind()
		}
	}
}

// Done ends op, which moved n bytes, successfully. It pushes a completion if one is due. It always
// counts the op, before the completion, so that a reader of the completion finds it counted.
func (q *Queues) Done(op *fabric.Op, n uint64) {
	if op.Flags&fabric.OpInject != 0 || q.TxSelective && op.Flags&fabric.OpWantCQE == 0 {
		q.Tx.Unreserve(1)
		q.count(op.Kind, n)
		return
	}
	q.count(op.Kind, n)
	q.Tx.Push(fabric.Completion{Ctx: op.Ctx, Kind: op.Kind, Len: n})
}

// Failed ends op, which is not a receive, with an error entry.
func (q *Queues) Failed(op *fabric.Op, cause fabric.Errno, detail string) {
	q.countErr(op.Kind)
	q.Tx.PushErr(fabric.ErrEntry{Completion: fabric.Completion{Ctx: op.Ctx, Kind: op.Kind}, Err: cause, Detail: detail})
}

// Received ends op, a filled receive that holds a place, successfully. It pushes c if a completion
// is due. Like Done, it always counts the op first.
func (q *Queues) Received(op *fabric.Op, c fabric.Completion) {
	if q.RxSelective && op.Flags&fabric.OpWantCQE == 0 {
		q.Rx.Unreserve(1)
		q.count(fabric.OpRecv, c.Len)
		return
	}
	q.count(fabric.OpRecv, c.Len)
	q.Rx.Push(c)
}

// NotReceived ends a receive that holds a place with an error entry.
func (q *Queues) NotReceived(e fabric.ErrEntry) {
	q.countErr(fabric.OpRecv)
	q.Rx.PushErr(e)
}
