// SPDX-License-Identifier: MIT

package remote

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
)

const (
	maxPending = 256 // most pending ops

	// bounceBytes is the limit up to which a put is copied, so that its source can be reused at
	// once.
	bounceBytes = 8192

	// The words of an atomic follow the copy.
	operandAt    = bounceBytes
	compareAt    = operandAt + 8
	resultAt     = compareAt + 8
	pendingBytes = resultAt + 48

	fullNap = 20 * time.Microsecond // back-off if the endpoint is full
)

// A pendingOp is the state of a pending op. It belongs to the caller of acquire until Submit, then
// to reap.
type pendingOp struct {
	at     uint64 // its part of bounce
	pe     int
	kind   fabric.OpKind
	size   int // of an atomic
	epoch  uint32
	atomic fabric.Atomic
	waiter *waiter // nil: no caller waits
}

// A waiter waits for the end of some ops.
type waiter struct {
	left   atomic.Int32 // ops, plus one for the caller that queues them
	failed atomic.Pointer[error]
	old    uint64 // result of a fetching atomic
	done   chan struct{}
}

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

func newWaiter() *waiter {
	w := waiters.Get().(*waiter)
	w.left.Store(1)
	w.failed.Store(nil)
	return w
}

// leave counts an op, or the queueing, as ended.
func (w *waiter) leave() {
	if w.left.Add(-1) == 0 {
		w.done <- struct{}{}
	}
}

// A pool holds the pending operations of an endpoint. An operation's number is its Ctx. Callers
// acquire an operation and wait if none is free. The completion queue calls reap, which releases
// it.
type pool struct {
	pes    *peers.Group
	ops    []pendingOp
	free   chan int
	bounce []byte    // bounceBytes and the words of an atomic, for each op
	region fabric.MR // registration of bounce, if NICs carry the bytes
	epochs *epochs   // the ops that quiet waits for

	failed atomic.Pointer[error] // first error of an op without a waiter, not yet reported by quiet

	cq    fabric.CQ
	reaps atomic.Int64 // calls of reap to be processed
	ended [16]fabric.Completion
	entry fabric.ErrEntry
}

func newPool(pes *peers.Group) *pool {
	p := &pool{pes: pes, ops: make([]pendingOp, maxPending), free: make(chan int, maxPending), epochs: newEpochs()}
	p.bounce = make([]byte, maxPending*pendingBytes)
	for i := range p.ops {
		p.ops[i].at = memory.AddrOf(p.bounce) + uint64(i)*pendingBytes
		p.free <- i
	}
	return p
}

// buffer returns the memory of all operations.
func (p *pool) buffer() fabric.Buffer {
	return fabric.Buffer{Addr: memory.AddrOf(p.bounce), Len: uint64(len(p.bounce))}
}

// acquire returns a free operation to PE pe, and its number. waits, if not nil, waits for the
// operation.
func (p *pool) acquire(pe int, kind fabric.OpKind, waits *waiter) (int, *pendingOp, error) {
	i, err := peers.Receive(p.pes, p.free, p.pes.Deadline())
	if err != nil {
		return 0, nil, fmt.Errorf("PE %d: %d transfers are pending: %w", pe, maxPending, err)
	}
	f := &p.ops[i]
	f.pe, f.kind, f.waiter, f.epoch = pe, kind, waits, p.epochs.enter()
	if waits != nil {
		waits.left.Add(1)
	}
	return i, f, nil
}

// reap releases the operations that have ended. The completion queue may call it from several
// goroutines; the first one works for all.
func (p *pool) reap() {
	if p.reaps.Add(1) > 1 {
		return
	}
	for {
		asked := p.reaps.Load()
		p.reapAll()
		if p.reaps.CompareAndSwap(asked, 0) {
			return
		}
	}
}

func (p *pool) reapAll() {
	for {
		count, err := p.cq.Read(p.ended[:])
		for i := range p.ended[:count] {
			p.release(int(p.ended[i].Ctx))
		}
		if errors.Is(err, fabric.ErrAvail) {
			for p.cq.ReadErr(&p.entry) == nil {
				entry := p.entry
				p.fail(int(entry.Ctx), fmt.Errorf("PE %d: %w: %w", p.ops[entry.Ctx].pe, peers.ErrUnreachable, &entry))
			}
		} else if count == 0 {
			return
		}
	}
}

// fail ends operation i with an error, for its waiter or else for quiet.
func (p *pool) fail(i int, err error) {
	if w := p.ops[i].waiter; w != nil {
		w.failed.CompareAndSwap(nil, &err)
	} else {
		p.failed.CompareAndSwap(nil, &err)
	}
	p.release(i)
}

// release ends operation i.
func (p *pool) release(i int) {
	f := &p.ops[i]
	w, epoch := f.waiter, f.epoch
	f.waiter = nil
	if w != nil && f.kind >= fabric.OpFetchAtomic {
		w.old = access.LoadWord(f.at+resultAt, f.size)
	}
	p.free <- i
	p.epochs.leave(epoch)
	if w != nil {
		w.leave()
	}
}

// wait ends the queueing, with err as its error, and waits for the ops. After a timeout the ops
// still own their memory.
func (p *pool) wait(w *waiter, pe int, err error) (old uint64, _ error) {
	return p.waitUntil(p.pes.Deadline(), w, pe, err)
}

func (p *pool) waitUntil(deadline time.Time, w *waiter, pe int, err error) (old uint64, _ error) {
	w.leave()
	if _, late := peers.Receive(p.pes, w.done, deadline); late != nil {
		return 0, fmt.Errorf("PE %d did not answer, and may still access the local memory: %w", pe, late)
	}
	if failed := w.failed.Load(); failed != nil && err == nil {
		err = p.diagnose(*failed)
	}
	old = w.old
	waiters.Put(w)
	return old, err
}

// gracePeriod is the time in which the group may report, after a connection broke, that the PE has
// died.
const gracePeriod = 200 * time.Millisecond

// disconnects are the errors of ops whose connection broke.
var disconnects = []fabric.Errno{fabric.ErrConnReset, fabric.ErrConnRefused, fabric.ErrShutdown, fabric.ErrNotConn}

// diagnose adds to an op's error why the World ended, if it did.
func (p *pool) diagnose(err error) error {
	var entry *fabric.ErrEntry
	if !errors.As(err, &entry) || !slices.Contains(disconnects, entry.Err) {
		return err
	}
	timer := time.NewTimer(gracePeriod)
	defer timer.Stop()
	select {
	case <-p.pes.Broken():
		return fmt.Errorf("%w: %w", err, p.pes.Failed())
	case <-timer.C:
		return err
	}
}
