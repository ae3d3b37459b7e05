// SPDX-License-Identifier: MIT

package mem

import (
	"slices"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
)

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
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return fabric.ErrNotConn
	}
	if int(e.open.Load()) >= limits.TxSize {
		return fabric.ErrAgain
	}
	if err := e.queues.Tx.Reserve(1); err != nil {
		return err
	}
	e.open.Add(1)
	e.work = append(e.work, task{op: *op})
	if op.Flags&fabric.OpInject != 0 {
		e.work[len(e.work)-1].gather()
	}
	signal(e.wake)
	return nil
}

func (e *endpoint) admits(kind fabric.OpKind) error {
	if e.shared {
		return e.state.SubmitEarly()
	}
	return e.state.Submit(kind)
}

// gather takes along what the caller will reuse.
func (t *task) gather() {
	n := copy(t.inject[:], sys.Bytes(t.op.Seg.Addr, int(t.op.Seg.Len)))
	for _, s := range t.op.More {
		n += copy(t.inject[n:], sys.Bytes(s.Addr, int(s.Len)))
	}
	t.op.Seg, t.op.More = fabric.Seg{Len: uint64(n)}, nil
	if t.op.Atomic != nil {
		t.atomic = *t.op.Atomic
	}
}

// next is the next op to execute, nil without one. It is valid until the call after.
func (e *endpoint) next() *task {
	if e.at == len(e.batch) {
		clear(e.batch)
		e.mu.Lock()
		e.batch, e.work, e.at = e.work, e.batch[:0], 0
		e.mu.Unlock()
		if len(e.batch) == 0 {
			return nil
		}
	}
	e.at++
	return &e.batch[e.at-1]
}

// done ends op well.
func (e *endpoint) done(op *fabric.Op) {
	e.open.Add(-1)
	e.queues.Done(op, op.Len())
}

// failed ends op with an error entry.
func (e *endpoint) failed(op *fabric.Op, cause fabric.Errno, detail string) {
	e.open.Add(-1)
	e.queues.Failed(op, cause, detail)
}

// flush ends all ops with cause and takes no more. run is over, or never was.
func (e *endpoint) flush(cause fabric.Errno, detail string) {
	e.mu.Lock()
	e.ended = true
	placing := e.placing
	e.placing = nil
	e.mu.Unlock()
	for i := range placing {
		e.failed(&placing[i].op, cause, detail)
	}
	for t := e.next(); t != nil; t = e.next() {
		e.failed(&t.op, cause, detail)
	}
	e.batch, e.work = nil, nil
}

// A placing is a send with OpDeliveryComplete whose message waits at the peer for a receive.
type placing struct {
	token uint64
	op    fabric.Op
}

// place makes op end when its message is placed, and returns the token to deliver it with; 0 if
// nobody waits for that.
func (e *endpoint) place(op *fabric.Op) uint64 {
	if op.Flags&fabric.OpDeliveryComplete == 0 {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tokens++
	e.placing = append(e.placing, placing{e.tokens, *op})
	return e.tokens
}

// placed ends the send with this token, unless the connection ended before. It completes with mu
// held, so that Close, which comes through flush, does not return before.
func (e *endpoint) placed(token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.placing, func(p placing) bool { return p.token == token })
	if i < 0 {
		return
	}
	op := e.placing[i].op
	e.placing = slices.Delete(e.placing, i, i+1)
	e.done(&op)
	signal(e.wake)
}

// settled reports whether every op before the one that run executes has ended.
func (e *endpoint) settled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.placing) == 0
}
