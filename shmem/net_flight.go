// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
)

const (
	flights = 256 // ops on their way at most

	// bounceBytes is up to how long a put is copied, so that its source is free at once.
	bounceBytes = 8192

	// Behind the copy are the words of an atomic.
	operandAt   = bounceBytes
	compareAt   = operandAt + 8
	resultAt    = compareAt + 8
	flightBytes = resultAt + 48

	fullNap = 20 * time.Microsecond // when the endpoint takes no more
)

// A flight is what an op on its way needs. It belongs to who took it until Submit, then to reap.
type flight struct {
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

// wait ends the queueing, whose error is err, and waits for the ops. If it gives up, they still own the memory that they name.
func (n *wire) wait(w *waiter, pe int, err error) (old uint64, _ error) {
	w.leave()
	if _, late := receive(nil, n.w, w.done); late != nil {
		return 0, fmt.Errorf("PE %d has not answered, and may still use the local memory: %w", pe, late)
	}
	if failed := w.failed.Load(); failed != nil && err == nil {
		err = *failed
	}
	old = w.old
	waiters.Put(w)
	return old, err
}

// receive takes from c until ctx ends, or the World. Without ctx it has the World's Timeout.
func receive[T any](ctx context.Context, w *World, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	default:
	}
	if ctx == nil {
		limited, cancel := w.bounded(context.Background())
		defer cancel()
		ctx = limited
	}
	var asks <-chan time.Time
	if w.cfg.Interrupt != nil {
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		asks = tick.C
	}
	for {
		select {
		case v = <-c:
			return v, nil
		case <-w.dead:
			return v, *w.fault.Load()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return v, fmt.Errorf("%w after %v", ErrTimeout, w.cfg.Timeout)
			}
			return v, ctx.Err()
		case <-asks:
			if err := w.cfg.Interrupt(); err != nil {
				return v, err
			}
		}
	}
}

// take gets a flight, for an op to PE pe that waiter waits for, if it is not nil.
func (n *wire) take(pe int, kind fabric.OpKind, waits *waiter) (int, *flight, error) {
	i, err := receive(nil, n.w, n.free)
	if err != nil {
		return 0, nil, fmt.Errorf("PE %d: %d transfers are on their way: %w", pe, flights, err)
	}
	f := &n.flights[i]
	f.pe, f.kind, f.waiter, f.epoch = pe, kind, waits, n.epochs.enter()
	if waits != nil {
		waits.left.Add(1)
	}
	return i, f, nil
}

// launch submits the op of flight i, behind the fences that were called.
func (n *wire) launch(i int, op fabric.Op) error {
	f := &n.flights[i]
	p := &n.peers[f.pe]
	op.Kind, op.Dest, op.Ctx = f.kind, p.dest, uint64(i)
	p.mu.Lock()
	defer p.mu.Unlock()
	if count := n.fences.Load(); p.fenced != count {
		op.Flags |= fabric.OpFence
		p.fenced = count
	}
	p.ops[0] = op
	for deadline := n.w.deadline(); ; time.Sleep(fullNap) {
		_, err := n.ep.Submit(p.ops[:])
		if err == nil {
			return nil
		}
		if errors.Is(err, fabric.ErrAgain) {
			if err = n.w.broken(); err == nil && (deadline.IsZero() || time.Now().Before(deadline)) {
				continue
			}
			err = errors.Join(err, ErrTimeout)
		}
		err = fmt.Errorf("PE %d: %w", f.pe, err)
		n.land(i, nil)
		return err
	}
}

// reap ends the flights whose ops have ended. The completion queue calls it, possibly from several goroutines at once: the first one works
// for all.
func (n *wire) reap() {
	if n.reaps.Add(1) > 1 {
		return
	}
	for {
		asked := n.reaps.Load()
		n.reapAll()
		if n.reaps.CompareAndSwap(asked, 0) {
			return
		}
	}
}

func (n *wire) reapAll() {
	for {
		count, err := n.cq.Read(n.ended[:])
		for i := range n.ended[:count] {
			n.land(int(n.ended[i].Ctx), nil)
		}
		if errors.Is(err, fabric.ErrAvail) {
			for n.cq.ReadErr(&n.entry) == nil {
				entry := n.entry
				n.land(int(entry.Ctx), fmt.Errorf("PE %d: %w: %w", n.flights[entry.Ctx].pe, ErrUnreachable, &entry))
			}
		} else if count == 0 {
			return
		}
	}
}

// land ends flight i.
func (n *wire) land(i int, err error) {
	f := &n.flights[i]
	w, epoch := f.waiter, f.epoch
	f.waiter = nil
	switch {
	case err != nil && w != nil:
		w.failed.CompareAndSwap(nil, &err)
	case err != nil:
		n.failed.CompareAndSwap(nil, &err)
	case w != nil && f.kind >= fabric.OpFetchAtomic:
		w.old = loadWord(f.at+resultAt, f.size)
	}
	n.free <- i
	n.epochs.leave(epoch)
	if w != nil {
		w.leave()
	}
}

func loadWord(at uint64, size int) uint64 {
	if size == 4 {
		return uint64(memory.Load32(at))
	}
	return memory.Load64(at)
}

func storeWord(at uint64, size int, v uint64) {
	if size == 4 {
		memory.Store32(at, uint32(v))
	} else {
		memory.Store64(at, v)
	}
}
