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
	maxPending = 256 // ops on their way at most

	// bounceBytes is up to how long a put is copied, so that its source is free at once.
	bounceBytes = 8192

	// Behind the copy are the words of an atomic.
	operandAt    = bounceBytes
	compareAt    = operandAt + 8
	resultAt     = compareAt + 8
	pendingBytes = resultAt + 48

	fullNap = 20 * time.Microsecond // when the endpoint takes no more
)

// A pendingOp is what an op on its way needs. It belongs to who took it until Submit, then to reap.
type pendingOp struct {
	at     uint64 // its part of bounce
	pe     int
	kind   fabric.OpKind
	size   int // of an atomic
	epoch  uint32
	atomic fabric.Atomic
	waiter *waiter // nil: nobody waits
}

// A waiter waits for some ops to end.
type waiter struct {
	left   atomic.Int32 // ops, and one for who queues them
	failed atomic.Pointer[error]
	old    uint64 // what a fetching atomic has found
	done   chan struct{}
}

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

func newWaiter() *waiter {
	w := waiters.Get().(*waiter)
	w.left.Store(1)
	w.failed.Store(nil)
	return w
}

// leave ends an op, or the queueing.
func (w *waiter) leave() {
	if w.left.Add(-1) == 0 {
		w.done <- struct{}{}
	}
}

// A pool has the pending operations of an endpoint. The number of an operation is its Ctx. Callers
// acquire one, and wait if none is free; reap, which the completion queue calls, releases it.
type pool struct {
	pes    *peers.Group
	ops    []pendingOp
	free   chan int
	bounce []byte    // bounceBytes and the words of an atomic for each op
	region fabric.MR // of bounce, if NICs carry the bytes
	epochs *epochs   // which of what was queued quiet waits for

	failed atomic.Pointer[error] // the first error of an op without a waiter, which quiet has not reported

	cq    fabric.CQ
	reaps atomic.Int64 // calls of reap that are not done
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

// acquire returns a free operation to PE pe, and its number. If waits is not nil, it waits for the
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

// reap releases the operations that have ended. The completion queue calls it, possibly from
// several goroutines at once: the first one works for all.
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

// fail ends operation i by an error, which goes to its waiter, or else to quiet.
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

// wait ends the queueing, whose error is err, and waits for the ops. If it gives up, they still own
// the memory that they name.
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

// gracePeriod is how long after a connection broke the group may need to notice that the PE has
// died.
const gracePeriod = 200 * time.Millisecond

// disconnects are how ops end when the connection does.
var disconnects = []fabric.Errno{fabric.ErrConnReset, fabric.ErrConnRefused, fabric.ErrShutdown, fabric.ErrNotConn}

// diagnose adds to the error of an op what ended the World, if that is why.
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
