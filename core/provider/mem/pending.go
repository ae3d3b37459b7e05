// SPDX-License-Identifier: MIT

package mem

import (
	"slices"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
)

// pendingOps are the pending ops of an endpoint, except receives. Only one goroutine at a time
// calls next: the executor's, or, before and after it, the one that flushes.
type pendingOps struct {
	queues *util.Queues
	wake   chan struct{} // wakes the executor; holds one element
	count  atomic.Int32

	batch []task // the tasks that next returns
	at    int    // the next of batch

	mu      sync.Mutex
	ended   bool // no more ops are accepted
	work    []task
	placing []placing // sends that wait for the peer's receives
	tokens  uint64    // the last token
}

// A task is an op to be executed.
type task struct {
	op     fabric.Op
	inject [64]byte      // what an OpInject op moves
	atomic fabric.Atomic // of an OpInject op
}

func (p *pendingOps) init(queues *util.Queues) {
	p.queues, p.wake = queues, make(chan struct{}, 1)
}

// add queues an op that CheckOp has accepted.
func (p *pendingOps) add(op *fabric.Op) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return fabric.ErrNotConn
	}
	if int(p.count.Load()) >= limits.TxSize {
		return fabric.ErrAgain
	}
	if err := p.queues.Tx.Reserve(1); err != nil {
		return err
	}
	p.count.Add(1)
	p.work = append(p.work, task{op: *op})
	if op.Flags&fabric.OpInject != 0 {
		p.work[len(p.work)-1].gather()
	}
	p.wakeUp()
	return nil
}

// wakeUp makes the executor check again.
func (p *pendingOps) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// gather copies what the caller may reuse after Submit.
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

// next returns the next op to execute, or nil. It is valid until the next call.
func (p *pendingOps) next() *task {
	if p.at == len(p.batch) {
		clear(p.batch)
		p.mu.Lock()
		p.batch, p.work, p.at = p.work, p.batch[:0], 0
		p.mu.Unlock()
		if len(p.batch) == 0 {
			return nil
		}
	}
	p.at++
	return &p.batch[p.at-1]
}

// done ends op successfully.
func (p *pendingOps) done(op *fabric.Op) {
	p.count.Add(-1)
	p.queues.Done(op, op.Len())
}

// failed ends op with an error entry.
func (p *pendingOps) failed(op *fabric.Op, cause fabric.Errno, detail string) {
	p.count.Add(-1)
	p.queues.Failed(op, cause, detail)
}

// flush ends all ops with cause and accepts no more. The executor has ended, or never existed.
func (p *pendingOps) flush(cause fabric.Errno, detail string) {
	p.mu.Lock()
	p.ended = true
	placing := p.placing
	p.placing = nil
	p.mu.Unlock()
	for i := range placing {
		p.failed(&placing[i].op, cause, detail)
	}
	for t := p.next(); t != nil; t = p.next() {
		p.failed(&t.op, cause, detail)
	}
	p.batch, p.work = nil, nil
}

// A placing is a send with OpDeliveryComplete whose message waits at the peer for a receive.
type placing struct {
	token uint64
	op    fabric.Op
}

// place makes op end when its message is placed, and returns the token for Deliver. It returns 0 if
// op does not wait for that.
func (p *pendingOps) place(op *fabric.Op) uint64 {
	if op.Flags&fabric.OpDeliveryComplete == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens++
	p.placing = append(p.placing, placing{p.tokens, *op})
	return p.tokens
}

// placed ends the send with this token, unless the connection ended before. It completes the send
// with mu held, so that Close, which calls flush, does not return before.
func (p *pendingOps) placed(token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.placing, func(o placing) bool { return o.token == token })
	if i < 0 {
		return
	}
	op := p.placing[i].op
	p.placing = slices.Delete(p.placing, i, i+1)
	p.done(&op)
	p.wakeUp()
}

// settled reports whether every op before the current one has ended.
func (p *pendingOps) settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.placing) == 0
}
