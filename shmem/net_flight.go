// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
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
	return n.waitUntil(n.w.pes.Deadline(), w, pe, err)
}

func (n *wire) waitUntil(deadline time.Time, w *waiter, pe int, err error) (old uint64, _ error) {
	w.leave()
	if _, late := peers.Receive(n.w.pes, w.done, deadline); late != nil {
		return 0, fmt.Errorf("PE %d has not answered, and may still use the local memory: %w", pe, late)
	}
	if failed := w.failed.Load(); failed != nil && err == nil {
		err = n.blame(*failed)
	}
	old = w.old
	waiters.Put(w)
	return old, err
}

// mourning is how long after a connection broke the group may need to notice that the PE has died.
const mourning = 200 * time.Millisecond

// partings are how ops end when the connection does.
var partings = []fabric.Errno{fabric.ErrConnReset, fabric.ErrConnRefused, fabric.ErrShutdown, fabric.ErrNotConn}

// blame adds to the error of an op what ended the World, if that is why.
func (n *wire) blame(err error) error {
	var entry *fabric.ErrEntry
	if !errors.As(err, &entry) || !slices.Contains(partings, entry.Err) {
		return err
	}
	timer := time.NewTimer(mourning)
	defer timer.Stop()
	select {
	case <-n.w.pes.Broken():
		return fmt.Errorf("%w: %w", err, n.w.pes.Failed())
	case <-timer.C:
		return err
	}
}

// take gets a flight, for an op to PE pe that waiter waits for, if it is not nil.
func (n *wire) take(pe int, kind fabric.OpKind, waits *waiter) (int, *flight, error) {
	i, err := peers.Receive(n.w.pes, n.free, n.w.pes.Deadline())
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
	for deadline := n.w.pes.Deadline(); ; time.Sleep(fullNap) {
		_, err := n.ep.Submit(p.ops[:])
		if err == nil {
			return nil
		}
		if errors.Is(err, fabric.ErrAgain) {
			if err = n.w.pes.Check(); err == nil {
				if deadline.IsZero() || time.Now().Before(deadline) {
					continue
				}
				err = ErrTimeout
			}
		}
		err = fmt.Errorf("PE %d: %w", f.pe, err)
		n.land(i)
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
			n.land(int(n.ended[i].Ctx))
		}
		if errors.Is(err, fabric.ErrAvail) {
			for n.cq.ReadErr(&n.entry) == nil {
				entry := n.entry
				n.crash(int(entry.Ctx), fmt.Errorf("PE %d: %w: %w", n.flights[entry.Ctx].pe, ErrUnreachable, &entry))
			}
		} else if count == 0 {
			return
		}
	}
}

// crash ends flight i by an error, which goes to who waits, or else to quiet.
func (n *wire) crash(i int, err error) {
	if w := n.flights[i].waiter; w != nil {
		w.failed.CompareAndSwap(nil, &err)
	} else {
		n.failed.CompareAndSwap(nil, &err)
	}
	n.land(i)
}

// land ends flight i.
func (n *wire) land(i int) {
	f := &n.flights[i]
	w, epoch := f.waiter, f.epoch
	f.waiter = nil
	if w != nil && f.kind >= fabric.OpFetchAtomic {
		w.old = access.LoadWord(f.at+resultAt, f.size)
	}
	n.free <- i
	n.epochs.leave(epoch)
	if w != nil {
		w.leave()
	}
}
